//! The same name a second time: nothing of the first cluster may be left in it.

use anyhow::ensure;
use etcd_operator_tests::{Cluster, Context, Outcome};
use serde_json::json;

async fn names(cluster: &Cluster<'_>) -> anyhow::Result<Vec<String>> {
    let members = cluster.members().await?;
    Ok(members.into_iter().map(|member| member.name).collect())
}

pub(crate) async fn a_resource_made_anew_under_the_same_name_starts_afresh(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("again");
    cluster.create(&json!({})).await?;
    let first = cluster.ready().await?.data["status"]["clusterID"].clone();
    let old = names(&cluster).await?;
    cluster.etcd().await?.put("before", "gone", None).await?;

    cluster.delete().await?;
    cluster.gone().await?;
    cluster.create(&json!({})).await?;
    let second = cluster.ready().await?.data["status"]["clusterID"].clone();
    ensure!(
        first.is_string() && second.is_string() && first != second,
        "cluster {first} became {second}"
    );
    let new = names(&cluster).await?;
    ensure!(
        new.len() == 3 && new.iter().all(|name| !old.contains(name)),
        "{old:?} became {new:?}"
    );
    let answer = cluster.etcd().await?.get("before", None).await?;
    ensure!(
        answer.kvs().is_empty(),
        "the new cluster has the old one's data"
    );
    // What belonged to the first is collected, and nothing but the second is left.
    crate::change::exactly(context, &cluster, 3).await
}

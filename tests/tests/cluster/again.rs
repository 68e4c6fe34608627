//! The same name a second time: what stays of the first cluster, and what must not.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Cluster, Context, Outcome, condition_is, until, until_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, runtime::watcher};
use serde_json::json;

async fn names(cluster: &Cluster<'_>) -> anyhow::Result<Vec<String>> {
    let members = cluster.members().await?;
    Ok(members.into_iter().map(|member| member.name).collect())
}

/// Names and identities: a claim made anew under an old name would have another.
async fn claims(cluster: &Cluster<'_>) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let claims = cluster.claims().await?;
    Ok(claims
        .into_iter()
        .filter(|claim| claim.metadata.deletion_timestamp.is_none())
        .map(|claim| (claim.name_any(), claim.uid()))
        .collect())
}

pub(crate) async fn retained_claims_outlive_the_resource_and_a_namesake_asks_before_it_leaves_them_alone(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("kept");
    let spec = json!({"size": 1, "storage": {"size": "1Gi", "reclaim": "Retain"}});
    cluster.create(&spec).await?;
    cluster.ready().await?;
    let (old, retained) = (names(&cluster).await?, claims(&cluster).await?);
    ensure!(retained.keys().eq(&old), "{old:?} have {retained:?}");
    cluster.etcd().await?.put("before", "gone", None).await?;
    cluster.delete().await?;
    cluster.gone().await?;
    until_all(
        context.api::<Pod>(),
        watcher::Config::default(),
        "the pods to be gone",
        <[_]>::is_empty,
    )
    .await?;
    let left = claims(&cluster).await?;
    ensure!(left == retained, "{retained:?} became {left:?}");

    cluster.create(&spec).await?;
    let held = until(
        context.clusters(),
        "kept",
        "the namesake to be held",
        |found| found.is_some_and(|found| condition_is(found, "Stalled", "True")),
    )
    .await?
    .context("the namesake")?;
    let said = held.data["status"]["conditions"].to_string();
    ensure!(said.contains("ClaimsRetained"), "{said}");
    let afresh = "etcd.database.coreos.com/start-afresh=yes";
    context
        .kubectl(&["annotate", "etcdcluster", "kept", afresh])
        .await?
        .ok()?;
    cluster.ready().await?;
    let new = names(&cluster).await?;
    ensure!(
        new.len() == 1 && !old.contains(&new[0]),
        "{old:?} became {new:?}"
    );
    let answer = cluster.etcd().await?.get("before", None).await?;
    ensure!(
        answer.kvs().is_empty(),
        "the namesake has the old one's data"
    );
    let mut both = claims(&cluster).await?;
    let own = both.remove(&new[0]);
    ensure!(
        own.is_some() && both == retained,
        "{retained:?} became {both:?}"
    );
    Ok(())
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

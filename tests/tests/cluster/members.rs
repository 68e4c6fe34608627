//! Members that go and come back. Traffic runs all the while, and its history is judged at the end.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Cluster, Context, Outcome, history::Traffic, until};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, Preconditions},
};
use serde_json::json;

use crate::order;

/// Deletes the pod and waits until one with the same name and another identity is ready.
async fn delete_and_await_return(context: &Context, pod: &Pod) -> Outcome {
    let (name, old) = (pod.name_any(), pod.uid());
    let this_one = DeleteParams {
        preconditions: Some(Preconditions {
            uid: old.clone(),
            ..Preconditions::default()
        }),
        ..DeleteParams::default()
    };
    context.api::<Pod>().delete(&name, &this_one).await?;
    until(
        context.api::<Pod>(),
        &name,
        "the pod to come back ready",
        |pod| pod.is_some_and(|pod| pod.uid() != old && order::ready(pod)),
    )
    .await?;
    Ok(())
}

/// Volumes by claim: a claim made anew under the old name would have another.
pub(crate) async fn volumes(
    cluster: &Cluster<'_>,
) -> anyhow::Result<Vec<(String, Option<String>)>> {
    let claims = cluster.claims().await?;
    Ok(claims
        .into_iter()
        .map(|claim| {
            (
                claim.name_any(),
                claim.spec.and_then(|spec| spec.volume_name),
            )
        })
        .collect())
}

pub(crate) async fn a_deleted_pod_comes_back_on_its_claim(context: &Context) -> Outcome {
    let cluster = context.cluster("lose-one");
    cluster.create(&json!({})).await?;
    cluster.ready().await?;
    let (members, claims) = (cluster.members().await?, volumes(&cluster).await?);
    cluster.etcd().await?.put("before", "kept", None).await?;
    let traffic = Traffic::start(&cluster).await?;

    // The leader: the hardest of the three to lose.
    let leader = cluster.get().await?.data["status"]["leader"]
        .as_str()
        .context("a leader is named")?
        .to_owned();
    let pod = context.api::<Pod>().get(&leader).await?;
    delete_and_await_return(context, &pod).await?;
    cluster.ready().await?;
    traffic.goes_on().await?;
    traffic.stop().await?;

    ensure!(
        cluster.members().await? == members,
        "the member list changed from {members:?}"
    );
    ensure!(
        volumes(&cluster).await? == claims,
        "the claims changed from {claims:?}"
    );
    let back = context.api::<Pod>().get(&leader).await?;
    let answer = cluster.etcd_of(&back).await?.get("before", None).await?;
    ensure!(
        answer
            .kvs()
            .first()
            .is_some_and(|entry| entry.value() == b"kept"),
        "the data did not come back"
    );
    let own = members
        .iter()
        .find(|member| member.name == leader)
        .context("the leader is a member")?;
    let id = answer
        .header()
        .context("etcd says who answers")?
        .member_id();
    ensure!(
        id == own.id,
        "{leader} answers as {id:x}, not as {:x}",
        own.id
    );
    Ok(())
}

pub(crate) async fn killing_every_pod_loses_nothing(context: &Context) -> Outcome {
    let cluster = context.cluster("lose-all");
    cluster.create(&json!({})).await?;
    let before = cluster.ready().await?.data["status"]["clusterID"].clone();
    let (members, claims) = (cluster.members().await?, volumes(&cluster).await?);
    let traffic = Traffic::start(&cluster).await?;

    let pods = cluster.pods().await?;
    ensure!(pods.len() == 3, "{} pods", pods.len());
    futures::future::try_join_all(pods.iter().map(|pod| delete_and_await_return(context, pod)))
        .await?;
    cluster.ready().await?;
    traffic.goes_on().await?;
    traffic.stop().await?;

    ensure!(
        cluster.members().await? == members,
        "the member list changed from {members:?}"
    );
    ensure!(
        volumes(&cluster).await? == claims,
        "the claims changed from {claims:?}"
    );
    let after = cluster.get().await?.data["status"]["clusterID"].clone();
    ensure!(
        before == after && after.is_string(),
        "the cluster ID went from {before} to {after}"
    );
    Ok(())
}

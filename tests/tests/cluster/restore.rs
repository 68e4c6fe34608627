//! The worst day: a majority lost for good, and what brings the data back.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Cluster, Context, Outcome, condition_is, until};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::json;

const RECOVER: &str = "etcd.database.coreos.com/recover-from-survivor";

/// Loses two of three members for good, pods and claims, and says who is left. The operator's hand is held meanwhile: it would
/// replace the first before the second is gone.
async fn lose_the_majority(context: &Context, cluster: &Cluster<'_>) -> anyhow::Result<String> {
    cluster.change(&json!({"paused": true})).await?;
    until(
        context.clusters(),
        cluster.name(),
        "the controller to have seen that it is paused",
        |found| {
            found.is_some_and(|found| {
                found.data["status"]["observedGeneration"].as_i64() == found.metadata.generation
            })
        },
    )
    .await?;
    let mut names: Vec<String> = cluster
        .pods()
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    let survivor = names.pop().context("three members")?;
    ensure!(names.len() == 2, "{names:?} and {survivor}");
    for name in &names {
        let claims: Api<PersistentVolumeClaim> = context.api();
        claims.delete(name, &DeleteParams::default()).await?;
        let pods: Api<Pod> = context.api();
        pods.delete(name, &DeleteParams::default()).await?;
    }
    for name in &names {
        let claims: Api<PersistentVolumeClaim> = context.api();
        until(claims, name, "the claim to be gone", |found| {
            found.is_none()
        })
        .await?;
        let pods: Api<Pod> = context.api();
        until(pods, name, "the pod to be gone", |found| found.is_none()).await?;
    }
    cluster.change(&json!({"paused": false})).await?;
    Ok(survivor)
}

fn stalled(cluster: &DynamicObject) -> Option<&str> {
    let conditions = cluster.data["status"]["conditions"].as_array()?;
    let stalled = conditions.iter().find(|one| one["type"] == "Stalled")?;
    stalled["message"].as_str()
}

async fn ask_for_recovery(
    context: &Context,
    cluster: &Cluster<'_>,
    id: &str,
) -> kube::Result<DynamicObject> {
    let request = json!({"metadata": {"annotations": {RECOVER: id}}});
    context
        .clusters()
        .patch(
            cluster.name(),
            &PatchParams::default(),
            &Patch::Merge(&request),
        )
        .await
}

pub(crate) async fn a_majority_lost_for_good_is_told_of_and_the_survivor_brings_the_data_back(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("worst");
    cluster.create(&json!({})).await?;
    let id = cluster.ready().await?.data["status"]["clusterID"]
        .as_str()
        .context("a cluster ID")?
        .to_owned();
    let mut etcd = cluster.etcd().await?;
    for number in 0..50 {
        etcd.put(format!("key-{number}"), format!("value-{number}"), None)
            .await?;
    }
    let refused = ask_for_recovery(context, &cluster, &id).await;
    ensure!(
        refused.is_err_and(|error| error.to_string().contains("while a quorum serves")),
        "a recovery was let in although a quorum serves"
    );

    let survivor = lose_the_majority(context, &cluster).await?;
    let held = until(
        context.clusters(),
        cluster.name(),
        "the controller to say that the quorum is lost for good",
        |found| {
            found.is_some_and(|found| {
                condition_is(found, "Stalled", "True")
                    && stalled(found).is_some_and(|words| words.contains("for good"))
            })
        },
    )
    .await?
    .context("a held cluster")?;
    let words = stalled(&held).unwrap_or_default().to_owned();
    println!("  {words}");
    for part in [
        "of 3 voters".to_owned(),
        format!("Left: {survivor} at revision 51"),
        format!("{RECOVER}={id}"),
    ] {
        ensure!(words.contains(&part), "`{part}` is not in `{words}`");
    }
    let refused = ask_for_recovery(context, &cluster, "1234").await;
    ensure!(
        refused.is_err_and(|error| error.to_string().contains(&format!("this one is {id}"))),
        "a recovery of another cluster was let in"
    );

    ask_for_recovery(context, &cluster, &id).await?;
    let whole = until(
        context.clusters(),
        cluster.name(),
        "the cluster to be whole again",
        |found| {
            found.is_some_and(|found| {
                condition_is(found, "Ready", "True")
                    && found.data["status"]["recovery"]["finished"].is_string()
            })
        },
    )
    .await?
    .context("a whole cluster")?;
    ensure!(
        whole.data["status"]["clusterID"] == id.as_str(),
        "the cluster ID went from {id} to {}",
        whole.data["status"]["clusterID"]
    );
    let members = cluster.members().await?;
    ensure!(
        members.len() == 3 && members.iter().any(|member| member.name == survivor),
        "{members:?} after a recovery from {survivor}"
    );
    for pod in cluster.pods().await? {
        let forced = pod
            .spec
            .iter()
            .flat_map(|spec| &spec.containers)
            .flat_map(|container| container.args.iter().flatten())
            .any(|argument| argument.starts_with("--force-new-cluster"));
        ensure!(!forced, "{} still runs with the flag", pod.name_any());
        let mut etcd = cluster.etcd_of(&pod).await?;
        for number in 0..50 {
            let answer = etcd.get(format!("key-{number}"), None).await?;
            let value = format!("value-{number}");
            ensure!(
                answer
                    .kvs()
                    .first()
                    .is_some_and(|entry| entry.value() == value.as_bytes()),
                "{} has lost key-{number}",
                pod.name_any()
            );
        }
    }
    Ok(())
}

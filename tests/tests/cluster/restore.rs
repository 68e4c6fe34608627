//! The worst day: a majority lost for good, and what brings the data back. And backups that become clusters again.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Cluster, Context, GROUP, Outcome, S3Server, condition_is, until};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};

use crate::backup;

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

fn restores(context: &Context) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1beta2", "EtcdRestore");
    Api::namespaced_with(
        context.client(),
        context.namespace(),
        &ApiResource::from_gvk_with_plural(&kind, "etcdrestores"),
    )
}

/// Creates an EtcdRestore and waits until it has ended, one way or the other.
async fn restore(context: &Context, name: &str, spec: Value) -> anyhow::Result<Value> {
    let object = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdRestore",
        "metadata": {"name": name},
        "spec": spec,
    }))?;
    restores(context)
        .create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("creating EtcdRestore {name}"))?;
    let ended = until(restores(context), name, "the restore to end", |seen| {
        seen.is_some_and(|seen| {
            let phase = seen.data["status"]["phase"].as_str();
            matches!(phase, Some("Succeeded" | "Failed"))
        })
    })
    .await?;
    Ok(ended.context("the restore exists")?.data["status"].clone())
}

/// Every member has `key`, or none has, and all hash alike.
async fn all_have(cluster: &Cluster<'_>, key: &str, there: bool) -> Outcome {
    let mut hashes = Vec::new();
    for pod in cluster.pods().await? {
        let mut etcd = cluster.etcd_of(&pod).await?;
        let found = !etcd.get(key, None).await?.kvs().is_empty();
        ensure!(found == there, "{}: {key} there: {found}", pod.name_any());
        hashes.push(etcd.hash_kv(0).await?.hash());
    }
    ensure!(
        hashes.windows(2).all(|pair| pair[0] == pair[1]),
        "members hash {hashes:?}"
    );
    Ok(())
}

pub(crate) async fn a_backup_becomes_a_new_cluster_and_takes_an_old_one_back_in_place(
    context: &Context,
) -> Outcome {
    let store = S3Server::start(context).await?;
    let first = context.cluster("first");
    first.create(&json!({"size": 1})).await?;
    let old_id = first.ready().await?.data["status"]["clusterID"].clone();
    first.etcd().await?.put("before", "kept", None).await?;
    let spec = json!({"clusterName": "first", "s3": store.s3("first.backup")});
    backup::create(context, "nightly", spec).await?;
    let saved = backup::status(context, "nightly", "the backup to be good", backup::good).await?;
    first.etcd().await?.put("after", "gone", None).await?;

    let spec = json!({
        "backupName": "nightly",
        "newCluster": {"name": "second", "spec": {"size": 3}},
    });
    let made = restore(context, "into-new", spec).await?;
    ensure!(made["succeeded"] == true, "{made:#}");
    ensure!(made["etcdRevision"] == saved["etcdRevision"], "{made:#}");
    let second = context.cluster("second");
    second.ready().await?;
    ensure!(second.pods().await?.len() == 3, "not three members");
    all_have(&second, "before", true).await?;
    all_have(&second, "after", false).await?;
    // A pod that is made anew needs its volume and no store.
    store.down().await?;
    let pods: Api<Pod> = context.api();
    let lost = second.pods().await?.swap_remove(0);
    pods.delete(&lost.name_any(), &DeleteParams::default())
        .await?;
    until(pods, &lost.name_any(), "the pod to be back", |found| {
        found.is_some_and(|found| found.uid() != lost.uid())
    })
    .await?;
    second.ready().await?;
    store.up().await?;

    let claims = first.claims().await?;
    let spec = json!({"backupName": "nightly", "etcdCluster": {"name": "first"}});
    let back = restore(context, "in-place", spec).await?;
    ensure!(back["succeeded"] == true, "{back:#}");
    let now = first.ready().await?;
    ensure!(
        now.data["status"]["clusterID"] != old_id,
        "the same cluster"
    );
    all_have(&first, "before", true).await?;
    all_have(&first, "after", false).await?;
    for claim in claims {
        until(
            context.api::<PersistentVolumeClaim>(),
            &claim.name_any(),
            "the former claim to go",
            |found| found.is_none(),
        )
        .await?;
    }
    Ok(())
}

pub(crate) async fn a_backup_that_is_not_sound_touches_nothing(context: &Context) -> Outcome {
    let store = S3Server::start(context).await?;
    let cluster = context.cluster("kept");
    cluster.create(&json!({"size": 1})).await?;
    let before = cluster.ready().await?;
    cluster.etcd().await?.put("before", "kept", None).await?;
    let pods = cluster.pods().await?;
    let spec = json!({
        "backupStorageType": "S3",
        "s3": store.s3("nowhere.backup"),
        "etcdCluster": {"name": "kept"},
    });
    let object = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdRestore",
        "metadata": {"name": "missing"},
        "spec": spec,
    }))?;
    restores(context)
        .create(&PostParams::default(), &object)
        .await?;
    until(
        restores(context),
        "missing",
        "the restore to say that there is no such backup",
        |seen| {
            seen.is_some_and(|seen| seen.data["status"].to_string().contains("SnapshotNotFound"))
        },
    )
    .await?;
    let after = cluster.ready().await?;
    ensure!(
        before.data["status"]["clusterID"] == after.data["status"]["clusterID"],
        "the cluster was touched"
    );
    let uids = |pods: &[Pod]| pods.iter().map(ResourceExt::uid).collect::<Vec<_>>();
    ensure!(
        uids(&pods) == uids(&cluster.pods().await?),
        "its pod was touched"
    );
    all_have(&cluster, "before", true).await
}

//! The worst day: a majority lost for good, and the two ways that bring the data back.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Cluster, Context, Outcome, S3Server, condition_is, until};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    backup,
    restore::{all_have, ended},
};

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

/// What the cluster says once it knows that the quorum is lost for good.
async fn last_words(context: &Context, cluster: &Cluster<'_>) -> anyhow::Result<String> {
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
    Ok(words)
}

/// The runs of the backup that were asked for before a step that is described so.
async fn runs_before(context: &Context, step: &str) -> anyhow::Result<usize> {
    let status = backup::status(context, "nightly", "its status", |_| true).await?;
    let history = status["history"].as_array().cloned().unwrap_or_default();
    Ok(history
        .iter()
        .filter(|run| run["request"].as_str().is_some_and(|it| it.contains(step)))
        .filter(|run| run["result"] == "Succeeded")
        .count())
}

async fn keys_are_there(cluster: &Cluster<'_>) -> Outcome {
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

fn id_of(cluster: &DynamicObject) -> anyhow::Result<String> {
    let id = cluster.data["status"]["clusterID"].as_str();
    Ok(id.context("a cluster ID")?.to_owned())
}

/// The manifest in the command that the cluster told.
fn told_restore(words: &str) -> anyhow::Result<Value> {
    let (_, rest) = words.split_once("echo '").context("a command")?;
    let (manifest, rest) = rest.split_once('\'').context("its end")?;
    ensure!(rest.contains("create -f -"), "{words}");
    Ok(serde_json::from_str(manifest)?)
}

pub(crate) async fn a_majority_lost_for_good_is_told_of_and_survivor_and_backup_bring_the_data_back(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("worst");
    let relies = json!({"backup": {"backupName": "nightly"}});
    let (store, _) = futures::try_join!(S3Server::start(context), cluster.create(&relies))?;
    let id = id_of(&cluster.ready().await?)?;
    let mut etcd = cluster.etcd().await?;
    for number in 0..50 {
        etcd.put(format!("key-{number}"), format!("value-{number}"), None)
            .await?;
    }
    let spec = json!({"clusterName": "worst", "s3": store.s3("worst.backup")});
    backup::create(context, "nightly", spec).await?;
    backup::status(context, "nightly", "the backup to be good", backup::good).await?;
    etcd.put("late", "only members know it", None).await?;
    let refused = ask_for_recovery(context, &cluster, &id).await;
    ensure!(
        refused.is_err_and(|error| error.to_string().contains("while a quorum serves")),
        "a recovery was let in although a quorum serves"
    );
    let recover = |id: &str| {
        json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
            "metadata": {"name": "recover"},
            "spec": {"backupName": "nightly", "etcdCluster": {"name": "worst", "clusterID": id}},
        })
    };
    let refused = context.kubectl_with(&["create"], &recover(&id)).await?;
    let refused = refused.refused()?;
    ensure!(refused.contains("while a quorum serves"), "{refused}");

    let survivor = lose_the_majority(context, &cluster).await?;
    let words = last_words(context, &cluster).await?;
    for part in [
        "of 3 voters".to_owned(),
        format!("Left: {survivor} at revision 52"),
        format!("{RECOVER}={id}"),
        "the last good backup (nightly, of revision 51".to_owned(),
    ] {
        ensure!(words.contains(&part), "`{part}` is not in `{words}`");
    }
    let told = told_restore(&words)?;
    ensure!(told["spec"] == recover(&id)["spec"], "{told}");
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
    ensure!(id_of(&whole)? == id, "the cluster ID was {id}");
    ensure!(
        runs_before(context, "is recovered from").await? == 1,
        "no backup came before it"
    );
    let members = cluster.members().await?;
    ensure!(
        members.len() == 3 && members.iter().any(|member| member.name == survivor),
        "{members:?} after a recovery from {survivor}"
    );
    keys_are_there(&cluster).await?;
    all_have(&cluster, "late", true).await?;

    // Once more, and this time what was saved counts: the survivor, as it was before it went on alone.
    let forget = json!({"metadata": {"annotations": {RECOVER: null}}});
    context
        .clusters()
        .patch("worst", &PatchParams::default(), &Patch::Merge(&forget))
        .await?;
    cluster.etcd().await?.put("later", "lost", None).await?;
    lose_the_majority(context, &cluster).await?;
    let words = last_words(context, &cluster).await?;
    let told = told_restore(&words)?;
    let name = told["metadata"]["name"].as_str().context("a name")?;
    context.kubectl_with(&["create"], &told).await?.ok()?;
    let status = ended(context, name).await?;
    ensure!(status["succeeded"] == true, "{status:#}");
    let now = id_of(&cluster.ready().await?)?;
    ensure!(now != id, "the same cluster");
    ensure!(
        runs_before(context, "is restored in place").await? == 1,
        "no backup came before it"
    );
    keys_are_there(&cluster).await?;
    all_have(&cluster, "late", true).await?;
    all_have(&cluster, "later", false).await?;
    // Done once: the cluster is another now.
    let again = context.kubectl_with(&["create"], &recover(&id)).await?;
    let again = again.refused()?;
    ensure!(again.contains(&format!("this one is {now}")), "{again}");
    Ok(())
}

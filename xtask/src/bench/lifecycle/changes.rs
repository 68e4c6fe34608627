//! Times of what happens in a cluster's life, each from the request to Ready again, and a plain StatefulSet of three in the same
//! rounds. Nobody else uses the cluster meanwhile.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::{
    creation::{
        Baseline, NAME, NAMESPACE, etcd_cluster, etcd_clusters, is_ready, make_namespace, manifest,
        nothing_left, remove_namespace, until, until_gone,
    },
    table::{Row, Table},
};
use crate::progress;

const SIZES: [usize; 4] = [1, 3, 5, 7];
const OLD: &str = "3.6.10";
const NEW: &str = "3.6.16";

/// What is promised, as a multiple of the StatefulSet's time.
fn promise(size: usize) -> Option<f64> {
    match size {
        3 => Some(1.5),
        7 => Some(2.5),
        _ => None,
    }
}

#[derive(Debug, Default)]
struct Changes {
    upgrade: Vec<f64>,
    grow: Vec<f64>,
    shrink: Vec<f64>,
    replace: Vec<f64>,
}

pub(super) async fn measure(client: &Client, rounds: usize, table: &mut Table) -> Result<()> {
    make_namespace(client, NAMESPACE).await?;
    // One of each beforehand, not counted: it warms the nodes' caches, and gives the baseline its member to copy.
    let (_, member) = etcd_cluster(client, 3).await?;
    let baseline = Baseline::like(&member)?;
    baseline.time(client).await?;
    let mut creations = SIZES.map(|size| (size, Vec::new()));
    let mut stateful_set = Vec::new();
    let mut changes = Changes::default();
    for round in 1..=rounds {
        stateful_set.push(baseline.time(client).await?);
        for (size, seconds) in &mut creations {
            seconds.push(etcd_cluster(client, *size).await?.0);
        }
        once(client, &mut changes).await?;
        progress::say(&format!("round {round} of {rounds} of changes done"));
    }
    remove_namespace(client, NAMESPACE).await?;

    for (size, seconds) in creations {
        let figure = format!("create, {size} members");
        table.push(match promise(size) {
            Some(promise) => Row::beside(
                &figure,
                "s",
                seconds,
                ("StatefulSet of 3", stateful_set.clone()),
                promise,
            ),
            None => Row::told(figure, "s", seconds),
        });
    }
    for (figure, seconds) in [
        ("grow, 3 to 5 members", changes.grow),
        ("shrink, 5 to 3 members", changes.shrink),
        ("replace a member whose claim is gone", changes.replace),
        ("upgrade 3 members, 3.6.10 to 3.6.16", changes.upgrade),
    ] {
        table.push(Row::told(figure.to_owned(), "s", seconds));
    }
    Ok(())
}

async fn once(client: &Client, changes: &mut Changes) -> Result<()> {
    let clusters = etcd_clusters(client, NAMESPACE);
    let object = manifest(NAME, &json!({"size": 3, "version": OLD}))?;
    clusters.create(&PostParams::default(), &object).await?;
    until(clusters.clone(), "the EtcdCluster to be Ready", is_ready).await?;
    changes
        .upgrade
        .push(change(&clusters, &json!({"version": NEW})).await?);
    changes
        .grow
        .push(change(&clusters, &json!({"size": 5})).await?);
    changes
        .shrink
        .push(change(&clusters, &json!({"size": 3})).await?);
    changes.replace.push(replace(client, &clusters).await?);
    clusters.delete(NAME, &DeleteParams::default()).await?;
    until_gone(clusters, NAME).await?;
    nothing_left(client).await
}

async fn change(clusters: &Api<DynamicObject>, spec: &Value) -> Result<f64> {
    let started = Instant::now();
    clusters
        .patch(
            NAME,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": spec})),
        )
        .await?;
    until(clusters.clone(), "the change to be made", is_ready).await?;
    Ok(started.elapsed().as_secs_f64())
}

/// From the loss of claim and pod until a member of another name is a ready part of the cluster.
async fn replace(client: &Client, clusters: &Api<DynamicObject>) -> Result<f64> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let of_cluster = ListParams::default().labels(&format!("etcd_cluster={NAME}"));
    let lost = pods
        .list(&of_cluster)
        .await?
        .items
        .first()
        .map(ResourceExt::name_any)
        .context("a Ready cluster has pods")?;
    let at_once = DeleteParams::default();
    let started = Instant::now();
    claims.delete(&lost, &at_once).await?;
    pods.delete(&lost, &at_once).await?;
    until(clusters.clone(), "the member to be replaced", |cluster| {
        let members = cluster.data["status"]["members"]["ready"].as_array();
        is_ready(cluster)
            && members.is_some_and(|members| {
                members.len() == 3 && members.iter().all(|member| *member != json!(lost))
            })
    })
    .await?;
    Ok(started.elapsed().as_secs_f64())
}

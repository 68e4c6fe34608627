//! A paused cluster: edits are taken, nothing is done about them, and afterwards they are.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, OPERATOR_NAMESPACE, Outcome, until};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::change::exactly;

const AUTOSCALER: &str = "--as=system:serviceaccount:kube-system:horizontal-pod-autoscaler";

fn held(cluster: &DynamicObject) -> bool {
    let conditions = cluster.data["status"]["conditions"].as_array();
    cluster.data["status"]["observedGeneration"].as_i64() == cluster.metadata.generation
        && conditions.is_some_and(|all| all.iter().any(|one| one["reason"] == "Paused"))
}

pub(crate) async fn a_paused_cluster_does_nothing_until_it_may_and_an_autoscaler_gets_an_odd_size(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("paused");
    cluster.create(&json!({"size": 1})).await?;
    cluster.ready().await?;
    cluster.change(&json!({"paused": true})).await?;
    cluster.ready().await?;

    // What a HorizontalPodAutoscaler does: it replaces the scale, and knows nothing of odd sizes.
    let mut requests = context.requests()?;
    let mut scale: Value = serde_json::to_value(context.clusters().get_scale("paused").await?)?;
    scale["spec"]["replicas"] = json!(2);
    // Whatever the operator writes into the status meanwhile, this is not about it.
    scale["metadata"]["resourceVersion"].take();
    let path = format!(
        "/apis/etcd.database.coreos.com/v1beta2/namespaces/{}/etcdclusters/paused/scale",
        context.namespace()
    );
    context
        .kubectl_with(&["replace", AUTOSCALER, "--raw", &path], &scale)
        .await?
        .ok()?;
    let paused = until(
        context.clusters(),
        "paused",
        "the cluster to say that it is paused",
        |found| found.is_some_and(|found| found.data["spec"]["size"] != 1 && held(found)),
    )
    .await?
    .context("the cluster is there")?;
    ensure!(
        paused.data["spec"]["size"] == 3,
        "2 is rounded up to 3: {:#}",
        paused.data["spec"]
    );
    exactly(context, &cluster, 1).await?;
    let operator = format!("system:serviceaccount:{OPERATOR_NAMESPACE}:");
    let written: Vec<String> = requests
        .since()?
        .into_iter()
        .filter(|request| request.namespace == context.namespace() && request.writes())
        .filter(|request| request.user.starts_with(&operator))
        .filter(|request| request.resource != "etcdclusters/status" && request.resource != "events")
        .map(|request| request.to_string())
        .collect();
    ensure!(
        written.is_empty(),
        "written while paused:\n{}",
        written.join("\n")
    );

    cluster.change(&json!({"paused": false})).await?;
    cluster.ready().await?;
    exactly(context, &cluster, 3).await
}

//! Nodes that lose their power and nodes that are drained. Traffic runs all the while.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    Cluster, Context, OPERATOR_NAMESPACE, Outcome, Power, history::Traffic, until, until_all,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::ListParams, runtime::watcher};
use serde_json::json;

use crate::{
    change::{exactly, tell},
    members::volumes,
    order,
    processes::{IMPATIENT, fresh_voters},
};

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// Nodes that carry what the cluster has only one of. A cluster that is to survive any node has two.
async fn indispensable(context: &Context) -> anyhow::Result<BTreeSet<String>> {
    let mut nodes = BTreeSet::new();
    for (namespace, labels) in [
        (OPERATOR_NAMESPACE, "app.kubernetes.io/component=controller"),
        ("kube-system", "k8s-app=kube-dns"),
    ] {
        let pods: Api<Pod> = Api::namespaced(context.client(), namespace);
        let pods = pods.list(&ListParams::default().labels(labels)).await?;
        nodes.extend(pods.items.iter().filter_map(node_of));
    }
    Ok(nodes)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) async fn a_member_on_a_dead_node_is_replaced_and_its_remains_go_when_the_node_returns(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("outage");
    cluster
        .create(&json!({"recovery": {"unreachableAfter": IMPATIENT}}))
        .await?;
    cluster.ready().await?;
    let before = cluster.members().await?;
    let needed = indispensable(context).await?;
    let (lost, node) = cluster
        .pods()
        .await?
        .iter()
        .find_map(|pod| {
            let node = node_of(pod).filter(|node| !needed.contains(node))?;
            Some((pod.name_any(), node))
        })
        .with_context(|| format!("a member beside {needed:?}"))?;
    let lost = before
        .iter()
        .find(|member| member.name == lost)
        .context("a pod is a member's")?;
    let traffic = Traffic::start(&cluster).await?;

    context.power(Power::Stop, &node).await?;
    let healed = async {
        traffic.goes_on().await?;
        fresh_voters(&cluster, &before, &[lost]).await?;
        cluster.ready().await?;
        traffic.goes_on().await
    }
    .await;
    // Whatever came of it: the other scenarios need the node.
    context.power(Power::Start, &node).await?;
    healed?;
    until(
        Api::<Node>::all(context.client()),
        &node,
        "the node to be back",
        |node| node.is_some_and(is_ready),
    )
    .await?;
    exactly(context, &cluster, 3).await?;
    cluster.ready().await?;
    traffic.goes_on().await?;
    tell(
        &format!("{node} stopped and started"),
        &traffic.stop().await?,
    );
    Ok(())
}

pub(crate) async fn draining_each_node_in_turn_never_costs_the_quorum(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("drained");
    cluster.create(&json!({})).await?;
    cluster.ready().await?;
    let (members, claims) = (cluster.members().await?, volumes(&cluster).await?);
    let traffic = Traffic::start(&cluster).await?;
    let nodes: Api<Node> = Api::all(context.client());
    for node in nodes.list(&ListParams::default()).await? {
        let node = node.name_any();
        let drained = drain(context, &cluster, &node, &traffic).await;
        context.kubectl(&["uncordon", &node]).await?.ok()?;
        drained.with_context(|| format!("draining {node}"))?;
        until_all(
            context.api::<Pod>(),
            watcher::Config::default(),
            "every member to be back",
            |pods| pods.len() == 3 && pods.iter().all(order::ready),
        )
        .await?;
        cluster.ready().await?;
        traffic.goes_on().await?;
    }
    tell("each node drained in turn", &traffic.stop().await?);
    ensure!(
        cluster.members().await? == members && volumes(&cluster).await? == claims,
        "members {members:?} or claims {claims:?} changed"
    );
    exactly(context, &cluster, 3).await
}

/// While one member is away, nobody gets a second one out.
async fn drain(context: &Context, cluster: &Cluster<'_>, node: &str, traffic: &Traffic) -> Outcome {
    let here: Vec<String> = cluster
        .pods()
        .await?
        .iter()
        .filter(|pod| node_of(pod).as_deref() == Some(node))
        .map(ResourceExt::name_any)
        .collect();
    context
        .kubectl(&[
            "drain",
            node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=150s",
        ])
        .await?
        .ok()?;
    traffic.goes_on().await?;
    if here.is_empty() {
        return Ok(());
    }
    let other = cluster
        .pods()
        .await?
        .into_iter()
        .find(|pod| !here.contains(&pod.name_any()) && order::ready(pod))
        .context("a member that stayed")?
        .name_any();
    // With kubectl, because our own client takes "too many requests" for a reason to try for minutes.
    let path = format!(
        "/api/v1/namespaces/{}/pods/{other}/eviction",
        context.namespace()
    );
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": other}});
    let refused = context
        .kubectl_with(&["create", "--raw", &path], &eviction)
        .await?
        .refused()
        .with_context(|| format!("{here:?} away, and {other} was evicted too"))?;
    ensure!(
        refused.contains("disruption budget"),
        "who refused? {refused}"
    );
    Ok(())
}

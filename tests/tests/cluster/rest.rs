//! A cluster at rest: nobody writes.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use etcd_operator_tests::{Cluster, Context, OPERATOR_NAMESPACE, Outcome, until_answer};
use serde_json::json;

/// The controller renews its lease every few seconds: that many renewals are time passed *and* proof that it lives.
const RENEWALS: usize = 5;

/// (name of the member, revision, raft index): the raft index moves with every proposal, also one that stores nothing.
async fn positions(cluster: &Cluster<'_>) -> anyhow::Result<Vec<(u64, i64, u64)>> {
    let mut positions = Vec::new();
    for pod in cluster.pods().await? {
        let status = cluster.etcd_of(&pod).await?.status().await?;
        let header = status.header().context("etcd says who answers")?;
        positions.push((header.member_id(), header.revision(), status.raft_index()));
    }
    Ok(positions)
}

pub(crate) async fn at_rest_nothing_is_written(context: &Context) -> Outcome {
    let cluster = context.cluster("still");
    cluster.create(&json!({})).await?;
    cluster.ready().await?;
    settled(context, &cluster).await?;
    let before = cluster.get().await?;
    let etcd_before = positions(&cluster).await?;

    let written = renewals(context, RENEWALS).await?;
    ensure!(
        written.is_empty(),
        "written at rest:\n{}",
        written.join("\n")
    );
    let after = cluster.get().await?;
    ensure!(
        before.metadata.resource_version == after.metadata.resource_version,
        "the resource changed"
    );
    let etcd_after = positions(&cluster).await?;
    ensure!(
        etcd_before == etcd_after,
        "etcd was written to: {etcd_before:?} became {etcd_after:?}"
    );
    Ok(())
}

/// After its start etcd writes by itself for a while (the cluster's version, the storage's version), and the operator's
/// status follows: no rest yet. Rest must come, though, and then stay.
async fn settled(context: &Context, cluster: &Cluster<'_>) -> Outcome {
    for _ in 0..10 {
        let before = positions(cluster).await?;
        let written = renewals(context, 2).await?;
        if written.is_empty() && positions(cluster).await? == before {
            return Ok(());
        }
    }
    bail!("neither etcd nor the operator came to rest")
}

/// Waits for `wanted` renewals of the controller's lease, and returns what else the operator wrote: in this namespace, in
/// its own, or without any. Other namespaces are other scenarios' business.
async fn renewals(context: &Context, wanted: usize) -> anyhow::Result<Vec<String>> {
    let operator = format!("system:serviceaccount:{OPERATOR_NAMESPACE}:");
    let requests = std::sync::Mutex::new((context.requests()?, 0, Vec::new()));
    until_answer(
        "the controller to renew its lease",
        Duration::from_millis(500),
        || async {
            let mut seen = requests
                .lock()
                .map_err(|_| anyhow::anyhow!("a reader of the audit log panicked"))?;
            for request in seen.0.since()? {
                if !request.user.starts_with(&operator) || !request.writes() {
                    continue;
                }
                if request.resource == "leases" {
                    seen.1 += 1;
                } else if [context.namespace(), OPERATOR_NAMESPACE, ""]
                    .contains(&request.namespace.as_str())
                {
                    seen.2.push(request.to_string());
                }
            }
            Ok((seen.1 >= wanted).then(|| seen.2.clone()))
        },
    )
    .await
}

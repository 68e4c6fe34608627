//! etcd of the CoreOS era: its manifests as they stand, and the way from there to today.

use anyhow::ensure;
use etcd_operator_tests::{Cluster, Context, Outcome, history::Traffic};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::change::{exactly, tell};

/// Every step there is.
const WAY_UP: [&str; 6] = ["3.2.13", "3.3.27", "3.4.31", "3.5.35", "3.6.16", "3.7.3"];

/// Every member serves this version by its own word, and the status says so.
async fn runs(cluster: &Cluster<'_>, version: &str) -> Outcome {
    let status = cluster.get().await?.data["status"].clone();
    ensure!(status["currentVersion"] == version, "{status:#}");
    for pod in cluster.pods().await? {
        let served = cluster.etcd_of(&pod).await?.status().await?;
        ensure!(
            served.version() == version,
            "{} serves {} instead of {version}",
            pod.name_any(),
            served.version()
        );
    }
    Ok(())
}

/// The two of the old tutorials; not a letter is changed.
pub(crate) async fn coreos_manifests_run_as_they_stand(context: &Context) -> Outcome {
    let first: Value = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "example-etcd-cluster"},
        "spec": {"size": 1, "version": "3.1.10"},
    });
    let cluster = context.cluster("example-etcd-cluster");
    let said = context.kubectl_with(&["apply"], &first).await?.ok()?;
    cluster.ready().await?;
    runs(&cluster, "3.1.10").await?;
    cluster.etcd().await?.put("greeting", "hello", None).await?;
    ensure!(!said.is_empty(), "kubectl says nothing");
    cluster.delete().await?;
    cluster.gone().await?;

    let mut second = first;
    second["spec"] = json!({"size": 3, "version": "3.2.13"});
    context.kubectl_with(&["apply"], &second).await?.ok()?;
    cluster.ready().await?;
    runs(&cluster, "3.2.13").await?;
    cluster.etcd().await?.put("greeting", "hello", None).await?;
    exactly(context, &cluster, 3).await?;
    // How far it is from a supported version is told, and a step too many refused with the next one named.
    let story = context
        .kubectl(&["describe", "etcdcluster", "example-etcd-cluster"])
        .await?
        .ok()?;
    ensure!(story.contains("3.3.27"), "no next step named: {story}");
    let skipping = r#"{"spec":{"version":"3.4.31"}}"#;
    let refused = context
        .kubectl(&[
            "patch",
            "etcd",
            "example-etcd-cluster",
            "--type=merge",
            "-p",
            skipping,
        ])
        .await?
        .refused()?;
    ensure!(
        refused.contains("must not skip a minor: 3.2.13 runs, go to 3.3.27 first"),
        "no next step named: {refused}"
    );
    Ok(())
}

pub(crate) async fn a_cluster_climbs_from_3_1_to_3_7_and_loses_no_write(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("veteran");
    cluster.create(&json!({"version": "3.1.10"})).await?;
    cluster.ready().await?;
    let members = cluster.members().await?;
    let traffic = Traffic::start(&cluster).await?;
    let mut gaps = Vec::new();
    for version in WAY_UP {
        traffic.gap_since_asked();
        cluster.change(&json!({"version": version})).await?;
        cluster.ready().await?;
        traffic.goes_on().await?;
        let gap = traffic.gap_since_asked();
        gaps.push(format!("{version} {:.2} s", gap.as_secs_f64()));
        runs(&cluster, version).await?;
    }
    println!("  longest gap per step: {}", gaps.join(", "));
    tell("3.1.10 → 3.7.3 in six steps", &traffic.stop().await?);
    ensure!(
        cluster.members().await? == members,
        "the member list changed from {members:?}"
    );
    exactly(context, &cluster, 3).await
}

pub(crate) async fn one_member_of_3_2_becomes_three_and_one_again(context: &Context) -> Outcome {
    let cluster = context.cluster("alone");
    cluster
        .create(&json!({"size": 1, "version": "3.2.13"}))
        .await?;
    cluster.ready().await?;
    let traffic = Traffic::start(&cluster).await?;
    for size in [3, 1] {
        traffic.gap_since_asked();
        cluster.change(&json!({"size": size})).await?;
        cluster.ready().await?;
        exactly(context, &cluster, size).await?;
        traffic.goes_on().await?;
        let gap = traffic.gap_since_asked();
        println!("  3.2.13 to {size}: longest gap {:.2} s", gap.as_secs_f64());
    }
    tell("3.2.13: 1 → 3 → 1 members", &traffic.stop().await?);
    Ok(())
}

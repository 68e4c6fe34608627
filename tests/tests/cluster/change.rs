//! A cluster that changes while it serves: size, version, configuration, volumes. Traffic runs all the while.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    Cluster, Context, Outcome,
    history::{Summary, Traffic},
    until_all, until_answer,
};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{ResourceExt, runtime::watcher};
use serde_json::json;

use crate::order::Restarts;

/// Members, pods and claims: the same names, that many, no learner. What was removed leaves nothing behind.
pub(crate) async fn exactly(context: &Context, cluster: &Cluster<'_>, size: usize) -> Outcome {
    let members = cluster.members().await?;
    ensure!(
        members.len() == size && members.iter().all(|member| !member.learner),
        "{size} voters wanted: {members:?}"
    );
    let names: Vec<String> = members.into_iter().map(|member| member.name).collect();
    until_all(
        context.api::<Pod>(),
        watcher::Config::default(),
        "the pods to be those of the members",
        |pods| pods.iter().map(ResourceExt::name_any).eq(names.clone()),
    )
    .await?;
    until_all(
        context.api::<PersistentVolumeClaim>(),
        watcher::Config::default(),
        "the claims to be those of the members",
        |claims| claims.iter().map(ResourceExt::name_any).eq(names.clone()),
    )
    .await?;
    Ok(())
}

/// Shown with the tests: how long nobody could write is what a person asks first.
pub(crate) fn tell(what: &str, summary: &Summary) {
    println!("  {what}: {summary}");
}

pub(crate) async fn growing_to_seven_and_back_to_one_loses_no_write(context: &Context) -> Outcome {
    let cluster = context.cluster("sizes");
    cluster.create(&json!({"size": 1})).await?;
    let founded = cluster.ready().await?.data["status"]["clusterID"].clone();
    let traffic = Traffic::start(&cluster).await?;
    for size in [3, 5, 7, 3, 1] {
        cluster.change(&json!({"size": size})).await?;
        let ready = cluster.ready().await?;
        ensure!(
            ready.data["status"]["readyMembers"] == size,
            "{:#}",
            ready.data["status"]
        );
        exactly(context, &cluster, size).await?;
        traffic.goes_on().await?;
    }
    tell("1 → 3 → 5 → 7 → 3 → 1 members", &traffic.stop().await?);
    let now = cluster.get().await?.data["status"]["clusterID"].clone();
    ensure!(
        founded.is_string() && founded == now,
        "cluster {founded} became {now}"
    );
    Ok(())
}

pub(crate) async fn sizes_edited_in_mid_flight_lose_no_write(context: &Context) -> Outcome {
    let cluster = context.cluster("restless");
    cluster.create(&json!({"size": 1})).await?;
    cluster.ready().await?;
    let traffic = Traffic::start(&cluster).await?;
    // Each edit comes while the one before is still under way.
    for (size, on_the_way) in [(7, 4), (3, 3), (5, 4), (1, 3)] {
        cluster.change(&json!({"size": size})).await?;
        until_answer(
            "as many voters on the way",
            Duration::from_millis(100),
            || async {
                let voters = cluster.members().await?;
                let voters = voters.iter().filter(|member| !member.learner).count();
                let there = if size > on_the_way {
                    voters >= on_the_way
                } else {
                    voters <= on_the_way
                };
                Ok(there.then_some(()))
            },
        )
        .await?;
    }
    cluster.change(&json!({"size": 3})).await?;
    cluster.ready().await?;
    exactly(context, &cluster, 3).await?;
    traffic.goes_on().await?;
    tell(
        "1 → 7 → 3 → 5 → 1 → 3 members, none of them waited for",
        &traffic.stop().await?,
    );
    Ok(())
}

pub(crate) async fn upgrades_from_3_5_to_3_7_and_back_to_3_6_lose_no_write(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("versions");
    // Few enough writes that what 3.5 logged is still in the log when 3.7 comes, which cannot read it.
    cluster.create(&json!({"version": "3.5.21"})).await?;
    cluster.ready().await?;
    let members = cluster.members().await?;
    let traffic = Traffic::start(&cluster).await?;
    for version in ["3.5.35", "3.6.16", "3.7.3", "3.6.16"] {
        let restarts = Restarts::watched(context, &cluster).await?;
        cluster.change(&json!({"version": version})).await?;
        let ready = cluster.ready().await?;
        ensure!(
            ready.data["status"]["currentVersion"] == version,
            "{:#}",
            ready.data["status"]
        );
        for pod in cluster.pods().await? {
            let served = cluster.etcd_of(&pod).await?.status().await?;
            ensure!(
                served.version() == version,
                "{} serves {} instead of {version}",
                pod.name_any(),
                served.version()
            );
        }
        restarts.each_member_once_and_alone().await?;
        traffic.goes_on().await?;
        if version == "3.5.35" {
            let skipping = r#"{"spec":{"version":"3.7.3"}}"#;
            let refused = context
                .kubectl(&["patch", "etcd", "versions", "--type=merge", "-p", skipping])
                .await?
                .refused()?;
            ensure!(refused.contains("3.6."), "no next step named: {refused}");
        }
    }
    tell(
        "3.5.21 → 3.5.35 → 3.6.16 → 3.7.3 → 3.6.16",
        &traffic.stop().await?,
    );
    ensure!(
        cluster.members().await? == members,
        "the member list changed from {members:?}"
    );
    exactly(context, &cluster, 3).await
}

pub(crate) async fn a_changed_option_rolls_one_member_at_a_time_and_volumes_grow_online(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("options");
    cluster.create(&json!({"storage": {"size": "1Gi"}})).await?;
    cluster.ready().await?;
    let members = cluster.members().await?;
    let traffic = Traffic::start(&cluster).await?;

    let restarts = Restarts::watched(context, &cluster).await?;
    cluster
        .change(&json!({"options": {"quotaBackend": "256Mi"}}))
        .await?;
    cluster.ready().await?;
    restarts.each_member_once_and_alone().await?;
    for pod in cluster.pods().await? {
        let arguments = format!("{:?}", pod.spec.as_ref().map(|spec| &spec.containers));
        ensure!(
            arguments.contains("--quota-backend-bytes=268435456"),
            "{} was not given the new quota: {arguments}",
            pod.name_any()
        );
    }

    let pods = identities(&cluster).await?;
    cluster.change(&json!({"storage": {"size": "2Gi"}})).await?;
    let two = Quantity("2Gi".to_owned());
    until_all(
        context.api::<PersistentVolumeClaim>(),
        watcher::Config::default(),
        "every volume to have 2Gi",
        |claims| {
            claims.len() == 3
                && claims.iter().all(|claim| {
                    let status = claim.status.as_ref();
                    status.and_then(|status| status.capacity.as_ref()?.get("storage")) == Some(&two)
                })
        },
    )
    .await?;
    cluster.ready().await?;
    ensure!(
        identities(&cluster).await? == pods,
        "volumes grow online, but pods were replaced"
    );

    traffic.goes_on().await?;
    tell("a changed option, grown volumes", &traffic.stop().await?);
    ensure!(
        cluster.members().await? == members,
        "the member list changed from {members:?}"
    );
    exactly(context, &cluster, 3).await
}

/// Resources are left out: the local kubelets, which make no cgroups for pods, do not survive the resize of one.
pub(crate) async fn labels_change_without_a_restart(context: &Context) -> Outcome {
    let cluster = context.cluster("in-place");
    cluster
        .create(&json!({"pod": {"labels": {"team": "a", "stage": "test"}}}))
        .await?;
    cluster.ready().await?;
    let pods = identities(&cluster).await?;
    cluster
        .change(&json!({"pod": {"labels": {"team": "b", "stage": null}}}))
        .await?;
    cluster.ready().await?;
    ensure!(
        identities(&cluster).await? == pods,
        "pods were replaced for what can be changed in place"
    );
    for pod in cluster.pods().await? {
        let labels = pod.labels();
        ensure!(
            labels.get("team").is_some_and(|team| team == "b") && !labels.contains_key("stage"),
            "{} has the labels {labels:?}",
            pod.name_any()
        );
        let restarts = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref()?.first())
            .map(|container| container.restart_count);
        ensure!(restarts == Some(0), "{} was restarted", pod.name_any());
    }
    Ok(())
}

async fn identities(cluster: &Cluster<'_>) -> anyhow::Result<Vec<String>> {
    let pods = cluster.pods().await?;
    pods.iter()
        .map(|pod| pod.uid().context("a pod has an identity"))
        .collect()
}

//! etcd processes that are killed and frozen, from outside and without a word. Traffic runs all the while.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    Cluster, Context, Member, Outcome, Process, history::Traffic, until, until_answer,
};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::{
    change::{exactly, tell},
    members::volumes,
    order,
};

/// The shortest that is allowed: members are given up quickly, and the scenarios stay short.
pub(crate) const IMPATIENT: &str = "30s";

pub(crate) async fn leader(cluster: &Cluster<'_>) -> anyhow::Result<Member> {
    let id = Box::pin(cluster.etcd()).await?.status().await?.leader();
    let members = Box::pin(cluster.members()).await?;
    let leader = members.into_iter().find(|member| member.id == id);
    leader.context("the leader is a member")
}

pub(crate) async fn etcd_of(context: &Context, member: &str) -> anyhow::Result<Process> {
    Process::of(&context.api::<Pod>().get(member).await?, "etcd")
}

/// Waits until etcd has as many voters as before and none of the lost. Those who were not lost are still there, as they were.
pub(crate) async fn fresh_voters(
    cluster: &Cluster<'_>,
    before: &[Member],
    lost: &[&Member],
) -> anyhow::Result<Vec<Member>> {
    let after = until_answer(
        "fresh voters in place of the lost ones",
        Duration::from_millis(500),
        || async {
            let members = cluster.members().await?;
            let whole = members.len() == before.len()
                && members
                    .iter()
                    .all(|member| !member.learner && lost.iter().all(|lost| lost.id != member.id));
            Ok(whole.then_some(members))
        },
    )
    .await?;
    for member in before.iter().filter(|member| !lost.contains(member)) {
        ensure!(
            after.contains(member),
            "{member:?} was well, and became {after:?}"
        );
    }
    for member in &after {
        ensure!(
            lost.iter().all(|lost| lost.name != member.name),
            "a name came back: {after:?}"
        );
    }
    Ok(after)
}

/// The lost ones are replaced, all is settled, and nothing is left of them.
pub(crate) async fn replaced(
    context: &Context,
    cluster: &Cluster<'_>,
    before: &[Member],
    lost: &[&Member],
) -> anyhow::Result<Vec<Member>> {
    let after = fresh_voters(cluster, before, lost).await?;
    cluster.ready().await?;
    exactly(context, cluster, before.len()).await?;
    Ok(after)
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

/// Kills the etcd of each of these pods at once, and waits until each is ready again in the same pod.
async fn kill(context: &Context, pods: &[Pod]) -> Outcome {
    let processes: Vec<Process> = pods
        .iter()
        .map(|pod| Process::of(pod, "etcd"))
        .collect::<anyhow::Result<_>>()?;
    for process in processes {
        process.kill()?;
    }
    try_join_all(pods.iter().map(|before| async move {
        until(
            context.api::<Pod>(),
            &before.name_any(),
            "etcd to be started again and ready",
            |pod| {
                pod.is_some_and(|pod| {
                    pod.uid() == before.uid()
                        && restarts(pod) > restarts(before)
                        && order::ready(pod)
                })
            },
        )
        .await
    }))
    .await?;
    Ok(())
}

pub(crate) async fn killed_processes_come_back_one_and_all_at_once(context: &Context) -> Outcome {
    let cluster = context.cluster("killed");
    cluster.create(&json!({})).await?;
    cluster.ready().await?;
    let (members, claims) = (cluster.members().await?, volumes(&cluster).await?);
    let traffic = Traffic::start(&cluster).await?;

    let leader = leader(&cluster).await?;
    kill(context, &[context.api::<Pod>().get(&leader.name).await?]).await?;
    traffic.goes_on().await?;
    kill(context, &cluster.pods().await?).await?;
    cluster.ready().await?;
    traffic.goes_on().await?;
    tell(
        "the leader killed, then all at once",
        &traffic.stop().await?,
    );

    ensure!(
        cluster.members().await? == members && volumes(&cluster).await? == claims,
        "members or claims changed from {members:?}, {claims:?}"
    );
    exactly(context, &cluster, 3).await
}

pub(crate) async fn a_frozen_leader_wakes_up_to_a_new_one_and_a_member_frozen_for_good_is_replaced(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("frozen");
    cluster
        .create(&json!({"recovery": {"unreachableAfter": IMPATIENT}}))
        .await?;
    cluster.ready().await?;
    let members = cluster.members().await?;
    let traffic = Traffic::start(&cluster).await?;

    // It wakes up and still believes to lead: nobody may believe it.
    let old = leader(&cluster).await?;
    let others: Vec<Pod> = cluster
        .pods()
        .await?
        .into_iter()
        .filter(|pod| pod.name_any() != old.name)
        .collect();
    let process = etcd_of(context, &old.name).await?;
    process.freeze()?;
    until_answer("another leader", Duration::from_millis(100), || async {
        let leader = cluster.etcd_of(&others[0]).await?.status().await?.leader();
        Ok((leader != 0 && leader != old.id).then_some(()))
    })
    .await?;
    traffic.goes_on().await?;
    process.thaw()?;
    until(
        context.api::<Pod>(),
        &old.name,
        "the old leader to be ready",
        |pod| pod.is_some_and(order::ready),
    )
    .await?;
    cluster.ready().await?;
    traffic.goes_on().await?;
    ensure!(
        cluster.members().await? == members,
        "a short sleep changed the members from {members:?}"
    );

    let lost = leader(&cluster).await?;
    let process = etcd_of(context, &lost.name).await?;
    process.freeze()?;
    until_answer(
        "the frozen member to be removed",
        Duration::from_millis(200),
        || async {
            let gone = cluster
                .members()
                .await?
                .iter()
                .all(|member| member.id != lost.id);
            Ok(gone.then_some(()))
        },
    )
    .await?;
    // Woken after all, as one who was voted out. It may have been ended meanwhile: that is as good.
    let _ = process.thaw();
    replaced(context, &cluster, &members, &[&lost]).await?;
    traffic.goes_on().await?;
    tell(
        "a leader frozen and woken, another frozen for good",
        &traffic.stop().await?,
    );
    Ok(())
}

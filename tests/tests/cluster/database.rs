//! The database itself: a quota that is used up, data that differ, files that are mostly empty. Traffic runs all the while.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, DeleteOptions, Error,
};
use etcd_operator_tests::{Cluster, Context, Outcome, history::Traffic, until_answer};
use k8s_openapi::api::events::v1::Event;
use kube::{ResourceExt, api::ListParams};
use serde_json::json;

const MIB: usize = 1 << 20;
const PACE: Duration = Duration::from_millis(500);

/// Whether etcd said that its quota is used up.
fn is_full(error: &Error) -> bool {
    error.to_string().contains("database space exceeded")
}

/// Writes values of one MiB until etcd says that there is no more room.
async fn fill(client: &mut Client, key: impl Fn(usize) -> String) -> Outcome {
    for number in 0..1000 {
        match client.put(key(number), vec![b'x'; MIB], None).await {
            Ok(_) => {}
            Err(error) if is_full(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("a thousand MiB fit into the quota")
}

/// Each member's file size, and what of it is in use, in bytes.
async fn sizes(cluster: &Cluster<'_>) -> anyhow::Result<Vec<(String, i64, i64)>> {
    let mut sizes = Vec::new();
    for pod in cluster.pods().await? {
        let status = cluster.etcd_of(&pod).await?.status().await?;
        sizes.push((pod.name_any(), status.db_size(), status.raft_used_db_size()));
    }
    Ok(sizes)
}

async fn no_alarm(cluster: &Cluster<'_>) -> Outcome {
    let alarms = cluster
        .etcd()
        .await?
        .alarm(AlarmAction::Get, AlarmType::None, None)
        .await?;
    let standing: Vec<String> = alarms
        .alarms()
        .iter()
        .map(|alarm| format!("{:?} of {:x}", alarm.alarm(), alarm.member_id()))
        .collect();
    ensure!(standing.is_empty(), "alarms stand: {standing:?}");
    Ok(())
}

/// How often the operator has told this of the cluster.
async fn told(context: &Context, reason: &str) -> anyhow::Result<usize> {
    let events = context.api::<Event>().list(&ListParams::default()).await?;
    Ok(events
        .iter()
        .filter(|event| event.reason.as_deref() == Some(reason))
        .count())
}

pub(crate) async fn a_used_up_quota_is_healed(context: &Context) -> Outcome {
    let cluster = context.cluster("quota");
    cluster
        .create(&json!({"storage": {"size": "1Gi"}, "options": {"quotaBackend": "16Mi"}}))
        .await?;
    cluster.ready().await?;
    let traffic = Traffic::start(&cluster).await?;
    let mut client = cluster.etcd().await?;

    // Old revisions of one key use it up: nobody needs to do anything.
    fill(&mut client, |_| "often".to_owned()).await?;
    until_answer("writes to be let in again", PACE, || async {
        let put = cluster.etcd().await?.put("again", "in", None).await;
        Ok(put.is_ok().then_some(()))
    })
    .await?;
    cluster.ready().await?;
    no_alarm(&cluster).await?;
    traffic.goes_on().await?;
    for reason in ["Compacted", "Defragmented", "AlarmDisarmed"] {
        ensure!(told(context, reason).await? > 0, "no event {reason}");
    }
    println!("  a quota used up: {}", traffic.stop().await?);
    Ok(())
}

pub(crate) async fn a_member_with_corrupt_data_is_replaced_and_writes_go_on(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("corrupt");
    cluster.create(&json!({})).await?;
    cluster.ready().await?;
    let traffic = Traffic::start(&cluster).await?;
    let before = cluster.members().await?;
    // The leader: leadership has to be moved before it goes.
    let leader = cluster.etcd().await?.status().await?.leader();
    let mut about = AlarmOptions::new();
    about.with_member(leader);
    cluster
        .etcd()
        .await?
        .alarm(AlarmAction::Activate, AlarmType::Corrupt, Some(about))
        .await?;

    let mut pods = cluster.pods().await?;
    // Whoever goes is not asked: one that is gone would be waited for.
    pods.retain(|pod| {
        let name = pod.name_any();
        let member = before.iter().find(|member| member.name == name);
        member.is_some_and(|member| member.id != leader)
    });
    until_answer("the accused to be gone from etcd", PACE, || async {
        // By their own addresses: under this alarm no member is ready, so the Service leads nowhere.
        for pod in &pods {
            let Ok(mut client) = cluster.etcd_of(pod).await else {
                continue;
            };
            let list = client.member_list().await?;
            return Ok(list
                .members()
                .iter()
                .all(|member| member.id() != leader)
                .then_some(()));
        }
        Ok(None)
    })
    .await?;
    cluster.ready().await?;
    no_alarm(&cluster).await?;
    traffic.goes_on().await?;
    println!("  a corrupt leader replaced: {}", traffic.stop().await?);
    let after = cluster.members().await?;
    let kept = after
        .iter()
        .filter(|member| before.contains(member))
        .count();
    ensure!(
        kept == 2 && after.iter().all(|member| member.id != leader),
        "{before:?} became {after:?}"
    );
    crate::change::exactly(context, &cluster, 3).await
}

pub(crate) async fn free_space_is_given_back_one_member_at_a_time_beside_a_ready_cluster(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("sparse");
    cluster
        .create(&json!({"storage": {"size": "1Gi"}, "options": {"quotaBackend": "64Mi"}}))
        .await?;
    let ready_since = |object: &kube::api::DynamicObject| {
        let conditions = object.data["status"]["conditions"].as_array().cloned();
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Ready" && condition["status"] == "True")
            .map(|condition| condition["lastTransitionTime"].clone())
    };
    let since = ready_since(&cluster.ready().await?).context("a time since which it is ready")?;
    let traffic = Traffic::start(&cluster).await?;
    let mut client = cluster.etcd().await?;
    for number in 0..24 {
        client
            .put(format!("large/{number}"), vec![b'x'; MIB], None)
            .await?;
    }
    let deleted = client
        .delete("large/", Some(DeleteOptions::new().with_prefix()))
        .await?;
    let revision = deleted.header().context("a revision")?.revision();
    client
        .compact(revision, Some(CompactionOptions::new().with_physical()))
        .await?;
    let sizes = until_answer("every file to be small", PACE, || async {
        let sizes = sizes(&cluster).await?;
        let all_small = sizes.len() == 3 && sizes.iter().all(|(_, size, _)| *size < 8 << 20);
        Ok(all_small.then_some(sizes))
    })
    .await?;
    traffic.goes_on().await?;
    println!(
        "  24 MiB written and deleted, then defragmented to {} KiB: {}",
        sizes
            .iter()
            .map(|(_, size, _)| size >> 10)
            .max()
            .unwrap_or_default(),
        traffic.stop().await?
    );
    let told = told(context, "Defragmented").await?;
    ensure!(told == 3, "three members were defragmented, {told} told of");
    let after = cluster.ready().await?;
    ensure!(
        ready_since(&after) == Some(since),
        "it was not ready all the while: {:#}",
        after.data["status"]
    );
    Ok(())
}

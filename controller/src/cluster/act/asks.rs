//! Steps that are asked of etcd itself: membership, leadership, versions, the database.

use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, DowngradeOptions,
    MemberAddOptions,
};
use etcd_operator_api::ValidatedCluster;

use super::ActError;
use crate::{
    cluster::{Context, certificates, names, observe::endpoint, observed::Observed, step::Step},
    etcd::{self, AlarmKind, EtcdError, WHOLE_DATABASE},
};

/// Asks etcd to take this step; steps that are none of etcd's are nothing to it.
pub(super) async fn ask(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    step: &Step,
) -> Result<(), ActError> {
    let refused = |source| ActError::Etcd {
        what: step.to_string(),
        source,
    };
    match step {
        Step::AddLearner { name } | Step::AddVoter { name } => {
            let options = match step {
                Step::AddVoter { .. } => MemberAddOptions::new(),
                _ => MemberAddOptions::new().with_is_learner(),
            };
            let mut client = any_member(context, cluster, seen, step).await?;
            etcd::within(client.member_add([names::peer_url(cluster, name)], Some(options)))
                .await
                .map_err(refused)?;
        }
        Step::Promote { id, .. } => {
            let mut client = any_member(context, cluster, seen, step).await?;
            etcd::within(client.member_promote(*id))
                .await
                .map_err(refused)?;
        }
        Step::Remove { id, .. } => {
            let mut client = any_member(context, cluster, seen, step).await?;
            etcd::within(client.member_remove(*id))
                .await
                .map_err(refused)?;
        }
        Step::MoveLeader { from, to_id, .. } => {
            let mut client = member_client(context, cluster, seen, from, step).await?;
            etcd::within(client.move_leader(*to_id))
                .await
                .map_err(refused)?;
        }
        Step::EnableDowngrade { to } => {
            for action in [
                DowngradeOptions::Validate(to.to_string()),
                DowngradeOptions::Enable(to.to_string()),
            ] {
                downgrade(any_member(context, cluster, seen, step).await?, action)
                    .await
                    .map_err(refused)?;
            }
        }
        Step::CancelDowngrade | Step::LogIsReadable { .. } => {
            let client = any_member(context, cluster, seen, step).await?;
            downgrade(client, DowngradeOptions::Cancel)
                .await
                .map_err(refused)?;
        }
        Step::Compact { revision } => {
            let mut client = any_member(context, cluster, seen, step).await?;
            // Physical: it answers when the space is free, which is what comes next.
            let options = CompactionOptions::new().with_physical();
            let compacted =
                etcd::within_for(WHOLE_DATABASE, client.compact(*revision, Some(options))).await;
            match compacted {
                Ok(_) => {}
                // Somebody else was first, its own compaction perhaps.
                Err(EtcdError::Refused(error))
                    if error.to_string().contains("has been compacted") => {}
                Err(source) => return Err(refused(source)),
            }
        }
        Step::Defragment { name } => {
            let mut client = member_client(context, cluster, seen, name, step).await?;
            etcd::within_for(WHOLE_DATABASE, client.defragment())
                .await
                .map_err(refused)?;
        }
        Step::Disarm { kind, member_id } => {
            let kind = match kind {
                AlarmKind::NoSpace => AlarmType::Nospace,
                AlarmKind::Corrupt => AlarmType::Corrupt,
            };
            let mut of_member = AlarmOptions::new();
            of_member.with_member(*member_id);
            let mut client = any_member(context, cluster, seen, step).await?;
            etcd::within(client.alarm(AlarmAction::Deactivate, kind, Some(of_member)))
                .await
                .map_err(refused)?;
        }
        _ => {}
    }
    Ok(())
}

async fn downgrade(client: Client, action: DowngradeOptions) -> Result<(), EtcdError> {
    etcd::within(client.maintenance_client().downgrade(action)).await?;
    Ok(())
}

/// A healthy voter, the leader if it is one: it forwards to nobody.
async fn any_member(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    step: &Step,
) -> Result<Client, ActError> {
    let leader = seen.leader();
    let name = seen
        .voters()
        .filter(|(_, member)| member.healthy())
        .map(|(name, _)| name)
        .max_by_key(|name| Some(*name) == leader)
        .ok_or_else(|| ActError::NobodyToAsk {
            what: step.to_string(),
        })?;
    member_client(context, cluster, seen, name, step).await
}

async fn member_client(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    name: &str,
    step: &Step,
) -> Result<Client, ActError> {
    let ip = seen
        .members
        .get(name)
        .and_then(|member| member.pod.as_ref()?.ip.as_ref())
        .ok_or_else(|| ActError::NobodyToAsk {
            what: step.to_string(),
        })?;
    let identity = certificates::operator_identity(context, cluster).await?;
    let endpoint = endpoint(cluster, name, ip, identity.as_ref());
    Box::pin(etcd::connect_for(&endpoint, patience(step)))
        .await
        .map_err(|source| ActError::Etcd {
            what: step.to_string(),
            source,
        })
}

/// How long the calls of a step may take.
fn patience(step: &Step) -> Duration {
    match step {
        Step::Compact { .. } | Step::Defragment { .. } => WHOLE_DATABASE,
        _ => etcd::PATIENCE,
    }
}

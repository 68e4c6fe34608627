//! Repair: what is left of removed members is cleared away, a member that cannot come back is replaced, a learner is seen
//! through. A member that is merely slow is waited for.

use std::time::Duration;

use etcd_operator_api::ValidatedCluster;
use jiff::SignedDuration;

use super::{
    alone, gate,
    restart::{data_lost, troubles},
    size,
};
use crate::cluster::{
    observed::{Member, Observed, quorum_of},
    step::{Activity, Plan, Reason, Step, Why},
};

/// How far behind the leader a learner may be when it is promoted. etcd itself asks only for 90 % of the leader's index,
/// which on a long-lived cluster may be a million entries.
const CAUGHT_UP: u64 = 500;
/// And which part of the leader's log it may lack, as etcd counts it.
const ENOUGH: u64 = 10;
/// How long a process may take to open its database: as long as its startup probe allows.
const LARGE_DATABASE: Duration = Duration::from_hours(1);

/// Pods and claims of members that etcd no longer lists: the pod first, then the claim.
pub(super) fn clear_away(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    if seen
        .quorum
        .as_ref()
        .is_some_and(|quorum| !quorum.strangers.is_empty())
    {
        // A line we cannot place may be one of ours under another address: nobody's data is cleared away then.
        return None;
    }
    let step = seen
        .members
        .iter()
        .filter(|(_, member)| member.listed.is_none())
        .filter(|(name, _)| !alone::is_awaited(cluster, seen, name))
        .find_map(|(name, member)| match (&member.pod, &member.claim) {
            (Some(pod), _) if !pod.terminating => Some(Step::DeletePod {
                name: name.clone(),
                pod_uid: pod.uid.clone(),
                why: Why::NotAMember,
            }),
            (None, Some(claim)) if !claim.terminating => Some(Step::DeleteClaim {
                name: name.clone(),
                claim_uid: claim.uid.clone(),
            }),
            _ => None,
        })?;
    let message = step.to_string();
    Some(Plan::step(
        step,
        Activity::Scaling,
        Reason::CleaningUp,
        message,
    ))
}

/// A voter that cannot come back is removed first; the fresh one is added afterwards, by the rule on size.
pub(super) fn replace_lost(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let (name, member, why) = seen
        .voters()
        .filter(|(_, member)| !member.healthy())
        .find_map(|(name, member)| Some((name, member, beyond_hope(cluster, seen, member)?)))?;
    let id = member.listed.as_ref()?.id;
    if let Some(refusal) = gate::why_not_remove(seen, name) {
        return Some(Plan::stalled(
            Reason::QuorumLost,
            format!(
                "{name} cannot come back ({}), but {refusal}: nothing is removed",
                why.words()
            ),
        ));
    }
    Some(Plan::step(
        Step::Remove {
            id,
            name: name.clone(),
            why,
        },
        Activity::Recovering,
        Reason::ReplacingMember,
        format!("replacing {name}: {}", why.words()),
    ))
}

/// Whether waiting for a member has become pointless.
fn beyond_hope(cluster: &ValidatedCluster, seen: &Observed, member: &Member) -> Option<Why> {
    if data_lost(member) {
        return Some(Why::DataLost);
    }
    let pod = member.pod.as_ref().filter(|pod| !pod.ready)?;
    // Another in its place would ask for the same image: its data are not given up for a typing error.
    if pod.lacks_its_image() && pod.version == Some(cluster.version) {
        return None;
    }
    // Readiness needs a quorum, so after an outage every member has been unready for its whole length: patience counts from
    // the moment when all three hold: this pod unready, this member seen unwell, and a quorum there for it to join.
    let since = pod
        .since
        .max(member.unwell_since?)
        .max(seen.available_since?);
    let patience = if pod.starting {
        cluster.unreachable_after.max(LARGE_DATABASE)
    } else {
        cluster.unreachable_after
    };
    let patience = SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    (seen.now.duration_since(since) > patience).then_some(Why::Unreachable)
}

/// A learner is promoted when it has caught up, given up when it cannot, and otherwise waited for.
pub(super) fn learner(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let (name, member) = seen.learner()?;
    let id = member.listed.as_ref()?.id;
    let remove = |why: Why, reason| {
        let step = Step::Remove {
            id,
            name: name.clone(),
            why,
        };
        let message = step.to_string();
        Some(Plan::step(step, Activity::Scaling, reason, message))
    };
    if seen.voter_count() >= size::wanted(cluster, seen) {
        return remove(Why::ScaleDown, Reason::ScalingDown);
    }
    if !member.healthy() && beyond_hope(cluster, seen, member).is_some() {
        return remove(Why::LearnerStuck, Reason::ReplacingMember);
    }
    let Some(lag) = lag(seen, member) else {
        return Some(Plan::waiting(
            Activity::Scaling,
            Reason::LearnerCatchingUp,
            format!("waiting for {name} to start{}", troubles(seen)),
        ));
    };
    // Both: on a young cluster a few entries may be most of the log, on an old one a tenth of it is a million.
    let leader = seen.leader().and_then(|leader| seen.members.get(leader));
    let behind = leader
        .and_then(|leader| leader.answer.as_ref())
        .is_none_or(|leader| lag > leader.raft_index / ENOUGH);
    if lag > CAUGHT_UP || behind {
        return Some(Plan::waiting(
            Activity::Scaling,
            Reason::LearnerCatchingUp,
            format!("{name} is {lag} entries behind the leader"),
        ));
    }
    // As a voter it counts towards the quorum at once: it must be able to help form it.
    let healthy = seen.voters().filter(|(_, voter)| voter.healthy()).count() + 1;
    let needed = quorum_of(seen.voter_count() + 1);
    if healthy < needed {
        return Some(Plan::waiting(
            Activity::Scaling,
            Reason::MemberUnhealthy,
            format!(
                "{name} is not promoted yet: {healthy} healthy voters would be fewer than {needed}"
            ),
        ));
    }
    Some(Plan::step(
        Step::Promote {
            id,
            name: name.clone(),
        },
        Activity::Scaling,
        Reason::ScalingUp,
        format!("promoting {name}"),
    ))
}

/// How many raft entries a member is behind the leader; unknown until both answer.
pub(super) fn lag(seen: &Observed, learner: &Member) -> Option<u64> {
    let leader = seen.members.get(seen.leader()?)?.answer.as_ref()?;
    let learner = learner.answer.as_ref()?;
    Some(
        leader
            .raft_index
            .saturating_sub(learner.raft_index.min(learner.applied_index)),
    )
}

/// Nothing voluntary starts before every member is well.
pub(super) fn wait_for_health(_: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let unwell: Vec<&str> = seen
        .members
        .iter()
        .filter(|(_, member)| member.listed.is_some() && !(member.healthy() && member.pod_ready()))
        .map(|(name, _)| name.as_str())
        .collect();
    if unwell.is_empty() {
        return None;
    }
    let activity = if seen.was_ready {
        Activity::Recovering
    } else {
        Activity::Creating
    };
    Some(Plan::waiting(
        activity,
        Reason::WaitingForMembers,
        format!("waiting for {}{}", unwell.join(", "), troubles(seen)),
    ))
}

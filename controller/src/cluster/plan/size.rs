//! Membership follows `spec.size`, one change at a time. A member that cannot be moved onto a claim with its data is followed by one that
//! is: that joins first, and only then does the other leave.

use std::collections::BTreeMap;

use etcd_operator_api::ValidatedCluster;

use super::{alone, gate, rollout};
use crate::cluster::{
    names,
    observed::{Member, Observed, is_to_move},
    step::{Activity, Plan, Reason, Step, Why},
};

pub(super) fn follow_spec(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let (voters, size) = (seen.voter_count(), wanted(cluster, seen));
    let strangers = seen
        .quorum
        .as_ref()
        .map_or(0, |quorum| quorum.strangers.len());
    if strangers > 0 {
        return Some(Plan::stalled(
            Reason::UnknownMember,
            format!(
                "etcd lists {strangers} members this operator did not add: remove them with `etcdctl member remove`"
            ),
        ));
    }
    let asked_for = cluster.size.members();
    let at_size = voters == asked_for || voters == asked_for + 1;
    if at_size && moves(cluster, seen) && !all_are_well(seen) {
        // Nobody needs it now: whoever is unwell comes first.
        return None;
    }
    if voters < size {
        if alone::grows_alone(cluster, seen) {
            return Some(alone::grow(cluster, seen));
        }
        let name = names::newcomer(cluster, seen);
        let message = format!("{voters} of {size} members: adding {name}");
        let learners = knows_learners(seen);
        if !learners && !all_are_well(seen) {
            // It counts towards the quorum before it has started, so the others must be a quorum without it.
            return None;
        }
        let step = if learners {
            Step::AddLearner { name }
        } else {
            Step::AddVoter { name }
        };
        return Some(Plan::step(
            step,
            Activity::Scaling,
            Reason::ScalingUp,
            message,
        ));
    }
    if voters > size {
        return Some(shrink(cluster, seen, size));
    }
    None
}

/// Somebody is to be followed by a member on a claim.
fn moves(cluster: &ValidatedCluster, seen: &Observed) -> bool {
    let mut voters = seen.voters();
    voters.any(|(_, member)| is_to_move(cluster, member))
}

/// How many voters there should be next: while members move onto claims, one more and one fewer in turn.
pub(super) fn wanted(cluster: &ValidatedCluster, seen: &Observed) -> usize {
    let size = cluster.size.members();
    let one_more = moves(cluster, seen) && seen.voter_count() <= size;
    size + usize::from(one_more)
}

/// What runs decides, not what the spec asks for: an older etcd takes a learner for a voter, without a word.
pub(super) fn knows_learners(seen: &Observed) -> bool {
    seen.running()
        .is_some_and(|running| running.lowest().abilities().learners)
}

pub(super) fn all_are_well(seen: &Observed) -> bool {
    seen.voters()
        .all(|(_, member)| member.healthy() && member.pod_ready())
}

fn shrink(cluster: &ValidatedCluster, seen: &Observed, size: usize) -> Plan {
    if let Some(plan) = hand_over(cluster, seen) {
        return plan;
    }
    let Some((name, id)) = leaver(cluster, seen) else {
        return Plan::waiting(
            Activity::Scaling,
            Reason::ScalingDown,
            "waiting for a leader",
        );
    };
    if let Some(refusal) = gate::why_not_remove(seen, &name) {
        return Plan::waiting(
            Activity::Scaling,
            Reason::MemberUnhealthy,
            format!("not shrinking yet: {refusal}"),
        );
    }
    let message = format!(
        "{} members, {size} wanted: removing {name}",
        seen.voter_count()
    );
    Plan::step(
        Step::Remove {
            id,
            name,
            why: Why::ScaleDown,
        },
        Activity::Scaling,
        Reason::ScalingDown,
        message,
    )
}

/// The last that is to leave for one on a claim leads: another leads before it goes, where etcd can be told so.
fn hand_over(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let from = leads_and_moves_last(cluster, seen)?;
    let stays = |_: &String, member: &Member| !is_to_move(cluster, member);
    let (to, to_id) = rollout::successor(seen, stays)?;
    let message = format!("{from} is to leave, and {to} leads first");
    let from = from.clone();
    Some(Plan::step(
        Step::MoveLeader { from, to, to_id },
        Activity::Scaling,
        Reason::MovingStorage,
        message,
    ))
}

fn leads_and_moves_last<'a>(cluster: &ValidatedCluster, seen: &'a Observed) -> Option<&'a String> {
    let leader = seen.leader()?;
    let mut moving = seen.voters().filter(|(_, one)| is_to_move(cluster, one));
    let last = moving.next().filter(|(name, _)| *name == leader);
    last.filter(|_| moving.next().is_none())
        .map(|(name, _)| name)
}

/// Who goes: a voter whose data are in doubt, then an unhealthy one before a healthy one, then one that is to be followed by one on a claim,
/// then one from the most crowded node. The leader only where it is the last that is to move, and etcd cannot hand over.
fn leaver(cluster: &ValidatedCluster, seen: &Observed) -> Option<(String, u64)> {
    let leader = seen.leader()?;
    if seen.voter_count() == cluster.size.members() + 1
        && let Some(last) = leads_and_moves_last(cluster, seen)
    {
        let id = seen.members.get(last)?.listed.as_ref()?.id;
        return Some((last.clone(), id));
    }
    let mut crowd: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for (_, member) in seen.voters() {
        *crowd.entry(node(member)).or_default() += 1;
    }
    seen.voters()
        .filter(|(name, _)| *name != leader)
        .max_by_key(|(name, member)| {
            (
                seen.is_corrupt(member),
                !member.healthy(),
                is_to_move(cluster, member),
                crowd.get(&node(member)).copied(),
                (*name).clone(),
            )
        })
        .and_then(|(name, member)| Some((name.clone(), member.listed.as_ref()?.id)))
}

fn node(member: &Member) -> Option<&str> {
    member.pod.as_ref()?.node.as_deref()
}

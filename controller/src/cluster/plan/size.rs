//! Membership follows `spec.size`, one change at a time.

use std::collections::BTreeMap;

use etcd_operator_api::ValidatedCluster;

use super::{alone, gate};
use crate::cluster::{
    names,
    observed::Observed,
    step::{Activity, Plan, Reason, Step, Why},
};

pub(super) fn follow_spec(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let (voters, size) = (seen.voter_count(), cluster.size.members());
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
        return Some(shrink(seen, size));
    }
    None
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

fn shrink(seen: &Observed, size: usize) -> Plan {
    let Some((name, id)) = leaver(seen) else {
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

/// Who goes: a voter whose data are in doubt, then an unhealthy one before a healthy one, then one from the most crowded node, never the leader.
fn leaver(seen: &Observed) -> Option<(String, u64)> {
    let leader = seen.leader()?;
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
                crowd.get(&node(member)).copied(),
                (*name).clone(),
            )
        })
        .and_then(|(name, member)| Some((name.clone(), member.listed.as_ref()?.id)))
}

fn node(member: &crate::cluster::observed::Member) -> Option<&str> {
    member.pod.as_ref()?.node.as_deref()
}

//! Free space is given back to the disk when there is much of it: one member at a time, the leader last, and only while nothing
//! else is to be done.
//!
//! etcd uses free pages again by itself, so a file with some of them needs nothing. It is worth a pause of one member only when
//! the file has come near enough to the quota to matter (etcd counts free pages towards it) and most of it is empty; after that
//! it must double before it is worth it again.

use std::time::Duration;

use etcd_operator_api::{ValidatedCluster, Version};
use jiff::SignedDuration;

use super::{
    alarms::{in_use, size},
    gate,
    heal::lag,
    rollout,
};
use crate::cluster::{
    observed::{Member, Observed},
    step::{Plan, Step},
};

/// A file smaller than this part of the quota is left alone.
const WORTH_IT: u64 = 4;
/// At most so often for one member, however much its clients write and delete.
const SELDOM: Duration = Duration::from_hours(1);
/// A member further behind than this is still being brought up to date.
const CAUGHT_UP: u64 = 500;

pub(super) fn defragment(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    if !cluster.maintenance.defragment {
        return None;
    }
    let all_caught_up = seen
        .voters()
        .all(|(_, member)| lag(seen, member).is_some_and(|lag| lag <= CAUGHT_UP));
    if !all_caught_up {
        return None;
    }
    let mut bloated: Vec<&String> = seen
        .voters()
        .filter(|(_, member)| is_bloated(cluster, member) && !was_done_lately(seen, member))
        .map(|(name, _)| name)
        .collect();
    bloated.sort_by_key(|name| seen.leader() == Some(*name));
    let name = bloated.first()?;
    if gate::why_not_stop(seen, name).is_some() {
        return None;
    }
    // What the spec asks for is what runs, now and meanwhile: the outlook stays settled.
    Some(Plan::beside(defragment_or_move(seen, name)))
}

fn is_bloated(cluster: &ValidatedCluster, member: &Member) -> bool {
    member.answer.as_ref().is_some_and(|answer| {
        let version = answer.version.parse::<Version>().ok();
        let quota = answer.quota.unwrap_or(cluster.options.quota_bytes);
        version.is_some_and(|version| version.abilities().safe_defragment)
            && size(answer) > quota / WORTH_IT
            && in_use(answer) < size(answer) / 2
    })
}

fn was_done_lately(seen: &Observed, member: &Member) -> bool {
    let seldom = SignedDuration::try_from(SELDOM).unwrap_or(SignedDuration::MAX);
    member
        .defragmented
        .is_some_and(|at| seen.now.duration_since(at) < seldom)
}

/// A member serves nobody while it is defragmented, so a leader hands over first, where there is somebody to hand over to.
pub(super) fn defragment_or_move(seen: &Observed, name: &str) -> Step {
    let heir = (seen.leader().map(String::as_str) == Some(name))
        .then(|| rollout::successor(seen, |other, _| other != name))
        .flatten();
    match heir {
        Some((to, to_id)) => Step::MoveLeader {
            from: name.to_owned(),
            to,
            to_id,
        },
        None => Step::Defragment {
            name: name.to_owned(),
        },
    }
}

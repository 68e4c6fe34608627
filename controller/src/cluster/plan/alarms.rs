//! What etcd itself raises an alarm about. Both alarms stop all writes, so they come before anything voluntary.
//!
//! CORRUPT: a member's data differs from the others'. It is treated like a member whose data is lost: removed first, then a
//! fresh one joins. NOSPACE: a database has reached its quota. Old revisions are dropped, files made smaller, one member at
//! a time, and writes let in again once there is room.

use etcd_operator_api::{ValidatedCluster, quantity::display_bytes};
use jiff::Timestamp;

use super::{gate, rollout};
use crate::{
    cluster::{
        observed::{Member, Observed, quorum_of},
        step::{Activity, Plan, Reason, Step, Why},
    },
    etcd::{Alarm, AlarmKind, Answer},
};

/// Beyond this part of its quota a database is as good as full: letting writes in would only raise the alarm again.
const FULL_PERCENT: u64 = 95;
/// And one more request must fit, of the largest size etcd takes by default.
const ONE_REQUEST: u64 = 2 << 20;
/// Up to this part of the quota in use, a defragmentation is sure to bring the file below the mark above: pages are filled to
/// nine tenths.
const WORTH_FREEING_PERCENT: u64 = 85;

/// An alarm about a member that is gone has nothing left to warn of; while it stands, nobody can write.
pub(super) fn of_the_gone(_: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let alarm = seen
        .alarms()
        .into_iter()
        .find(|alarm| alarm.member_id != 0 && !seen.is_listed(alarm.member_id))?;
    Some(disarm(alarm, "the member it was about is gone".to_owned()))
}

fn disarm(alarm: Alarm, why: String) -> Plan {
    let reason = match alarm.kind {
        AlarmKind::NoSpace => Reason::NoSpace,
        AlarmKind::Corrupt => Reason::DataCorrupt,
    };
    Plan::step(
        Step::Disarm {
            kind: alarm.kind,
            member_id: alarm.member_id,
        },
        Activity::Recovering,
        reason,
        why,
    )
}

/// A member whose data etcd has found to differ is taken out, while those that agree with one another are a majority.
pub(super) fn corrupt(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let first = seen
        .alarms()
        .into_iter()
        .find(|alarm| alarm.kind == AlarmKind::Corrupt)?;
    let accused = |member: &Member| seen.is_corrupt(member);
    let stalled = |message: String| Some(Plan::stalled(Reason::DataCorrupt, message));
    if first.member_id == 0 {
        return stalled(
            "the members' data differ and etcd cannot tell whose is right: nothing is removed; restore from a backup, or \
             remove the member that is wrong with `etcdctl member remove` and disarm with `etcdctl alarm disarm`"
                .to_owned(),
        );
    }
    let sound = seen
        .voters()
        .filter(|(_, member)| member.healthy() && !member.leaving() && !accused(member))
        .count();
    let (name, member) = seen
        .members
        .iter()
        .filter(|(_, member)| accused(member))
        // The leader last: leadership is moved to a sound member first.
        .min_by_key(|(name, _)| seen.leader() == Some(*name))?;
    let (voters, id) = (seen.voter_count(), member.listed.as_ref()?.id);
    let message = format!("replacing {name}: {}", Why::Corrupt.words());
    let replacing = |step| {
        Some(Plan::step(
            step,
            Activity::Recovering,
            Reason::DataCorrupt,
            message,
        ))
    };
    // Whatever else must be waited for: nobody is to copy from a member whose data are in doubt.
    if seen.leader() == Some(name)
        && let Some((to, to_id)) =
            rollout::successor(seen, |other, member| other != name && !accused(member))
    {
        return replacing(Step::MoveLeader {
            from: name.clone(),
            to,
            to_id,
        });
    }
    if sound < quorum_of(voters) {
        let whole = voters == cluster.size.members()
            && seen
                .members
                .values()
                .filter(|member| member.listed.is_some() && !accused(member))
                .all(|member| member.healthy() && !member.leaving());
        if !whole {
            // Others can still be brought back or replaced by copies of a sound leader, or this one is the first to go.
            return None;
        }
        return stalled(format!(
            "the data of {name} differ from the others', but only {sound} of {voters} voters are sound: nothing is removed; \
             restore from a backup"
        ));
    }
    if member.is_voter()
        && let Some(refusal) = gate::why_not_remove(seen, name)
    {
        return stalled(format!(
            "the data of {name} differ from the others', but {refusal}: nothing is removed"
        ));
    }
    replacing(Step::Remove {
        id,
        name: name.clone(),
        why: Why::Corrupt,
    })
}

/// Makes room in a database that has reached its quota, while every member answers.
pub(super) fn make_room(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let alarm = no_space(seen)?;
    let well = seen
        .members
        .values()
        .filter(|member| member.listed.is_some())
        .all(|member| member.healthy() && !member.leaving());
    if !cluster.maintenance.heal_no_space || !well {
        return None;
    }
    let room = |step, message: String| {
        Some(Plan::step(
            step,
            Activity::Recovering,
            Reason::NoSpace,
            message,
        ))
    };
    let answers: Vec<(&String, &Member, &Answer)> = seen
        .voters()
        .filter_map(|(name, member)| Some((name, member, member.answer.as_ref()?)))
        .collect();
    if answers
        .iter()
        .any(|(.., answer)| answer.compacted == Some(false))
    {
        // What every member has: no watcher of this very moment loses anything.
        let revision = answers.iter().map(|(.., answer)| answer.revision).min()?;
        return room(
            Step::Compact { revision },
            "the quota is used up: dropping old revisions".to_owned(),
        );
    }
    let quota_of = |name: &String, member: &Member, answer: &Answer| {
        let current = member
            .pod
            .as_ref()
            .is_some_and(|pod| rollout::why_outdated(cluster, seen, name, pod).is_none());
        // Before 3.6 a member does not say what its quota is; it has the spec's once it was started with the spec.
        answer
            .quota
            .or_else(|| current.then_some(cluster.options.quota_bytes))
    };
    let mut bloated: Vec<&String> = answers
        .iter()
        .filter(|(name, member, answer)| {
            let quota = quota_of(name, member, answer).unwrap_or(cluster.options.quota_bytes);
            // Every file once after each compaction: what that has freed, a member counts as free only after its next write,
            // and there are none.
            let tried = member
                .defragmented
                .is_some_and(|at| at >= seen.compacted.unwrap_or(Timestamp::MIN));
            let worth_it = size(answer) > full_from(quota)
                && in_use(answer) < percent(quota, WORTH_FREEING_PERCENT);
            !tried || worth_it
        })
        .map(|(name, ..)| *name)
        .collect();
    bloated.sort_by_key(|name| seen.leader() == Some(*name));
    if let Some(name) = bloated.first() {
        // It serves nobody meanwhile: with only two voters the cluster becomes whole first.
        if gate::why_not_stop(seen, name).is_some() {
            return None;
        }
        let message = format!("the quota is used up: giving back free space of {name}");
        return room(super::maintenance::defragment_or_move(seen, name), message);
    }
    let all_have_room = answers.iter().all(|(name, member, answer)| {
        quota_of(name, member, answer).is_some_and(|quota| size(answer) <= full_from(quota))
    });
    all_have_room.then(|| disarm(alarm, "there is room again".to_owned()))
}

/// What is left to a person: asked last, so that a larger quota in the spec is rolled out first.
pub(super) fn out_of_space(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    no_space(seen)?;
    let used = seen
        .voters()
        .filter_map(|(_, member)| member.answer.as_ref())
        .map(in_use)
        .max()?;
    let what = format!(
        "etcd refuses writes: the quota of {} is used up, {} are in use",
        display_bytes(cluster.options.quota_bytes),
        display_bytes(used >> 20 << 20)
    );
    let advice = if cluster.maintenance.heal_no_space {
        "raise options.quotaBackend or delete keys, the rest goes by itself"
    } else {
        "raise options.quotaBackend, or delete keys, compact, defragment and `etcdctl alarm disarm`; maintenance.onNoSpace: \
         Heal lets the operator do that"
    };
    Some(Plan::stalled(Reason::NoSpace, format!("{what}: {advice}")))
}

fn no_space(seen: &Observed) -> Option<Alarm> {
    seen.alarms()
        .into_iter()
        .find(|alarm| alarm.kind == AlarmKind::NoSpace)
}

pub(super) fn size(answer: &Answer) -> u64 {
    u64::try_from(answer.db_size).unwrap_or_default()
}

pub(super) fn in_use(answer: &Answer) -> u64 {
    u64::try_from(answer.db_size_in_use).unwrap_or_default()
}

fn full_from(quota: u64) -> u64 {
    let room = quota.saturating_sub(ONE_REQUEST).max(quota / 2);
    percent(quota, FULL_PERCENT).min(room)
}

fn percent(quota: u64, percent: u64) -> u64 {
    quota / 100 * percent
}

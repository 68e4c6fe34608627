//! Version and configuration follow the spec: one member at a time, the leader last, each restarted on its own volume.

use etcd_operator_api::{
    Minor, ValidatedCluster, Version,
    policy::{Running, VersionStep, judge_step},
};

use super::{before_risk, gate};
use crate::cluster::{
    children::{self, InPlace},
    observed::{Member, Observed, PodFacts, Stage, is_ephemeral},
    step::{Activity, Plan, Reason, Step, Why},
};
use crate::etcd::Answer;

pub(super) fn follow_spec(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let outdated: Vec<(&String, &PodFacts, Why)> = seen
        .voters()
        .filter_map(|(name, member)| {
            let pod = member.pod.as_ref()?;
            Some((name, pod, why_outdated(cluster, seen, name, pod)?))
        })
        .collect();
    let leader = seen.leader();
    if outdated.iter().any(|(.., why)| *why == Why::Upgrade)
        && let Some(plan) = illegal(cluster, seen)
    {
        return Some(plan);
    }
    let first = before_risk::minor_step(cluster, seen)
        .or_else(|| unfinished_upgrade(cluster, seen))
        .or_else(|| readable_log(cluster, seen))
        .or_else(|| downgrade(cluster, seen));
    if first.is_some() {
        return first;
    }
    let (name, pod, why) = outdated
        .iter()
        .find(|(name, ..)| Some(*name) != leader)
        .or(outdated.first())?;
    let total = seen.voters().count();
    let (activity, reason, progress) = match why {
        Why::Upgrade => (
            Activity::Upgrading,
            Reason::RollingVersion,
            format!(
                "{} of {total} members on {}",
                total - outdated.len(),
                cluster.version
            ),
        ),
        _ => (
            Activity::Configuring,
            Reason::RollingConfiguration,
            format!(
                "{} of {total} members have the new configuration",
                total - outdated.len()
            ),
        ),
    };
    if pod.scratch && total == 1 {
        let remedy = if pod.adopted {
            "put the spec back, and set `storage` or scale to 3 first"
        } else {
            "put the spec back, or scale to 3 first"
        };
        return Some(Plan::stalled(
            Reason::WouldLoseData,
            format!(
                "{name} is the only member and has no volume: restarting it would lose everything; {remedy}"
            ),
        ));
    }
    if let Some(refusal) = gate::why_not_stop(seen, name) {
        return Some(Plan::waiting(
            activity,
            Reason::MemberUnhealthy,
            format!("{progress}; {refusal}"),
        ));
    }
    if Some(*name) == leader
        && let Some((to, to_id)) = successor(seen, |other, _| other != *name)
    {
        let step = Step::MoveLeader {
            from: (*name).clone(),
            to,
            to_id,
        };
        return Some(Plan::step(step, activity, reason, progress));
    }
    let (name, pod_uid, why) = ((*name).clone(), pod.uid.clone(), *why);
    let step = if pod.adopted && pod.scratch && why == Why::Upgrade {
        // Its flags are those of every version, and its data stay in it; a restart would lose them.
        Step::SwapImage { name, pod_uid }
    } else {
        Step::Restart { name, pod_uid, why }
    };
    Some(Plan::step(step, activity, reason, progress))
}

/// What needs no restart is changed while members serve, one at a time: a change that Kubernetes cannot make after all becomes
/// a restart, so the gate is asked all the same.
pub(super) fn in_place(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let wanted = InPlace::of(cluster);
    let outdated: Vec<(&String, &PodFacts)> = seen
        .voters()
        .filter_map(|(name, member)| Some((name, member.pod.as_ref()?)))
        .filter(|(_, pod)| pod.in_place != wanted)
        .collect();
    let leader = seen.leader();
    let (name, pod) = outdated
        .iter()
        .find(|(name, _)| Some(*name) != leader)
        .or(outdated.first())?;
    let total = seen.voters().count();
    let progress = format!(
        "{} of {total} members have the new labels, annotations and resources",
        total - outdated.len()
    );
    if let Some(refusal) = gate::why_not_stop(seen, name) {
        return Some(Plan::waiting(
            Activity::Configuring,
            Reason::MemberUnhealthy,
            format!("{progress}; {refusal}"),
        ));
    }
    let step = Step::Adjust {
        name: (*name).clone(),
        pod_uid: pod.uid.clone(),
    };
    Some(Plan::step(
        step,
        Activity::Configuring,
        Reason::RollingConfiguration,
        progress,
    ))
}

/// The last step up is finished only when etcd itself counts the cluster as the new minor (from 3.6 on it says so): a
/// further step before that would meet data of the minor below.
fn unfinished_upgrade(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let running = seen.running()?;
    let here = running.lowest().minor();
    if cluster.version.minor() <= here {
        return None;
    }
    let behind = seen
        .voters()
        .filter_map(|(_, member)| member.answer.as_ref())
        .any(|answer| {
            !answer.storage_version.is_empty()
                && !answer.storage_version.starts_with(&format!("{here}."))
        });
    // Unless that is how far a downgrade has come: the log is being made readable, or somebody has changed their mind.
    let going_down = seen.voters().any(|(_, member)| {
        let answer = member.answer.as_ref();
        answer.is_some_and(|answer| answer.downgrade_to.is_some())
    });
    (behind && !going_down && running.highest().minor() == here).then(|| {
        Plan::waiting(
            Activity::Upgrading,
            Reason::RollingVersion,
            format!(
                "waiting until etcd counts itself as {here}, before it goes on to {}",
                cluster.version.minor()
            ),
        )
    })
}

/// The first minor whose members log nothing that later ones cannot read.
pub(crate) fn logs_newly_from() -> Minor {
    Minor::new(3, 6)
}

/// Whether a member may be started as the spec's version on a log that the members before it have written.
fn log_is_readable(cluster: &ValidatedCluster, seen: &Observed) -> bool {
    cluster.version.abilities().reads_old_requests
        || seen
            .log_readable_by
            .is_some_and(|by| by >= cluster.version.minor())
        || seen
            .running()
            .or(seen.last_ran.map(Running::one))
            .is_none_or(|running| !running.lowest().abilities().reads_old_requests)
}

/// etcd before 3.6 logs each start as a request of its old store, which 3.7 cannot read: it ends at once if such an entry is
/// younger than the member's last snapshot of its log. Snapshots come after 10,000 entries by default, so on a quiet cluster
/// the entries of 3.5 are still there when 3.6 has long been running.
///
/// What makes every member take one at once is etcd's own preparation of a downgrade. So one is begun and, when every member
/// has prepared itself, called off. Nothing is restarted for it, and no client notices.
fn readable_log(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let running = seen.running()?;
    let (here, target) = (running.highest().minor(), cluster.version.minor());
    let all_here = running.lowest().minor() == here && here.next() == target;
    if !all_here || log_is_readable(cluster, seen) {
        return None;
    }
    let below = here.previous()?;
    let step = |step| {
        Some(Plan::step(
            step,
            Activity::Upgrading,
            Reason::RollingVersion,
            format!("making every member's log readable for {target}"),
        ))
    };
    let answers = || {
        seen.voters()
            .filter_map(|(_, member)| member.answer.as_ref())
    };
    let prepared = |answer: &Answer| answer.storage_version.starts_with(&format!("{below}."));
    match answers().find_map(|answer| answer.downgrade_to.as_deref()) {
        None => step(Step::EnableDowngrade { to: below }),
        Some(_) if answers().all(prepared) => step(Step::LogIsReadable { by: target }),
        Some(_) => Some(Plan::waiting(
            Activity::Upgrading,
            Reason::RollingVersion,
            format!("every member is about to take a snapshot of its log, which {target} needs"),
        )),
    }
}

/// One minor down goes through etcd's Downgrade API: every member's data must be readable for the lower minor before the first
/// lower binary starts. A change of mind is told to etcd before a higher binary comes back.
fn downgrade(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let answers = || {
        seen.voters()
            .filter_map(|(_, member)| member.answer.as_ref())
    };
    let running = Running::among(answers().filter_map(|answer| answer.version.parse().ok()))?;
    let under_way = answers().find_map(|answer| answer.downgrade_to.as_deref());
    let (highest, target) = (running.highest().minor(), cluster.version.minor());
    let plan = |step, message: String| {
        Some(Plan::step(
            step,
            Activity::Upgrading,
            Reason::Downgrading,
            message,
        ))
    };
    let wanted = format!("{target}.");
    if target >= highest {
        // At the end of a downgrade etcd forgets it by itself.
        if under_way?.starts_with(&wanted) {
            return None;
        }
        return plan(Step::CancelDowngrade, format!("going on with {target}"));
    }
    // While an upgrade is half done the cluster still counts as the lower minor, and etcd would refuse a downgrade to it:
    // there the lower binary simply comes back.
    let half_done_upgrade = under_way.is_none() && running.lowest().minor() == target;
    if under_way.is_none() && !half_done_upgrade {
        return plan(
            Step::EnableDowngrade { to: target },
            format!("preparing the data for {target}"),
        );
    }
    let waiting = answers()
        .filter(|answer| {
            !answer.version.starts_with(&wanted) && !answer.storage_version.starts_with(&wanted)
        })
        .count();
    (waiting > 0).then(|| {
        Plan::waiting(
            Activity::Upgrading,
            Reason::Downgrading,
            format!("{waiting} members still prepare their data for {target}"),
        )
    })
}

/// The version of a member that is new: the spec's where that may join what runs, else what runs.
pub(crate) fn newcomer_version(cluster: &ValidatedCluster, seen: &Observed) -> Version {
    let Some(running) = seen.running() else {
        return cluster.version;
    };
    // While an upgrade is under way a newcomer is given the log of those below, and must be able to read it.
    if cluster.version.minor() > running.lowest().minor() {
        // Where a pod goes with its data, members are upgraded by being replaced: as what they were, that would never end.
        let by_replacing = is_ephemeral(cluster)
            && judge_step(running, cluster.version).is_ok()
            && log_is_readable(cluster, seen);
        return if by_replacing {
            cluster.version
        } else {
            running.lowest()
        };
    }
    let joins = judge_step(running, cluster.version).is_ok()
        && cluster.version.minor() >= running.highest().minor();
    if joins {
        cluster.version
    } else {
        running.highest()
    }
}

/// Whether a member that is not running may come back as the spec's version: never below what the others hold, and never a minor
/// above what it was. For that its data must have followed to where it is and its log be readable, and it cannot be asked. Before
/// the cluster first answered there is little to follow, and nothing at all on the volume of a member that has never been started.
///
/// Where nobody answers, who put the version back is believed as long as nobody was seen to serve as the higher one. Should etcd have
/// done so unseen, the lower one ends at its start and touches nothing, and the way up again is open.
pub(super) fn may_start_as(
    cluster: &ValidatedCluster,
    seen: &Observed,
    member: &Member,
    pod: &PodFacts,
) -> bool {
    let answering: Vec<Version> = seen
        .members
        .values()
        .filter_map(|member| member.answer.as_ref()?.version.parse().ok())
        .collect();
    let young = seen.cluster_id.is_none();
    let left_nothing = young && !pod.ran;
    let last = seen.last_ran.filter(|_| answering.is_empty());
    let been = member
        .claim
        .as_ref()
        .and_then(|claim| claim.taken_back_from)
        .filter(|_| answering.is_empty());
    let was = pod.version.filter(|_| !left_nothing);
    let versions = answering.into_iter().chain(was).chain(last).chain(been);
    let legal =
        Running::among(versions).is_none_or(|running| match judge_step(running, cluster.version) {
            Ok(VersionStep::MinorUp) => young && cluster.version.abilities().reads_old_requests,
            Ok(VersionStep::MinorDown) | Err(_) => false,
            Ok(_) => true,
        });
    legal && log_is_readable(cluster, seen)
}

/// What a member is after a restart: only a change of version changes it.
pub(crate) fn comes_back_as(
    cluster: &ValidatedCluster,
    pod: Option<&PodFacts>,
    why: Why,
) -> Version {
    pod.and_then(|pod| pod.version)
        .filter(|_| why != Why::Upgrade)
        .unwrap_or(cluster.version)
}

/// The claim of a member that serves says another version, and the spec no longer does: the move was taken back between the two writes
/// that begin it. Should its pod be lost, it must not make that move after all.
pub(super) fn keep_version(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let (name, version) = seen.members.iter().find_map(|(name, member)| {
        let (pod, claim) = (member.pod.as_ref()?, member.claim.as_ref()?);
        let (runs, says) = (pod.version?, claim.version?);
        let stays = member.healthy() && !pod.terminating;
        (stays && runs != says && says != cluster.version).then_some((name, runs))
    })?;
    Some(Plan::step(
        Step::KeepVersion {
            name: name.clone(),
            version,
        },
        Activity::Upgrading,
        Reason::RollingVersion,
        format!("{name} stays on {version}"),
    ))
}

/// What a member was to run that is taken back without having been seen to serve, by a restart to the spec's version.
pub(crate) fn taken_back_from(
    cluster: &ValidatedCluster,
    seen: &Observed,
    pod: &PodFacts,
) -> Option<Version> {
    let back_to = cluster.version.minor();
    let unseen = seen.running().is_none() && seen.last_ran?.minor() == back_to;
    pod.version
        .filter(|version| unseen && version.minor() > back_to)
}

/// etcd itself would let a member skip a minor: this is the only guard, the same one admission asks.
fn illegal(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let versions = seen
        .voters()
        .filter_map(|(_, member)| member.answer.as_ref()?.version.parse().ok());
    let refusal = judge_step(Running::among(versions)?, cluster.version).err()?;
    Some(Plan::stalled(
        Reason::IllegalVersionChange,
        refusal.to_string(),
    ))
}

pub(super) fn why_outdated(
    cluster: &ValidatedCluster,
    seen: &Observed,
    name: &str,
    pod: &PodFacts,
) -> Option<Why> {
    if pod.version.as_ref() != Some(&cluster.version) {
        return Some(Why::Upgrade);
    }
    if pod.config != children::fingerprint(cluster, name) || pod.does_not_fit {
        return Some(Why::Configuration);
    }
    let certificates = seen.certificates.as_ref()?;
    let wanted = &certificates.members.get(name)?.loads;
    let under_way = certificates
        .authorities
        .iter()
        .any(|authority| authority.stage != Stage::Settled);
    // A pod that says nothing was made before pods said it, and no authority had ever changed then.
    let outdated = pod
        .loads
        .as_ref()
        .map_or(under_way, |loads| loads != wanted);
    outdated.then_some(Why::Authority)
}

/// Who takes over leadership: the healthy voter that is furthest along, of those that may. Nobody before etcd could hand over.
pub(super) fn successor(
    seen: &Observed,
    may: impl Fn(&String, &Member) -> bool,
) -> Option<(String, u64)> {
    let handed_over = seen
        .running()
        .is_some_and(|running| running.lowest().abilities().move_leader);
    if !handed_over {
        return None;
    }
    seen.voters()
        .filter(|(name, member)| may(name, member) && member.healthy() && !member.leaving())
        .max_by_key(|(_, member)| member.answer.as_ref().map(|answer| answer.raft_index))
        .and_then(|(name, member)| Some((name.clone(), member.listed.as_ref()?.id)))
}

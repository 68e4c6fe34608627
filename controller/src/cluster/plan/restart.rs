//! A member whose pod is gone but whose volume is intact comes back on it; membership does not change.

use etcd_operator_api::ValidatedCluster;

use super::{alone, bootstrap::prepared, rollout, storage, survivor};
use crate::cluster::{
    children::{self, InPlace},
    observed::{ClaimFacts, Member, Observed, PodFacts},
    step::{Activity, Plan, Reason, Step, Why},
};

/// Nobody serves linearizable reads: bring back what can come back, and touch nothing else.
pub(super) fn without_quorum(cluster: &ValidatedCluster, seen: &Observed) -> Plan {
    let total = seen.members.len();
    let startable: Vec<String> = seen
        .members
        .iter()
        .filter(|(name, member)| {
            member.pod.is_none()
                && member.claim.as_ref().is_some_and(ClaimFacts::usable)
                && seen.starts.contains_key(*name)
        })
        .map(|(name, _)| name.clone())
        .collect();
    if !startable.is_empty() {
        return Plan::step(
            Step::Start {
                members: startable,
                why: Why::PodGone,
            },
            Activity::Recovering,
            Reason::MembersMissing,
            "no quorum: bringing members back on their volumes",
        );
    }
    // What a pod that has ended holds in itself may be the last there is of the data.
    if let Some(plan) = finished_pod(seen, |member| !member.on_scratch())
        .or_else(|| alone::give_the_word(seen))
        .or_else(|| stuck_on_an_old_spec(cluster, seen))
        .or_else(|| storage::room_for_the_unwell(cluster, seen))
    {
        return plan;
    }
    if seen.locked_out {
        return Plan::stalled(
            Reason::AuthEnabled,
            "etcd has authentication enabled and does not let the operator in: nobody can say how the cluster is. The operator \
             needs a client certificate whose common name is `root`: with security.clientTLS.mode Auto it makes its own, \
             with a Secret the certificate in it must be such a one; or `etcdctl auth disable`",
        );
    }
    if let Some(plan) = survivor::asked_for(cluster, seen) {
        return plan;
    }
    if let Some(words) = survivor::Left::of(cluster, seen).words(cluster, seen) {
        return Plan::stalled(Reason::QuorumLost, words);
    }
    let answering = seen
        .members
        .values()
        .filter(|member| member.answer.is_some())
        .count();
    let message = format!(
        "no quorum: {answering} of {total} members answer{}{}",
        troubles(seen),
        kept_versions(cluster, seen)
    );
    // One that goes will come back, and a leader that could not hand over is missed until the others have elected another.
    let under_way = |member: &Member| {
        member.pod.as_ref().is_some_and(|pod| {
            let lately = seen.now.duration_since(pod.since) < jiff::SignedDuration::from_mins(2);
            pod.terminating || (!pod.ready && lately)
        })
    };
    if seen.members.values().any(under_way) {
        Plan::waiting(Activity::Recovering, Reason::QuorumLost, message)
    } else {
        Plan::stalled(
            Reason::QuorumLost,
            format!(
                "{message}; nothing is deleted: bring the members' nodes or volumes back; or {}",
                survivor::from_backup(cluster, seen)
            ),
        )
    }
}

/// Members etcd lists that have no pod, and what they need before they can have one.
pub(super) fn missing_pods(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    if let Some(plan) = finished_pod(seen, |_| true) {
        return Some(plan);
    }
    let absent: Vec<(&String, &Member)> = seen
        .members
        .iter()
        .filter(|(_, member)| {
            member.pod.is_none()
                && member.listed.is_some()
                && !data_lost(member)
                // A claim on its way out takes no new pod; when it is gone, so is the data.
                && member.claim.as_ref().is_none_or(|claim| !claim.terminating)
        })
        .collect();
    let activity = if absent
        .iter()
        .any(|(_, member)| member.listed.as_ref().is_some_and(|listed| listed.started))
    {
        Activity::Recovering
    } else {
        Activity::Scaling
    };
    let (ready, unready): (Vec<_>, Vec<_>) = absent
        .into_iter()
        .partition(|(name, _)| prepared(cluster, seen, name));
    let names = |members: Vec<(&String, &Member)>| {
        members
            .into_iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    if !unready.is_empty() {
        let members = names(unready);
        let message = format!("preparing {}", members.join(", "));
        return Some(Plan::step(
            Step::Prepare { members },
            activity,
            Reason::MembersMissing,
            message,
        ));
    }
    if !ready.is_empty() {
        let why = if activity == Activity::Recovering {
            Why::PodGone
        } else {
            Why::Joining
        };
        let members = names(ready);
        let message = format!("starting {}", members.join(", "));
        return Some(Plan::step(
            Step::Start { members, why },
            activity,
            Reason::MembersMissing,
            message,
        ));
    }
    None
}

/// A pod that has ended for good (evicted, node shut down) blocks its own replacement.
fn finished_pod(seen: &Observed, may_go: impl Fn(&Member) -> bool) -> Option<Plan> {
    let (name, pod) = seen.members.iter().find_map(|(name, member)| {
        let pod = member.pod.as_ref()?;
        (pod.finished && !pod.terminating && may_go(member)).then_some((name, pod))
    })?;
    Some(Plan::step(
        Step::DeletePod {
            name: name.clone(),
            pod_uid: pod.uid.clone(),
            why: Why::PodFinished,
        },
        Activity::Recovering,
        Reason::MembersMissing,
        format!("pod {name} has ended and is made anew"),
    ))
}

/// A pod that cannot run as it was made, and that the spec has since changed: it is made anew, or putting the spec right
/// would never help. It serves nobody, so nobody misses it.
pub(super) fn stuck_on_an_old_spec(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let (name, pod, why) = seen.members.iter().find_map(|(name, member)| {
        let pod = member.pod.as_ref()?;
        let on_a_claim = member.claim.as_ref().is_some_and(ClaimFacts::usable);
        let started = member.listed.as_ref().is_some_and(|listed| listed.started);
        let useless = member.answer.is_none() && !pod.ready && !pod.terminating && !pod.finished;
        // One that waits beside the cluster has rules of its own.
        let beside = seen.quorum.is_some() && member.listed.is_none();
        let why = why_made_anew(cluster, seen, name, member, pod)?;
        (useless && !beside && (on_a_claim || !started)).then_some((name, pod, why))
    })?;
    Some(Plan::step(
        Step::Restart {
            name: name.clone(),
            pod_uid: pod.uid.clone(),
            why,
        },
        Activity::Recovering,
        Reason::MembersMissing,
        format!("{name} is not running and is made anew as the spec has it now"),
    ))
}

/// What of a pod that does not run is no longer asked for. What Kubernetes would change in place it can change only on a pod that runs,
/// and a version that it may not come back as keeps it from nothing else.
fn why_made_anew(
    cluster: &ValidatedCluster,
    seen: &Observed,
    name: &str,
    member: &Member,
    pod: &PodFacts,
) -> Option<Why> {
    let why = match rollout::why_outdated(cluster, seen, name, pod) {
        Some(Why::Upgrade) if !rollout::may_start_as(cluster, seen, member, pod) => {
            let as_it_is = children::at_version(cluster, pod.version?);
            rollout::why_outdated(&as_it_is, seen, name, pod)
        }
        why => why,
    };
    let changed = pod.in_place != InPlace::of(cluster);
    why.or(changed.then_some(Why::Configuration))
}

/// A member that has started before and whose volume is gone cannot come back as itself.
pub(super) fn data_lost(member: &Member) -> bool {
    let started = member.listed.as_ref().is_some_and(|listed| listed.started);
    if !started {
        return false;
    }
    match &member.pod {
        Some(pod) if pod.scratch => pod.finished,
        _ => member.claim.as_ref().is_none_or(|claim| claim.lost),
    }
}

/// Who does not run and is not what the spec asks for either, for a message: a member that cannot be asked changes no minor.
fn kept_versions(cluster: &ValidatedCluster, seen: &Observed) -> String {
    seen.members
        .iter()
        .filter(|(_, member)| member.answer.is_none())
        .filter_map(|(name, member)| Some((name, member.pod.as_ref()?.version?)))
        .filter(|(_, version)| *version != cluster.version)
        .fold(String::new(), |text, (name, version)| {
            format!("{text}; {name} does not run and stays on {version} until it does")
        })
}

/// What keeps pods from running, in Kubernetes' words, for a message.
pub(super) fn troubles(seen: &Observed) -> String {
    seen.members
        .iter()
        .filter_map(|(name, member)| Some((name, member.pod.as_ref()?.trouble.as_ref()?)))
        .fold(String::new(), |text, (name, trouble)| {
            format!("{text}; {name}: {trouble}")
        })
}

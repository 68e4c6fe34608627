//! A single member becomes two on an etcd that knows no learners: the moment the second is added, nobody serves until it has started.
//!
//! So its pod is made first. It gets its node, its image and its volumes, and waits there for the word to start; only then is
//! the member added, and the word given with it. What can keep a pod from starting shows while the one member still serves.

use etcd_operator_api::ValidatedCluster;

use super::{
    bootstrap::equipped,
    restart::troubles,
    rollout,
    size::{all_are_well, knows_learners, wanted},
};
use crate::cluster::{
    children, names,
    observed::{Awaits, Observed, PodFacts},
    step::{Activity, Plan, Reason, Step, Why},
};

/// Whether the next member can only be added like that.
pub(super) fn grows_alone(cluster: &ValidatedCluster, seen: &Observed) -> bool {
    seen.voter_count() == 1 && wanted(cluster, seen) > 1 && !knows_learners(seen)
}

/// The pod that waits beside the cluster. There may be a second after a look at an old cache: that one is cleared away.
fn newcomer(seen: &Observed) -> Option<(&String, &PodFacts, Awaits)> {
    seen.members.iter().find_map(|(name, member)| {
        let pod = member.pod.as_ref().filter(|pod| !pod.terminating)?;
        let awaits = pod.awaits.filter(|_| member.listed.is_none())?;
        Some((name, pod, awaits))
    })
}

/// Not a member, and not to be cleared away either.
pub(super) fn is_awaited(cluster: &ValidatedCluster, seen: &Observed, name: &str) -> bool {
    grows_alone(cluster, seen) && newcomer(seen).is_some_and(|(known, ..)| known == name)
}

pub(super) fn grow(cluster: &ValidatedCluster, seen: &Observed) -> Plan {
    let size = wanted(cluster, seen);
    let scaling =
        |step, message: String| Plan::step(step, Activity::Scaling, Reason::ScalingUp, message);
    let waiting = |message: String| Plan::waiting(Activity::Scaling, Reason::ScalingUp, message);
    let Some((name, pod, awaits)) = newcomer(seen) else {
        let name = names::newcomer(cluster, seen);
        let message = format!("1 of {size} members: {name} gets its place before it is added");
        return scaling(Step::Await { name }, message);
    };
    // While an upgrade is asked for too, it joins as what runs.
    let version = rollout::newcomer_version(cluster, seen);
    let wanted = children::at_version(cluster, version);
    if rollout::why_outdated(&wanted, seen, name, pod).is_some() {
        let step = Step::DeletePod {
            name: name.clone(),
            pod_uid: pod.uid.clone(),
            why: Why::NotAMember,
        };
        let message = format!("{name} was made for a spec that has changed since");
        return scaling(step, message);
    }
    if !equipped(cluster, seen, name) {
        let step = Step::Prepare {
            members: vec![name.clone()],
        };
        return scaling(step, format!("1 of {size} members: preparing {name}"));
    }
    if awaits == Awaits::Place {
        return waiting(format!(
            "1 of {size} members: waiting until {name} has its node, image and volume{}",
            troubles(seen)
        ));
    }
    if !all_are_well(seen) {
        return waiting(format!(
            "1 of {size} members: {name} is not added before the first is well"
        ));
    }
    scaling(
        Step::AddVoter { name: name.clone() },
        format!("1 of {size} members: adding {name}"),
    )
}

/// The kubelet asks for the word only every few seconds, unless something about the pod changes.
pub(super) fn give_the_word(seen: &Observed) -> Option<Plan> {
    let (name, pod) = seen.members.iter().find_map(|(name, member)| {
        let pod = member.pod.as_ref()?;
        let held = pod.awaits == Some(Awaits::Word) && !pod.terminating;
        (held && seen.starts.contains_key(name)).then_some((name, pod))
    })?;
    Some(Plan::step(
        Step::GiveWord {
            name: name.clone(),
            pod_uid: pod.uid.clone(),
        },
        Activity::Scaling,
        Reason::ScalingUp,
        format!("waiting for {name} to start"),
    ))
}

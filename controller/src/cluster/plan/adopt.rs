//! A cluster that CoreOS's operator made is taken over as it stands: nothing of it is restarted, and nothing is touched before etcd
//! itself has said who its members are.

use etcd_operator_api::ValidatedCluster;

use super::restart::troubles;
use crate::cluster::{
    children::labels,
    observed::{Member, Observed},
    step::{Activity, Plan, Reason, Step},
};

/// Two operators would undo each other's work, and each would believe that it does right.
pub(super) fn stay_away(seen: &Observed) -> Option<Plan> {
    let holder = seen.coreos.as_ref()?.in_charge.as_ref()?;
    Some(Plan::stalled(
        Reason::OtherOperator,
        format!(
            "CoreOS's operator ({holder}) is at work: nothing is touched. Remove it; this one takes over when its lock, the \
             Endpoints etcd-operator, has not been renewed for half a minute"
        ),
    ).soon())
}

/// Takes over what is there, or says why not.
pub(super) fn take_over(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let coreos = seen.coreos.as_ref()?;
    if seen.bootstrap.is_some() {
        return None;
    }
    let held = |reason, message: String| Some(Plan::stalled(reason, message).soon());
    let pods: Vec<&String> = seen
        .members
        .iter()
        .filter(|(_, member)| member.pod.is_some())
        .map(|(name, _)| name)
        .collect();
    if pods.is_empty() {
        if seen.start_afresh {
            return None;
        }
        return held(
            Reason::NothingToTakeOver,
            format!(
                "CoreOS's operator ran this cluster, and no pod of it is left: nothing is started in its place. Restore a backup into a \
                 new cluster, or give this resource the annotation {} to start empty",
                labels::START_AFRESH
            ),
        );
    }
    if !coreos.misfits.is_empty() {
        return held(
            Reason::CannotTakeOver,
            format!(
                "{}: nothing is touched. Put the spec right, or make a new cluster and restore a backup",
                coreos.misfits.join("; ")
            ),
        );
    }
    if seen.locked_out {
        return held(
            Reason::AuthEnabled,
            "etcd has authentication enabled and does not let the operator in: nothing is touched. Its certificate \
             (TLS.static.operatorSecret) must have the common name `root`, or `etcdctl auth disable`"
                .to_owned(),
        );
    }
    let Some(quorum) = &seen.quorum else {
        return held(
            Reason::QuorumLost,
            format!(
                "no quorum of {} answers: a cluster is taken over when it serves, and nothing is touched before{}",
                pods.iter()
                    .map(|name| name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
                troubles(seen)
            ),
        );
    };
    if !quorum.strangers.is_empty() {
        return held(
            Reason::UnknownMember,
            format!(
                "etcd lists {} members whose addresses are none of this cluster's: nothing is touched. Remove them with `etcdctl \
                 member remove`",
                quorum.strangers.len()
            ),
        );
    }
    let known = |member: &Member| member.pod.is_some() && member.listed.is_some();
    if !seen.members.values().any(known) {
        return held(
            Reason::CannotTakeOver,
            "etcd lists none of the pods that are here: nothing is touched".to_owned(),
        );
    }
    if cluster.paused {
        return held(
            Reason::Paused,
            "spec.paused is true: the cluster is taken over when that is lifted".to_owned(),
        );
    }
    let step = Step::Adopt {
        members: pods.into_iter().cloned().collect(),
    };
    let message = step.to_string();
    Some(Plan::step(
        step,
        Activity::Configuring,
        Reason::TakingOver,
        message,
    ))
}

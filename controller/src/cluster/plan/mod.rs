//! The rulebook: from a sound spec and one look at the cluster to what happens next. Pure: no I/O, no clock, no randomness.
//!
//! The rules are asked in order; the first that has something to say decides. Repair comes before change, and change of
//! membership before change of configuration, so that nothing voluntary starts on a cluster that is not whole.

mod bootstrap;
mod certificates;
mod gate;
mod heal;
mod restart;
mod rollout;
#[cfg(test)]
mod simulation;
mod size;
mod storage;
#[cfg(test)]
mod tests;

use etcd_operator_api::ValidatedCluster;

use super::{
    observed::Observed,
    step::{Activity, Outlook, Plan, Reason},
};

/// Decides the next step for one cluster.
pub fn plan(cluster: &ValidatedCluster, seen: &Observed) -> Plan {
    let plan = unpaused(cluster, seen);
    if cluster.paused && plan.step.is_some() {
        return Plan {
            step: None,
            outlook: Outlook::Working {
                activity: Activity::Configuring,
                reason: Reason::Paused,
                message: "spec.paused is true: no step is taken".to_owned(),
            },
            ..plan
        };
    }
    plan
}

fn unpaused(cluster: &ValidatedCluster, seen: &Observed) -> Plan {
    if let Some(plan) = names_taken(seen) {
        return plan;
    }
    let Some(cluster_id) = seen.cluster_id else {
        return bootstrap::plan(cluster, seen);
    };
    let Some(quorum) = &seen.quorum else {
        return restart::without_quorum(seen);
    };
    if quorum.cluster_id != cluster_id {
        return Plan::stalled(
            Reason::DifferentCluster,
            format!(
                "the members serve etcd cluster {:x}, but this resource is cluster {cluster_id:x}: nothing is touched",
                quorum.cluster_id
            ),
        );
    }
    let rules = [
        certificates::renew,
        heal::clear_away,
        restart::missing_pods,
        heal::replace_lost,
        heal::learner,
        storage::grow,
        size::follow_spec,
        heal::wait_for_health,
        rollout::follow_spec,
    ];
    rules
        .iter()
        .find_map(|rule| rule(cluster, seen))
        .unwrap_or_else(Plan::settled)
}

/// Children of a former cluster of the same name: Kubernetes collects them, and until it has, their names are taken.
fn names_taken(seen: &Observed) -> Option<Plan> {
    if seen.foreign.is_empty() {
        return None;
    }
    Some(Plan::waiting(
        Activity::Creating,
        Reason::WaitingForOldChildren,
        format!(
            "waiting until {} of a former cluster of this name is collected; delete what was left behind on purpose",
            seen.foreign.join(", ")
        ),
    ))
}

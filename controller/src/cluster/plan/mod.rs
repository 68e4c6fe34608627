//! The rulebook: from a sound spec and one look at the cluster to what happens next. Pure: no I/O, no clock, no randomness.
//!
//! The rules are asked in order; the first that has something to say decides. Repair comes before change, and change of
//! membership before change of configuration, so that nothing voluntary starts on a cluster that is not whole.

mod adopt;
mod alarms;
mod alone;
mod aside;
pub(crate) mod before_risk;
mod bootstrap;
mod certificates;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod exhaustive;
mod gate;
mod heal;
mod maintenance;
#[cfg(test)]
mod model;
mod restart;
pub(crate) mod rollout;
#[cfg(test)]
mod simulation;
mod size;
mod storage;
mod survivor;
#[cfg(test)]
mod tests;

use etcd_operator_api::ValidatedCluster;

use super::{
    observed::Observed,
    step::{Activity, Outlook, Plan, Reason},
};

pub(crate) use survivor::goes_on_alone;

/// Decides the next step for one cluster.
pub fn plan(cluster: &ValidatedCluster, seen: &Observed) -> Plan {
    if let Some(plan) = adopt::stay_away(seen) {
        return plan;
    }
    if let Some(plan) = certificates::renew(seen) {
        return plan;
    }
    let plan = unpaused(cluster, seen);
    if cluster.paused && plan.outlook == Outlook::Settled {
        return Plan::settled();
    }
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
    if let Some(plan) = adopt::take_over(cluster, seen) {
        return plan;
    }
    if let Some(plan) = storage::follow_reclaim(cluster, seen) {
        return plan;
    }
    if let Some(plan) = aside::stop(cluster, seen) {
        return plan;
    }
    let Some(cluster_id) = seen.cluster_id else {
        return names_taken(seen).unwrap_or_else(|| bootstrap::plan(cluster, seen));
    };
    if let Some(plan) = survivor::go_on(seen) {
        return plan;
    }
    let Some(quorum) = &seen.quorum else {
        return restart::without_quorum(cluster, seen);
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
        // Nobody can write while an alarm about a member stands: it comes before everything.
        alarms::of_the_gone,
        alarms::corrupt,
        heal::clear_away,
        rollout::keep_version,
        restart::missing_pods,
        heal::replace_lost,
        restart::stuck_on_an_old_spec,
        heal::learner,
        alarms::make_room,
        size::follow_spec,
        storage::room_for_the_unwell,
        heal::wait_for_health,
        rollout::follow_spec,
        rollout::in_place,
        certificates::rotate,
        alarms::out_of_space,
        // A class that cannot grow must not keep anything else from happening.
        storage::grow,
        storage::wait_until_grown,
        survivor::finish,
        aside::release,
        maintenance::defragment,
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

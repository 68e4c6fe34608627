//! Volumes grow with the spec, all at once and while members serve. They never shrink: admission refuses that.

use etcd_operator_api::{ValidatedCluster, validated::Storage};

use crate::cluster::{
    observed::Observed,
    step::{Activity, Plan, Reason, Step},
};

pub(super) fn grow(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let Storage::Claim(settings) = &cluster.storage else {
        return None;
    };
    let members: Vec<String> = seen
        .members
        .iter()
        .filter(|(_, member)| {
            let claim = member.claim.as_ref().filter(|claim| claim.usable());
            claim
                .and_then(|claim| claim.requested)
                .is_some_and(|requested| requested < settings.size_bytes)
        })
        .map(|(name, _)| name.clone())
        .collect();
    if members.is_empty() {
        return None;
    }
    let message = format!("growing {} volumes to {}", members.len(), settings.size.0);
    let step = Step::GrowClaims {
        members,
        size: settings.size.0.clone(),
    };
    Some(Plan::step(
        step,
        Activity::Configuring,
        Reason::GrowingStorage,
        message,
    ))
}

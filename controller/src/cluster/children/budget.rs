//! The PodDisruptionBudget: one member at a time may be evicted, and only while the others are ready.

use etcd_operator_api::ValidatedCluster;
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use super::labels;

/// `minAvailable` as a number rather than `maxUnavailable`: it then counts ready pods, not pods that should exist, so a
/// member that is missing altogether also uses up the budget. A cluster of one may be evicted, or its node could never be
/// drained; it comes back on its volume.
pub(crate) fn budget(cluster: &ValidatedCluster, voters: usize) -> PodDisruptionBudget {
    // While the cluster shrinks, the voters there are still need one another.
    let members = cluster.size.members().max(voters);
    let others = i32::try_from(members).unwrap_or(i32::MAX) - 1;
    PodDisruptionBudget {
        metadata: labels::metadata(cluster, &cluster.name, labels::of_cluster(cluster)),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(others)),
            selector: Some(LabelSelector {
                match_labels: Some(labels::selector(cluster)),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

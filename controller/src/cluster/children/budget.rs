//! The PodDisruptionBudget: one member at a time may be evicted, and only while the others are ready and a quorum.

use etcd_operator_api::ValidatedCluster;
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use super::labels;
use crate::cluster::observed::quorum_of;

/// `minAvailable` as a number rather than `maxUnavailable`: it then counts ready pods, not pods that should exist, so a
/// member that is missing altogether also uses up the budget. A cluster of one may be evicted, or its node could never be
/// drained; it comes back on its volume.
pub(crate) fn budget(cluster: &ValidatedCluster, voters: usize) -> PodDisruptionBudget {
    let others = i32::try_from(enough(cluster.size.members(), voters)).unwrap_or(i32::MAX);
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

/// How many members must stay ready, of so many that are asked for and so many that vote now.
fn enough(size: usize, voters: usize) -> usize {
    if size < voters && voters <= 3 {
        // On the way to one: of two voters both are needed. Of three one could be spared, but the pod of the one that is removed
        // next counts as ready for another moment, in which nobody else may go.
        return voters;
    }
    // While the cluster shrinks, the voters there are still need one another.
    let all_but_one = size.max(voters) - 1;
    if voters > 1 {
        all_but_one.max(quorum_of(voters))
    } else {
        all_but_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_is_let_through_only_where_a_quorum_is_left() {
        for (size, voters, wanted) in [
            // At rest one may go; a cluster of one may be moved.
            (1, 1, 0),
            (3, 3, 2),
            (5, 5, 4),
            (7, 7, 6),
            // Being created, or growing.
            (1, 0, 0),
            (3, 0, 2),
            (3, 1, 2),
            (3, 2, 2),
            (5, 4, 4),
            // Shrinking.
            (3, 5, 4),
            (3, 4, 3),
            (1, 3, 3),
            (1, 2, 2),
        ] {
            assert_eq!(enough(size, voters), wanted, "{voters} voters of {size}");
            let at_rest = size == 1 && voters <= 1;
            assert!(at_rest || wanted >= quorum_of(voters));
        }
    }
}

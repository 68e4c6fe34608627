//! A member's claim.

use etcd_operator_api::{ValidatedCluster, Version, v1beta2::Reclaim, validated::Storage};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::labels;

/// The claim of one member, or nothing where members live on their nodes' scratch space.
pub(crate) fn claim(
    cluster: &ValidatedCluster,
    member: &str,
    version: Version,
) -> Option<PersistentVolumeClaim> {
    let Storage::Claim(settings) = &cluster.storage else {
        return None;
    };
    let mut metadata = labels::metadata(cluster, member, labels::of_member(cluster, member));
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(labels::CLAIM_VERSION.to_owned(), version.to_string());
    if settings.reclaim == Reclaim::Retain {
        // Without an owner it outlives the resource; the annotation still says whose it is.
        annotations.insert(labels::CLUSTER_UID.to_owned(), cluster.uid.clone());
        metadata.owner_references = None;
    }
    Some(PersistentVolumeClaim {
        metadata,
        spec: Some(settings.spec.clone()),
        status: None,
    })
}

//! The labels every child carries: Kubernetes' recommended ones and CoreOS's.

use std::collections::BTreeMap;

use etcd_operator_api::{ValidatedCluster, v1beta2::EtcdCluster};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

pub(crate) type Labels = BTreeMap<String, String>;

/// What our watches ask for: nothing else of the cluster is read or kept in memory.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "etcd-operator");
/// Which member a pod, claim or Secret belongs to.
pub const MEMBER: &str = "etcd_node";
/// Which cluster a child belongs to, by name.
pub const CLUSTER: &str = "etcd_cluster";
/// Which version a pod was made for.
pub const VERSION: &str = "app.kubernetes.io/version";
/// Whose claim this is, where no owner reference says so because the claim outlives the resource.
pub const CLUSTER_UID: &str = "etcd.database.coreos.com/cluster-uid";
/// The version the member on a claim is to run.
pub const CLAIM_VERSION: &str = "etcd.database.coreos.com/version";
/// The version the member on a claim was taken back from before anybody had seen it serve as that.
pub const TAKEN_BACK_FROM: &str = "etcd.database.coreos.com/taken-back-from";
/// Fingerprint of the configuration a pod was made with.
pub const CONFIG: &str = "etcd.database.coreos.com/config";

/// What of the spec was last put on a pod in place.
pub const IN_PLACE: &str = "etcd.database.coreos.com/in-place";
/// Fingerprint of the certificate authorities a pod was started with.
pub const LOADS: &str = "etcd.database.coreos.com/authorities";
/// On a pod that was made before its member was added to etcd. The value changes when the member is, for the kubelet to look again.
pub const NEWCOMER: &str = "etcd.database.coreos.com/newcomer";
/// On an EtcdCluster: a new value asks for new certificate authorities now.
pub const ROTATE_CA: &str = "etcd.database.coreos.com/rotate-ca";

/// On an EtcdCluster: it is to start empty although a former one of its name has left claims behind.
pub const START_AFRESH: &str = "etcd.database.coreos.com/start-afresh";

/// On an EtcdCluster that has lost its quorum for good: it is to go on from the best member left. The value is its cluster ID.
pub const RECOVER_FROM_SURVIVOR: &str = etcd_operator_api::v1beta2::RECOVER_FROM_SURVIVOR;

/// A readiness gate that nobody ever opens: on the pod of a survivor that is started as the only member.
pub const NO_LONGER_ALONE: &str = "etcd.database.coreos.com/no-longer-alone";

/// What Services, the budget and the scale subresource select members by.
pub(crate) fn selector(cluster: &ValidatedCluster) -> Labels {
    Labels::from([
        ("app".to_owned(), "etcd".to_owned()),
        (CLUSTER.to_owned(), cluster.name.clone()),
    ])
}

pub(crate) fn of_cluster(cluster: &ValidatedCluster) -> Labels {
    let mut labels = selector(cluster);
    labels.extend(
        [
            ("app.kubernetes.io/name", "etcd"),
            ("app.kubernetes.io/instance", &cluster.name),
            ("app.kubernetes.io/component", "etcd"),
            MANAGED_BY,
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    labels
}

pub(crate) fn of_member(cluster: &ValidatedCluster, member: &str) -> Labels {
    let mut labels = of_cluster(cluster);
    labels.insert(MEMBER.to_owned(), member.to_owned());
    labels
}

/// Name, namespace, labels and owner of a child. The owner reference is what deletes children with their cluster.
pub(crate) fn metadata(
    cluster: &ValidatedCluster,
    name: impl Into<String>,
    labels: Labels,
) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(cluster.namespace.clone()),
        labels: Some(labels),
        owner_references: Some(vec![owner(cluster)]),
        ..ObjectMeta::default()
    }
}

/// Owned by this very resource; a retained claim has no owner and says whose it is by annotation.
pub(crate) fn belongs(child: &ObjectMeta, cluster: &ValidatedCluster) -> bool {
    is_of(child, &cluster.uid)
}

/// The same, by the UID of the resource.
pub(crate) fn is_of(child: &ObjectMeta, uid: &str) -> bool {
    let owned = child
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.uid == uid);
    let said = child
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(CLUSTER_UID));
    owned || said.is_some_and(|said| said == uid)
}

pub(crate) fn owner(cluster: &ValidatedCluster) -> OwnerReference {
    OwnerReference {
        api_version: EtcdCluster::api_version(&()).into_owned(),
        kind: EtcdCluster::kind(&()).into_owned(),
        name: cluster.name.clone(),
        uid: cluster.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

//! EtcdRestore: which backup, and into which cluster.

// Printer columns repeat their words; the lint takes that for a slip.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{known_or_none, well_formed_only};
use super::{AbsStore, EtcdClusterSpec, GcsStore, PvcStore, S3Store, StorageType};

/// Which backup, and into which cluster. Nothing is touched until the backup is fetched, checked and shown to fit.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdRestore",
    plural = "etcdrestores",
    singular = "etcdrestore",
    namespaced,
    status = "EtcdRestoreStatus",
    derive = "PartialEq",
    doc = "EtcdRestore brings a backup back, into a new EtcdCluster or in place, once.",
    shortname = "etcdres",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".status.clusterName",
        description = "The EtcdCluster that gets the data."
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.phase",
        description = "The state of the restore in one word."
    ),
    printcolumn(
        name = "Progress",
        type_ = "string",
        json_path = ".status.progress",
        description = "How much of the phase is done."
    ),
    printcolumn(
        name = "Revision",
        type_ = "integer",
        json_path = ".status.etcdRevision",
        description = "etcd's revision in the backup.",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreSpec {
    /// The EtcdBackup, in the same namespace, whose store is read. Either this or a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_name: Option<String>,

    /// With `backupName`: which of its snapshots, as `status.history` of the EtcdBackup names it. Default: the newest good one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub snapshot: Option<String>,

    /// The kind of store: `S3`, `GCS`, `ABS` or `PVC`. Default: the one that is described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_storage_type: Option<StorageType>,

    /// With `backupStorageType: S3`: a bucket of S3, or of a store that speaks its language. `path` names one backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,

    /// With `backupStorageType: GCS`: a bucket of Google Cloud Storage. `path` names one backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsStore>,

    /// With `backupStorageType: ABS`: a container of Azure Blob Storage. `path` names one backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs: Option<AbsStore>,

    /// With `backupStorageType: PVC`: a volume in the Kubernetes cluster. `path` names one backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcStore>,

    /// ServiceAccount of the Pods that fetch, for stores that are reached by workload identity. Default: the namespace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// In place: the EtcdCluster, in the same namespace, whose data are replaced by the backup's. Its old volumes are kept until
    /// it is Ready again. Either this or `newCluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_cluster: Option<EtcdClusterRef>,

    /// The EtcdCluster to make from the backup; it must not exist yet. Either this or `etcdCluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_cluster: Option<NewCluster>,
}

/// An EtcdCluster that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterRef {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// For a cluster that has lost its quorum for good: etcd's ID of the cluster that is meant, as `status.clusterID` has it. The
    /// restore is refused while a quorum serves, and where the cluster is another by now: so it is done once.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub cluster_id: Option<String>,
}

/// An EtcdCluster to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewCluster {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Its spec, as an EtcdCluster has it. Where `version` is not set, it is the one the backup was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<EtcdClusterSpec>,
}

/// What the operator sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreStatus {
    /// The generation of the spec this status speaks of; -1 before the operator has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (the data are back and the cluster serves), `Reconciling`, `Stalled`.
    #[serde(
        default,
        deserialize_with = "well_formed_only",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,

    /// `Fetching`, `Checking`, `Restoring`, `Starting`, `Succeeded` or `Failed`. Once there is one, the spec is fixed.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>", length(max = 64))]
    pub phase: Option<RestorePhase>,

    /// How much of the phase is done, such as `1.2Gi/2Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,

    /// Whether the restore was good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<bool>,

    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The EtcdCluster that gets the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,

    /// The snapshot that was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,

    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,

    /// etcd's hash of it, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,

    /// SHA-256 of its data: what was checked is what is restored, on every member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,

    /// The etcd version it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,

    /// etcd's revision in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_revision: Option<i64>,

    /// When the restore began.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub started: Option<Time>,

    /// When it ended.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub finished: Option<Time>,
}

/// How far a restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestorePhase {
    /// The backup is being fetched; nothing has been touched.
    Fetching,
    /// The backup is being checked; nothing has been touched.
    Checking,
    /// The members' volumes are being filled.
    Restoring,
    /// The members are being started on them.
    Starting,
    /// The data are back.
    Succeeded,
    /// It was given up; what was there before is there still.
    Failed,
}

//! EtcdBackup: what is saved, when, and where to.

// Printer columns repeat their words; the lint takes that for a slip.
#![allow(clippy::duplicated_attributes)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AbsStore, EtcdBackupStatus, GcsStore, PvcStore, S3Store, StorageType};
use crate::duration::GoDuration;

/// What is saved, when, and where to. Without `schedule` and without an interval: once.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdBackup",
    plural = "etcdbackups",
    singular = "etcdbackup",
    namespaced,
    status = "EtcdBackupStatus",
    derive = "PartialEq",
    doc = "EtcdBackup saves an etcd cluster's data in a store, once or again and again.",
    shortname = "etcdbak",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterName",
        description = "The EtcdCluster that is saved."
    ),
    printcolumn(
        name = "Storage",
        type_ = "string",
        json_path = ".spec.storageType",
        description = "The kind of store."
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.summary",
        description = "The state of the backup in one word."
    ),
    printcolumn(
        name = "Last Success",
        type_ = "date",
        json_path = ".status.lastSuccessDate",
        description = "When the newest good snapshot was taken."
    ),
    printcolumn(
        name = "Revision",
        type_ = "integer",
        json_path = ".status.etcdRevision",
        description = "etcd's revision in the newest good snapshot.",
        priority = 1
    ),
    printcolumn(
        name = "Next",
        type_ = "string",
        json_path = ".status.nextRun",
        description = "When the next run is due.",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupSpec {
    /// The EtcdCluster to save, in the same namespace. Either this or `etcdEndpoints`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,

    /// Client endpoints of one etcd cluster, such as `http://example-client:2379`. The most up-to-date one is asked. Either
    /// this or `clusterName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(max = 300)))]
    pub etcd_endpoints: Option<Vec<String>>,

    /// With `etcdEndpoints`: Secret with the client certificate, keys `etcd-client.crt`, `etcd-client.key` and
    /// `etcd-client-ca.crt`. With `clusterName` the cluster's own certificates are used.
    #[serde(
        rename = "clientTLSSecret",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub client_tls_secret: Option<String>,

    /// Secret with `username` and `password` of an etcd user that may read everything, where etcd asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_secret: Option<String>,

    /// The kind of store: `S3`, `GCS`, `ABS` or `PVC`. Default: the one that is described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_type: Option<StorageType>,

    /// With `storageType: S3`: a bucket of S3, or of a store that speaks its language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,

    /// With `storageType: GCS`: a bucket of Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsStore>,

    /// With `storageType: ABS`: a container of Azure Blob Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs: Option<AbsStore>,

    /// With `storageType: PVC`: a volume in the Kubernetes cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcStore>,

    /// ServiceAccount of the Pods that save, for stores that are reached by workload identity. Default: the namespace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// When to save, as a CronJob writes it: `0 3 * * *` or `@daily`. Not together with `backupPolicy.backupIntervalInSecond`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub schedule: Option<String>,

    /// The time zone of `schedule`, such as `Europe/Berlin`. Default: `Etc/UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,

    /// Time-out, interval and number of backups, as the CoreOS operator read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_policy: Option<BackupPolicy>,

    /// Which backups of this resource are kept. The newest good one is never removed. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionSpec>,

    /// While true no run is started. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// What happens when a run is due while one is under way: `Forbid` skips the new one, `Replace` ends the old one.
    /// Default: `Forbid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<ConcurrencyPolicy>,

    /// How a snapshot proves itself before it counts: `Hash` compares etcd's own hash, `Restore` also starts etcd on it in a
    /// scratch Pod. Default: `Hash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
}

/// Time-out, interval and number of backups, as the CoreOS operator read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// How long one run may take, in seconds, at most 604800. 0 means the default: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_in_second: Option<i64>,

    /// Seconds from one run to the next, 10 to 31536000. 0 means once. Not together with `schedule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_interval_in_second: Option<i64>,

    /// How many backups are kept, at most 10000. 0 means all. Not together with `retention.count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backups: Option<i64>,
}

/// Which backups are kept; what either says is to go, goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionSpec {
    /// The newest so many are kept, 1 to 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,

    /// What is older is removed: a duration such as `720h`, at least `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub age: Option<GoDuration>,
}

/// What happens when a run is due while one is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    #[default]
    Forbid,
    Replace,
}

/// How a snapshot proves itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verify {
    #[default]
    Hash,
    Restore,
}

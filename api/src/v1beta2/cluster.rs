//! EtcdCluster: the root object and its spec.

// Printer columns repeat their words; the lint takes that for a slip.
#![allow(clippy::duplicated_attributes)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    EtcdClusterStatus, OptionsSpec, PodPolicy, SecuritySpec, ServiceSpec, StorageSpec, TlsPolicy,
};
use crate::duration::GoDuration;

/// What the etcd cluster should be. Everything is optional: `spec: {}` is a sound three-member cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    singular = "etcdcluster",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    doc = "EtcdCluster is an etcd cluster that the operator creates, heals, scales and upgrades.",
    shortname = "etcd",
    shortname = "etcdclus",
    category = "etcd",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.readyMembers",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.ready",
        description = "Members ready, of the members asked for."
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.summary",
        description = "The state of the cluster in one word."
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.currentVersion",
        description = "The etcd version that runs."
    ),
    printcolumn(
        name = "Leader",
        type_ = "string",
        json_path = ".status.leader",
        description = "The member that leads.",
        priority = 1
    ),
    printcolumn(
        name = "Client",
        type_ = "string",
        json_path = ".status.clientEndpoint",
        description = "Where clients connect.",
        priority = 1
    ),
    printcolumn(
        name = "DB Size",
        type_ = "string",
        json_path = ".status.dbSize",
        description = "Size of the largest member's database file.",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// How many members: 1, 3, 5 or 7. An even number is refused, because it adds a member that can fail and tolerates no
    /// failure more. One member tolerates none. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,

    /// The etcd version, `X.Y.Z`; a leading `v` means the same. It may move to any patch of the same minor, one minor up, and
    /// one minor down from 3.6 on. Default: the operator's default version, written once when the cluster is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The image repository, without tag and digest: the image is `<repository>:v<version>`. Default:
    /// `gcr.io/etcd-development/etcd`; `quay.io/coreos/etcd` for versions before 3.4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,

    /// While true the operator takes no step; the status stays truthful. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,

    /// Where each member keeps its data. Not together with `pod.persistentVolumeClaimSpec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,

    /// TLS between members and towards clients. Not together with `TLS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<SecuritySpec>,

    /// Settings of the etcd process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<OptionsSpec>,

    /// How the members' Pods are made and where they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodPolicy>,

    /// TLS from Secrets, as the CoreOS operator read it. Prefer `security`; not together with it.
    #[serde(rename = "TLS", default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPolicy>,

    /// The Services in front of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,

    /// How the operator heals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoverySpec>,

    /// What the operator does to the database by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<MaintenanceSpec>,

    /// The backups this cluster relies on. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<RelianceSpec>,

    /// While true, deleting this EtcdCluster is refused. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_protection: Option<bool>,
}

/// How the operator heals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoverySpec {
    /// How long a member on a lost node is waited for before it is replaced: a duration such as `5m`, from `30s` to `24h`.
    /// Default: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_after: Option<GoDuration>,
}

/// The backups a cluster relies on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelianceSpec {
    /// The EtcdBackup that saves this cluster, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_name: Option<String>,

    /// `Always` takes a backup before each change of the minor version, each restore in place and each recovery, and does not
    /// begin before it is good; `Never` does not. Default: `Always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_risk: Option<BeforeRisk>,

    /// How old the newest good backup may be before the condition `BackupHealthy` turns false: a duration such as `26h`, from
    /// `10m` to `8784h`. Default: `26h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub max_age: Option<GoDuration>,
}

/// Whether a backup is taken before what cannot be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BeforeRisk {
    Always,
    Never,
}

/// What the operator does to the database by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceSpec {
    /// `Auto` gives space back to the disk, one member at a time and the leader last, when a database file has grown beyond a
    /// quarter of the quota and less than half of it is in use; each member at most once an hour. `Off` never does.
    /// Default: `Auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragment: Option<Defragment>,

    /// When the quota is used up and etcd refuses writes: `Heal` drops all old revisions, defragments every member and lets
    /// writes in again once there is room; `Report` only says so. Default: `Heal`; `Report` where `options.autoCompaction` is
    /// `Off`, because there old revisions are meant to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_no_space: Option<OnNoSpace>,
}

/// Whether database files are made smaller when little of them is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Defragment {
    Auto,
    Off,
}

/// What happens when the quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnNoSpace {
    Heal,
    Report,
}

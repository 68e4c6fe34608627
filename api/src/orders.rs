//! What the controller asks of the agent, and what the agent answers.
//!
//! The agent is given one [`Order`] as JSON in the environment variable [`ORDER`]. It answers with one [`Report`] as JSON: the
//! last line it prints, and the termination message of its container. What it mounts is where [`mounts`] says. Names of
//! Secrets are in the pod, never their contents in an order.

use serde::{Deserialize, Serialize};

use crate::v1beta2::{AbsStore, GcsStore, PvcStore, S3Store, StorageType};

/// The environment variable that holds the order.
pub const ORDER: &str = "ETCD_OPERATOR_ORDER";

/// Kubernetes keeps no more of a termination message.
pub const LONGEST_REPORT: usize = 4096;

/// Where the agent finds what its pod mounts.
pub mod mounts {
    /// The Secret with the store's credentials, a file per key.
    pub const CREDENTIALS: &str = "/etc/agent/store";
    /// The Secret whose `ca.crt` signs the store's certificate.
    pub const STORE_CA: &str = "/etc/agent/store-ca";
    /// The Secret with the client certificate for etcd.
    pub const ETCD: &str = "/etc/agent/etcd";
    /// The Secret with `username` and `password` for etcd.
    pub const ETCD_AUTH: &str = "/etc/agent/etcd-auth";
    /// The claim of a store of type `PVC`.
    pub const VOLUME: &str = "/var/backups";
    /// Room for one snapshot.
    pub const SCRATCH: &str = "/var/scratch";
    /// Where the agent copies itself, to be run in an image of etcd, which has etcd's own tools.
    pub const TOOLS: &str = "/var/tools";
    /// A member's volume.
    pub const DATA: &str = "/var/etcd";
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "order",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Order {
    /// Copy the agent itself to this file, for a container that has etcd's tools and not us.
    Install { to: String },
    /// Take a snapshot, check it, put it into the store beside a manifest, then remove what is kept no longer.
    Save {
        etcd: EtcdAccess,
        store: Store,
        /// Where the snapshot goes.
        naming: Naming,
        /// Who it belongs to: only what bears the same `uid` is ever removed.
        owner: Owner,
        /// The run, for the manifest.
        run: String,
        retention: Retention,
    },
    /// Fetch a snapshot and check it. Nothing is changed anywhere.
    Inspect { store: Store, snapshot: SnapshotRef },
    /// Fetch a snapshot, restore it on scratch space with etcd's own tool, serve it with etcd, compare, throw it away.
    Prove {
        store: Store,
        snapshot: SnapshotRef,
        tool: RestoreTool,
    },
    /// Fetch a snapshot and make it a member's data directory, unless that is there already.
    Restore {
        store: Store,
        snapshot: SnapshotRef,
        tool: RestoreTool,
        member: RestoredMember,
    },
}

/// Where the snapshot is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Naming {
    /// Exactly at the store's path; a former one is replaced when the new one is complete.
    Exact,
    /// `<path>_v<revision>_<UTC time>`, as CoreOS's operator named backups that repeat.
    Repeated,
}

/// How etcd is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdAccess {
    /// Client URLs of one cluster; the healthy one that is furthest along is asked.
    pub endpoints: Vec<String>,
    /// Names of the files below [`mounts::ETCD`]; absent where clients need no certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// There are `username` and `password` below [`mounts::ETCD_AUTH`].
    #[serde(default)]
    pub auth: bool,
    /// The cluster it has to be, in hexadecimal: a snapshot of another is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// No quorum serves, and what a lone member has is wanted all the same: before it is given up.
    #[serde(default)]
    pub lone: bool,
}

/// Names of files in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsFiles {
    pub ca: String,
    pub certificate: String,
    pub key: String,
}

/// A store, as the resource describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Store {
    S3(S3Store),
    GCS(GcsStore),
    ABS(AbsStore),
    PVC(PvcStore),
}

impl Store {
    pub const fn kind(&self) -> StorageType {
        match self {
            Self::S3(_) => StorageType::S3,
            Self::GCS(_) => StorageType::GCS,
            Self::ABS(_) => StorageType::ABS,
            Self::PVC(_) => StorageType::PVC,
        }
    }

    /// `<bucket>/<key>`; in a volume, the path alone.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::S3(store) => store.path.as_deref(),
            Self::GCS(store) => store.path.as_deref(),
            Self::ABS(store) => store.path.as_deref(),
            Self::PVC(store) => store.path.as_deref(),
        }
    }

    /// The Secret with its credentials; absent with workload identity and for volumes.
    pub fn credentials(&self) -> Option<&str> {
        match self {
            Self::S3(store) => store.aws_secret.as_deref(),
            Self::GCS(store) => store.gcp_secret.as_deref(),
            Self::ABS(store) => store.abs_secret.as_deref(),
            Self::PVC(_) => None,
        }
    }

    /// The Secret with the authority of its certificate.
    pub fn ca(&self) -> Option<&str> {
        match self {
            Self::S3(store) => store.ca_secret.as_deref(),
            Self::GCS(store) => store.ca_secret.as_deref(),
            Self::ABS(store) => store.ca_secret.as_deref(),
            Self::PVC(_) => None,
        }
    }
}

/// One snapshot in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRef {
    /// Its key in the bucket, or its path in the volume: what [`Facts::snapshot`] says. Not the store's own `path`.
    pub name: String,
    /// The SHA-256 its data must have, where it is known: what was inspected is what is restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Whose snapshots these are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The EtcdCluster, where the resource names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// What is kept; nothing set: everything. The newest sound snapshot always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
}

/// Which of etcd's tools restores, in the image the agent runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestoreTool {
    /// `etcdutl snapshot restore`; `bumps`: it takes `--bump-revision` and `--mark-compacted`.
    Etcdutl { bumps: bool },
    /// `ETCDCTL_API=3 etcdctl snapshot restore`.
    Etcdctl,
}

/// Whose data directory a snapshot becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoredMember {
    pub name: String,
    pub peer_url: String,
    pub initial_cluster: String,
    pub token: String,
    /// The data directory, below [`mounts::DATA`].
    pub data_dir: String,
    /// By how much the revision is raised, so that it is beyond any that was ever served; what is older is then marked compacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bump_revision: Option<u64>,
}

/// How an order ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "report",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Report {
    /// The snapshot is in the store, complete and checked.
    Saved {
        facts: Facts,
        /// How many snapshots of this owner are in the store now.
        kept: u64,
        /// How many were removed.
        removed: u64,
        /// The snapshot is good, but removing others failed, for this reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prune_failure: Option<String>,
    },
    /// The snapshot was fetched and is sound; so it is after `Inspect` and `Prove`.
    Sound { facts: Facts },
    /// The data directory is there; `already` when it was before.
    Restored { already: bool },
    /// The agent is where it was to be copied to.
    Installed,
    Failed {
        reason: FailureReason,
        message: String,
    },
}

/// What is known of a snapshot: the manifest beside it in the store, and part of reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Its key in the bucket, or its path in the volume.
    pub snapshot: String,
    /// SHA-256 of the database, which is what etcd appends to it.
    pub sha256: String,
    /// What `etcdutl snapshot status` calls the hash, in hexadecimal.
    pub hash: String,
    pub revision: i64,
    pub keys: u64,
    /// Bytes of the snapshot as etcd gave it.
    pub size: u64,
    /// Bytes in the store.
    pub stored_size: u64,
    /// Absent where nothing says it: a plain snapshot has no manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// In hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// When it was taken, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
}

/// The manifest beside a snapshot, `<snapshot>.manifest.json`. It is written last: a snapshot of ours without one is not complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub facts: Facts,
    pub owner: Owner,
    pub run: String,
    pub compression: Compression,
    /// The operator's version that wrote it.
    pub written_by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Compression {
    None,
    Zstd,
}

/// Why an order failed: a word a person can look up, stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureReason {
    StoreUnreachable,
    BucketNotFound,
    CredentialsMissing,
    CredentialsInvalid,
    PermissionDenied,
    StoreFull,
    EtcdUnreachable,
    NoQuorum,
    EtcdAccessDenied,
    DifferentCluster,
    DiskFull,
    SnapshotNotFound,
    SnapshotEmpty,
    SnapshotIncomplete,
    SnapshotCorrupt,
    NotASnapshot,
    SnapshotChanged,
    RestoreToolFailed,
    ProofFailed,
    InvalidOrder,
    TimedOut,
    Internal,
}

impl FailureReason {
    /// The word itself.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StoreUnreachable => "StoreUnreachable",
            Self::BucketNotFound => "BucketNotFound",
            Self::CredentialsMissing => "CredentialsMissing",
            Self::CredentialsInvalid => "CredentialsInvalid",
            Self::PermissionDenied => "PermissionDenied",
            Self::StoreFull => "StoreFull",
            Self::EtcdUnreachable => "EtcdUnreachable",
            Self::NoQuorum => "NoQuorum",
            Self::EtcdAccessDenied => "EtcdAccessDenied",
            Self::DifferentCluster => "DifferentCluster",
            Self::DiskFull => "DiskFull",
            Self::SnapshotNotFound => "SnapshotNotFound",
            Self::SnapshotEmpty => "SnapshotEmpty",
            Self::SnapshotIncomplete => "SnapshotIncomplete",
            Self::SnapshotCorrupt => "SnapshotCorrupt",
            Self::NotASnapshot => "NotASnapshot",
            Self::SnapshotChanged => "SnapshotChanged",
            Self::RestoreToolFailed => "RestoreToolFailed",
            Self::ProofFailed => "ProofFailed",
            Self::InvalidOrder => "InvalidOrder",
            Self::TimedOut => "TimedOut",
            Self::Internal => "Internal",
        }
    }

    /// Trying the same again cannot end otherwise: the snapshot itself is wrong.
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::SnapshotEmpty
                | Self::SnapshotCorrupt
                | Self::NotASnapshot
                | Self::SnapshotChanged
                | Self::InvalidOrder
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T>(value: &T)
    where
        T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug,
    {
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
    }

    #[test]
    fn orders_and_reports_survive_the_way_to_the_agent_and_back() {
        let store = Store::S3(S3Store {
            path: Some("bucket/etcd.backup".to_owned()),
            ..S3Store::default()
        });
        let snapshot = SnapshotRef {
            name: "etcd.backup_v12_2026-11-18-03:00:00".to_owned(),
            sha256: None,
        };
        there_and_back(&Order::Save {
            etcd: EtcdAccess::default(),
            store: store.clone(),
            naming: Naming::Repeated,
            owner: Owner {
                namespace: "default".to_owned(),
                name: "nightly".to_owned(),
                uid: "1".to_owned(),
                cluster: Some("example".to_owned()),
            },
            run: "nightly-1".to_owned(),
            retention: Retention::default(),
        });
        there_and_back(&Order::Prove {
            store,
            snapshot,
            tool: RestoreTool::Etcdutl { bumps: true },
        });
        there_and_back(&Report::Failed {
            reason: FailureReason::NoQuorum,
            message: "…".to_owned(),
        });
        there_and_back(&Report::Sound {
            facts: Facts::default(),
        });
    }

    #[test]
    fn a_reason_is_the_word_it_is_written_as() {
        for reason in [FailureReason::NoQuorum, FailureReason::TimedOut] {
            assert_eq!(
                serde_json::to_value(reason).unwrap(),
                serde_json::json!(reason.as_str())
            );
        }
    }
}

//! `ValidatedBackup` and `ValidatedRestore`: as they are meant, with every default applied and every rule held.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::CertificateSecret;
use crate::defaults::{default_backup, default_restore};
use crate::policy::Policy;
use crate::schedule::Schedule;
use crate::v1beta2::{
    ConcurrencyPolicy, EtcdBackup, EtcdClusterSpec, EtcdRestore, StorageType, Verify,
};
use crate::validation::{self, Violation};

/// A backup that holds every rule.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedBackup {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    pub subject: Subject,
    /// Secret with `username` and `password`.
    pub auth_secret: Option<String>,
    pub store: Store,
    pub service_account: Option<String>,
    pub recurrence: Recurrence,
    pub timeout: Duration,
    pub retention: Retention,
    pub suspend: bool,
    pub concurrency: ConcurrencyPolicy,
    pub verify: Verify,
}

/// What is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An EtcdCluster of the same namespace.
    Cluster(String),
    /// Any etcd cluster.
    Endpoints {
        urls: Vec<String>,
        client_tls: Option<CertificateSecret>,
    },
}

/// How often.
#[derive(Clone, Debug, PartialEq)]
pub enum Recurrence {
    Once,
    Every(Duration),
    Scheduled {
        schedule: Schedule,
        time_zone: TimeZone,
    },
}

/// What is kept; None: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub count: Option<u64>,
    pub age: Option<Duration>,
}

/// Where backups are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    Bucket(Bucket),
    Volume { claim: String, path: String },
}

/// A store with buckets and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub provider: Provider,
    /// Bucket or container.
    pub bucket: String,
    pub key: String,
    /// None: workload identity.
    pub secret: Option<String>,
    /// None: the provider's own.
    pub endpoint: Option<String>,
    pub ca_secret: Option<String>,
}

/// What differs from one provider to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    S3 {
        region: Option<String>,
        path_style: bool,
    },
    Gcs,
    /// None: the Secret names the account.
    Abs {
        account: Option<String>,
    },
}

impl Store {
    pub const fn kind(&self) -> StorageType {
        match self {
            Self::Volume { .. } => StorageType::PVC,
            Self::Bucket(bucket) => match bucket.provider {
                Provider::S3 { .. } => StorageType::S3,
                Provider::Gcs => StorageType::GCS,
                Provider::Abs { .. } => StorageType::ABS,
            },
        }
    }
}

/// A restore that holds every rule.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedRestore {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    pub source: Source,
    pub service_account: Option<String>,
    pub target: Target,
}

/// Which backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// One of an EtcdBackup of the same namespace; the newest good one where none is named.
    Backup {
        name: String,
        snapshot: Option<String>,
    },
    /// The one at this place.
    Store(Store),
}

/// Into which cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// One that exists: its data are replaced.
    InPlace {
        name: String,
        /// It has lost its quorum, and is this very cluster.
        cluster_id: Option<String>,
    },
    /// One to be made.
    New {
        name: String,
        /// As the user wrote it: admission of the new cluster adds the defaults.
        spec: Box<EtcdClusterSpec>,
    },
}

impl ValidatedBackup {
    /// Applies the defaults in memory, then every rule that speaks of one object alone.
    pub fn new(backup: &EtcdBackup, policy: &Policy) -> Result<Self, Vec<Violation>> {
        let mut backup = backup.clone();
        default_backup(&mut backup, policy);
        validation::read_backup(&backup)
    }
}

impl ValidatedRestore {
    /// Applies the defaults in memory, then every rule that speaks of one object alone.
    pub fn new(restore: &EtcdRestore, policy: &Policy) -> Result<Self, Vec<Violation>> {
        let mut restore = restore.clone();
        default_restore(&mut restore, policy);
        validation::read_restore(&restore, policy)
    }
}

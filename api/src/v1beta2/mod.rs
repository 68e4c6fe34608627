//! The resources as people write them: group `etcd.database.coreos.com`, version `v1beta2` (the hub and the stored version).
//!
//! Wire types only: every field of a spec is optional, so that "not said" differs from "said". What a field means is decided
//! in `defaults`, what is allowed in `validation`; builders read neither, they take a `ValidatedCluster`.
//! Doc comments here are the descriptions users see in `kubectl explain`.

mod accepted;
mod backup;
mod backup_status;
mod cluster;
mod options;
mod pod;
mod restore;
mod security;
mod seed;
mod service;
mod status;
mod storage;
mod store;

pub use accepted::Accepted;
pub use backup::{
    BackupPolicy, ConcurrencyPolicy, EtcdBackup, EtcdBackupSpec, RetentionSpec, Verify,
};
pub use backup_status::{BackupRun, BackupSummary, EtcdBackupStatus, LONGEST_HISTORY, RunResult};
pub use cluster::{
    BeforeRisk, Defragment, EtcdCluster, EtcdClusterSpec, MaintenanceSpec, OnNoSpace, RecoverySpec,
    RelianceSpec,
};
pub use options::{AutoCompactionMode, AutoCompactionSpec, LogLevel, MetricsLevel, OptionsSpec};
pub use pod::PodPolicy;
pub use restore::{
    EtcdClusterRef, EtcdRestore, EtcdRestoreSpec, EtcdRestoreStatus, NewCluster, RestorePhase,
};
pub use security::{
    ClientTlsSpec, MemberSecrets, PeerTlsSpec, SecuritySpec, StaticTls, TlsMode, TlsPolicy,
};
pub use seed::{SEED, Seed, SeedError};
pub use service::{ClientServiceSpec, ClientServiceType, ServiceSpec};
pub use status::{
    BootstrapMember, BootstrapRecord, EtcdClusterStatus, FormerMembers, MemberNames, MemberRole,
    MemberStatus, Origin, Phase, RECOVER_FROM_SURVIVOR, Summary, SurvivorRecovery, condition,
};
pub use storage::{Reclaim, StorageSpec};
pub use store::{AbsStore, GcsStore, PvcStore, S3Store, StorageType};

/// The API group of every resource of this operator.
pub const GROUP: &str = "etcd.database.coreos.com";
/// The stored version.
pub const VERSION: &str = "v1beta2";
/// `apiVersion` of the stored version.
pub const API_VERSION: &str = "etcd.database.coreos.com/v1beta2";

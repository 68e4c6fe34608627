//! The custom resources of the etcd operator: types, defaults, validation, version policy, conversion between API versions.
//!
//! Pure functions: no I/O, no async, no clock. The webhook and the controller judge a resource with the same code.

pub mod conversion;
pub mod crd;
pub mod defaults;
pub mod duration;
pub mod environment;
pub mod examples;
pub mod orders;
pub mod policy;
pub mod quantity;
pub mod schedule;
pub mod size;
pub mod v1alpha1;
pub mod v1beta2;
pub mod validated;
pub mod validation;
mod version;
pub mod versions;

pub use conversion::{ConversionError, convert};
pub use crd::{all_crds, etcdbackup_crd, etcdcluster_crd, etcdrestore_crd};
pub use defaults::{default_backup, default_cluster, default_restore, default_update};
pub use policy::{BadDefault, EndOfLife, Policy, Running, StepRefusal, VersionStep, judge_step};
pub use size::{ClusterSize, round_up_size};
pub use validated::{ValidatedBackup, ValidatedCluster, ValidatedRestore};
pub use validation::{
    AS_WRITTEN, Judgement, Reason, Recovery, Violation, Warning, judge, judge_backup, judge_delete,
    judge_restore, judge_scale, judge_unknown, recovery_refused, same_requests,
};
pub use version::{Minor, Version};

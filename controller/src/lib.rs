//! Makes EtcdClusters real and keeps them so: one reconcile pipeline per kind, the only writer of a cluster's children.

pub mod agents;
mod args;
pub mod backup;
pub mod cluster;
mod etcd;
mod lease;
mod metrics;
mod restore;
mod run;
mod turns;

pub use args::Args;
pub use run::{RunError, run};

/// Under this name the controller's writes appear in `managedFields`.
const FIELD_MANAGER: &str = "etcd-operator-controller";

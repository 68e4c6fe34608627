//! Scenarios on a real Kubernetes: the harness that runs them and the vocabulary they are written in.
//!
//! A scenario is an `async fn(&Context) -> Outcome` whose name is a sentence. It owns a namespace, waits on
//! conditions and never on the clock, and when it fails the harness prints the resource, its events, its
//! pods and the operator's logs. The suites are `tests/api` (admission, schema, access: no etcd needed) and
//! `tests/cluster` (real etcd); `cargo xtask test` starts a cluster and runs them.

mod admissions;
mod chance;
mod chart;
mod cluster;
mod command;
mod context;
mod environment;
pub mod history;
pub mod kstatus;
mod machine;
mod metrics_api;
mod report;
mod requests;
mod runner;
mod scenario;
mod scrape;
mod store;
mod wait;

pub use admissions::{Admissions, Tally};
pub use chance::Chance;
pub use chart::{
    Helm, OPERATOR_NAMESPACE, RELEASE, install, install_with, without_admission, without_controller,
};
pub use cluster::{Cluster, Door, GROUP, Member, OldKey, condition_is, etcdclusters};
pub use command::{Finished, run};
pub use context::Context;
pub use environment::Environment;
pub use machine::{Power, Process};
pub use metrics_api::{METRIC, MetricsApi};
pub use requests::{Request, Requests};
pub use runner::Suite;
pub use scenario::{Outcome, Scenario};
pub use scrape::Scraped;
pub use store::{BUCKET, CREDENTIALS, S3Server};
pub use wait::{GaveUp, PATIENCE, until, until_all, until_answer};

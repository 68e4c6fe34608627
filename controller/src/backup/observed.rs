//! What is known of one backup at one moment: the plan's only input beside the spec. Plain data, no I/O.

use std::collections::BTreeMap;

use etcd_operator_api::{
    orders::{EtcdAccess, Report},
    v1beta2::EtcdBackupStatus,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One look at a backup.
#[derive(Clone, Debug)]
pub struct Observed {
    pub now: Timestamp,
    pub created: Timestamp,
    /// What was last published: the durable record of its runs.
    pub status: EtcdBackupStatus,
    /// The word of the annotation that asks for a run.
    pub run_now: Option<String>,
    /// How etcd is reached, or why it cannot be.
    pub subject: Result<Subject, Unreachable>,
    /// Its Jobs, by name.
    pub jobs: BTreeMap<String, JobFacts>,
}

/// How etcd is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub access: EtcdAccess,
    /// The Secret with the client certificate, where it is there already.
    pub client_secret: Option<String>,
    /// The operator issues the client certificate, for each run anew.
    pub issues: bool,
    /// Where the cluster's images come from; absent where only endpoints are known.
    pub repository: Option<String>,
}

/// Why etcd cannot be reached at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The EtcdCluster is not there.
    NoCluster(String),
    /// It has not been whole yet.
    NotYet(String),
    /// Its spec is not sound.
    Invalid(String),
}

/// Why a run is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Without schedule and interval: once for each generation of the spec.
    Generation(i64),
    /// It was due then.
    Due(Timestamp),
    /// Somebody wrote a new word into the annotation.
    RunNow(String),
    /// An EtcdCluster asks, before it takes this step.
    Request(String),
}

/// What a Job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Save,
    Prove,
}

/// One Job, and what its pod says.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    pub uid: String,
    pub purpose: Purpose,
    pub created: Timestamp,
    /// Why it was made; absent where it says nothing readable.
    pub cause: Option<Cause>,
    pub ended: Option<Ended>,
    /// What the agent said at its end.
    pub report: Option<Report>,
    /// Why its pod does not run, or how it ended without a report.
    pub trouble: Option<String>,
}

/// How and when a Job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub how: How,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Succeeded,
    TimedOut,
    Failed,
}

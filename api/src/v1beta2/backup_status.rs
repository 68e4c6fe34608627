//! What is reported of an EtcdBackup and its runs. Read as leniently as a cluster's status.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{known_or_none, well_formed_only};

/// Runs that are remembered; the newest come first.
pub const LONGEST_HISTORY: usize = 20;

/// What the operator sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStatus {
    /// The generation of the spec this status speaks of; -1 before the operator has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (the newest run was good, or none was due yet), `Reconciling`, `Stalled`.
    #[serde(
        default,
        deserialize_with = "well_formed_only",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,

    /// The state of the backup in one word.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub summary: Option<BackupSummary>,

    /// Whether the newest run was good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<bool>,

    /// Why the newest run failed. With a capital letter, as the CoreOS operator wrote it.
    #[serde(rename = "Reason", default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The etcd version of the newest good snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,

    /// etcd's revision in the newest good snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_revision: Option<i64>,

    /// When the newest good snapshot was taken.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_success_date: Option<Time>,

    /// When the last run was due.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_run: Option<Time>,

    /// When the next run is due.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub next_run: Option<Time>,

    /// The generation of the spec whose one run was started, where there is neither `schedule` nor interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_generation: Option<i64>,

    /// The last word of the annotation `etcd.database.coreos.com/run-now` that was obeyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_now: Option<String>,

    /// For which step an EtcdCluster asks for a run, before it takes that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,

    /// The last such request that was obeyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obeyed: Option<String>,

    /// How many snapshots of this resource are in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<i64>,

    /// The last runs, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = LONGEST_HISTORY))]
    pub history: Vec<BackupRun>,
}

/// The state of a backup in one word, for `kubectl get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupSummary {
    /// The next run is not due yet.
    Waiting,
    /// A run is under way.
    Running,
    /// The newest run was good.
    Succeeded,
    /// The newest run failed.
    Failed,
    /// `spec.suspend`: no run is started.
    Suspended,
    /// A person must act.
    Stalled,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupRun {
    /// Its name, which is its Job's.
    pub name: String,

    /// `Running`, `Succeeded` or `Failed`.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub result: Option<RunResult>,

    /// When it began.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub started: Option<Time>,

    /// For which step an EtcdCluster asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,

    /// How long it took, such as `1m12s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,

    /// Why it failed, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Why it failed, and what can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Where the snapshot is in the store; what `snapshot` of an EtcdRestore names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,

    /// Size of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,

    /// etcd's hash of the snapshot, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,

    /// The etcd version it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,

    /// etcd's revision in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_revision: Option<i64>,

    /// How it proved itself: `Hash` or `Restore`; absent while it has not.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub verified: Option<super::Verify>,
}

impl EtcdBackupStatus {
    /// The newest good run that is remembered.
    pub fn newest_good(&self) -> Option<&BackupRun> {
        self.history
            .iter()
            .find(|run| run.result == Some(RunResult::Succeeded))
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunResult {
    Running,
    Succeeded,
    Failed,
}

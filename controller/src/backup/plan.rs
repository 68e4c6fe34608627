//! The rulebook of a backup: from a sound spec and one look to what is done next, what is published, and when to look again.
//! Pure: no I/O, no clock.

mod outlook;
mod runs;
#[cfg(test)]
mod tests;

use std::time::Duration;

use etcd_operator_api::{
    ValidatedBackup, Version,
    orders::SnapshotRef,
    v1beta2::{BackupRun, ConcurrencyPolicy, EtcdBackupStatus, LONGEST_HISTORY, RunResult},
    validated::Recurrence,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(crate) use outlook::{condition, set};

use super::{
    jobs,
    observed::{Cause, Observed, Purpose, Unreachable},
    times,
};

/// Jobs of this many ended runs are kept, for whoever wants to read their logs.
const KEPT_RUNS: usize = 3;
/// A run is looked at so often, unless its Job wakes us before.
const WHILE_RUNNING: Duration = Duration::from_secs(10);
/// What is in the way may go away without a word to us.
const WHILE_WAITING: Duration = Duration::from_secs(5);
/// Nobody's clock is right to the millisecond: a look that comes a moment too early would find nothing due.
const A_MOMENT: Duration = Duration::from_millis(50);

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the Job that saves.
    Save { run: String, cause: Cause },
    /// Make the Job that proves what the run has saved.
    Prove {
        run: String,
        snapshot: SnapshotRef,
        version: Version,
    },
    /// Delete a Job, and with it its pods.
    Delete { job: String, uid: String },
}

/// What is worth an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
    pub warning: bool,
    pub reason: &'static str,
    pub note: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub status: EtcdBackupStatus,
    pub tellings: Vec<Telling>,
    /// Absent: when something changes.
    pub look_again: Option<Duration>,
}

/// What keeps a due run from being started.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hindrance {
    /// A person must act.
    Stalled {
        reason: &'static str,
        message: String,
    },
    /// It passes.
    Waiting {
        reason: &'static str,
        message: String,
    },
}

/// Decides what happens next to one backup.
pub fn plan(backup: &ValidatedBackup, seen: &Observed) -> Plan {
    let mut plan = Plan {
        steps: Vec::new(),
        status: seen.status.clone(),
        tellings: Vec::new(),
        look_again: None,
    };
    runs::adopt(&mut plan, seen);
    runs::follow(&mut plan, backup, seen);
    let hindrance = start_what_is_due(&mut plan, backup, seen);
    plan.status.history.truncate(LONGEST_HISTORY);
    clean_up(&mut plan, seen);
    let status = &mut plan.status;
    let last = status.last_run.as_ref().map(|at| at.0);
    status.next_run = if backup.suspend {
        None
    } else {
        times::next(&backup.recurrence, seen.created, last, seen.now).map(Time)
    };
    outlook::publish(&mut plan, backup, seen, hindrance.as_ref());
    plan.look_again = look_again(&plan, seen.now, hindrance.is_some());
    plan
}

fn running(status: &EtcdBackupStatus) -> impl Iterator<Item = &BackupRun> {
    status
        .history
        .iter()
        .filter(|run| run.result == Some(RunResult::Running))
}

/// What is due now, if anything is. What people and clusters ask for comes before the clock.
fn due(backup: &ValidatedBackup, seen: &Observed, status: &EtcdBackupStatus) -> Option<Cause> {
    if backup.suspend {
        return None;
    }
    let asked = seen.run_now.as_ref();
    if let Some(word) = asked.filter(|word| status.ran_now.as_ref() != Some(word)) {
        return Some(Cause::RunNow(word.clone()));
    }
    let requested = status.requested.as_ref();
    if let Some(word) = requested.filter(|word| status.obeyed.as_ref() != Some(word)) {
        return Some(Cause::Request(word.clone()));
    }
    if backup.recurrence == Recurrence::Once {
        // A status that CoreOS's operator left behind knows no generations.
        let done_before_us = status.ran_generation.is_none() && status.succeeded == Some(true);
        let ran = done_before_us || status.ran_generation == Some(backup.generation);
        return (!ran).then_some(Cause::Generation(backup.generation));
    }
    let last = status.last_run.as_ref().map(|at| at.0);
    times::latest(&backup.recurrence, seen.created, last, seen.now).map(Cause::Due)
}

/// From now on this cause has been obeyed.
fn obey(status: &mut EtcdBackupStatus, cause: &Cause) {
    match cause {
        Cause::Generation(generation) => status.ran_generation = Some(*generation),
        Cause::Due(at) => status.last_run = Some(Time(*at)),
        Cause::RunNow(word) => status.ran_now = Some(word.clone()),
        Cause::Request(word) => status.obeyed = Some(word.clone()),
    }
}

fn start_what_is_due(
    plan: &mut Plan,
    backup: &ValidatedBackup,
    seen: &Observed,
) -> Option<Hindrance> {
    let cause = due(backup, seen, &plan.status)?;
    if running(&plan.status).next().is_some() {
        match (backup.concurrency, &cause) {
            (ConcurrencyPolicy::Replace, _) => runs::end_for_another(plan, seen),
            // The clock does not wait: this time is left out.
            (ConcurrencyPolicy::Forbid, Cause::Due(_)) => {
                obey(&mut plan.status, &cause);
                return None;
            }
            (ConcurrencyPolicy::Forbid, _) => return None,
        }
    }
    match &seen.subject {
        Ok(_) => {}
        Err(Unreachable::NoCluster(name)) => {
            return Some(Hindrance::Stalled {
                reason: "ClusterNotFound",
                message: format!(
                    "EtcdCluster {name} does not exist in this namespace: create it, or name another in spec.clusterName"
                ),
            });
        }
        Err(Unreachable::Invalid(words)) => {
            return Some(Hindrance::Stalled {
                reason: "ClusterInvalid",
                message: words.clone(),
            });
        }
        Err(Unreachable::NotYet(name)) => {
            return Some(Hindrance::Waiting {
                reason: "WaitingForCluster",
                message: format!("EtcdCluster {name} has not formed yet"),
            });
        }
    }
    let run = jobs::run_name(backup, &cause);
    plan.tellings.push(Telling {
        warning: false,
        reason: "RunStarted",
        note: format!("{run}: {}", words(&cause)),
    });
    plan.status.history.insert(
        0,
        BackupRun {
            name: run.clone(),
            result: Some(RunResult::Running),
            started: Some(Time(seen.now)),
            request: runs::request(&cause),
            ..BackupRun::default()
        },
    );
    obey(&mut plan.status, &cause);
    plan.steps.push(Step::Save { run, cause });
    None
}

fn words(cause: &Cause) -> String {
    match cause {
        Cause::Generation(_) => "saving once".to_owned(),
        Cause::Due(at) => format!("saving, as was due {at}"),
        Cause::RunNow(word) => format!("saving now, as run-now says: {word}"),
        Cause::Request(step) => format!("saving before {step}"),
    }
}

/// Deletes the Jobs of runs that ended a while ago, and those of which nothing is known any more.
fn clean_up(plan: &mut Plan, seen: &Observed) {
    let ended = plan
        .status
        .history
        .iter()
        .filter(|run| run.result != Some(RunResult::Running));
    let kept: Vec<&String> = ended
        .take(KEPT_RUNS)
        .chain(running(&plan.status))
        .map(|run| &run.name)
        .collect();
    let is_kept = |name: &str| {
        kept.iter()
            .any(|run| *run == name || jobs::proof_name(run) == name)
    };
    let deleted: Vec<Step> = seen
        .jobs
        .iter()
        .filter(|(name, _)| !is_kept(name))
        .map(|(name, job)| Step::Delete {
            job: name.clone(),
            uid: job.uid.clone(),
        })
        .filter(|step| !plan.steps.contains(step))
        .collect();
    plan.steps.extend(deleted);
}

fn look_again(plan: &Plan, now: Timestamp, hindered: bool) -> Option<Duration> {
    let mut soonest = None;
    let mut by =
        |wait: Duration| soonest = Some(soonest.map_or(wait, |known: Duration| known.min(wait)));
    if running(&plan.status).next().is_some() {
        by(WHILE_RUNNING);
    }
    if hindered {
        by(WHILE_WAITING);
    }
    if let Some(next) = &plan.status.next_run {
        let wait = next.0.duration_since(now).unsigned_abs();
        by(wait + A_MOMENT);
    }
    soonest
}

/// Whether a Job is one that saves.
fn saves(purpose: Purpose) -> bool {
    purpose == Purpose::Save
}

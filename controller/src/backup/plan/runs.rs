//! What comes of the runs under way.

use etcd_operator_api::{
    ValidatedBackup,
    orders::{Facts, FailureReason, Report, SnapshotRef},
    quantity::display_bytes,
    v1beta2::{BackupRun, EtcdBackupStatus, RunResult, Verify},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};

use super::{Plan, Step, Telling, obey, saves};
use crate::backup::{
    jobs,
    observed::{Cause, Ended, How, JobFacts, Observed},
};

/// A Job that saves, of which the status knows nothing because we died before it was written.
pub(super) fn adopt(plan: &mut Plan, seen: &Observed) {
    let newest = plan
        .status
        .history
        .iter()
        .filter_map(|run| Some(run.started.as_ref()?.0))
        .max();
    let mut unknown: Vec<(&String, &JobFacts)> = seen
        .jobs
        .iter()
        .filter(|(name, job)| {
            let known = plan.status.history.iter().any(|run| run.name == **name);
            saves(job.purpose) && !known && newest.is_none_or(|newest| job.created >= newest)
        })
        .collect();
    unknown.sort_by_key(|(_, job)| job.created);
    for (name, job) in unknown {
        let Some(cause) = &job.cause else { continue };
        obey(&mut plan.status, cause);
        let run = BackupRun {
            name: name.clone(),
            result: Some(RunResult::Running),
            started: Some(Time(job.created)),
            request: request(cause),
            ..BackupRun::default()
        };
        plan.status.history.insert(0, run);
    }
}

pub(super) fn request(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Request(step) => Some(step.clone()),
        _ => None,
    }
}

/// Takes in what the Jobs of runs under way say, oldest run first.
pub(super) fn follow(plan: &mut Plan, backup: &ValidatedBackup, seen: &Observed) {
    for index in (0..plan.status.history.len()).rev() {
        if plan.status.history[index].result != Some(RunResult::Running) {
            continue;
        }
        let mut run = plan.status.history[index].clone();
        let fate = fate(&mut run, plan, backup, seen);
        match fate {
            Fate::Running { message } => run.message = message,
            Fate::Proving { step } => {
                run.message = Some("saved; it is being restored on scratch space".to_owned());
                plan.steps.extend(step);
            }
            Fate::Failed {
                reason,
                message,
                at,
            } => fail(plan, &mut run, &reason, message, at),
            Fate::Good { by, facts, at } => succeed(plan, &mut run, by, &facts, at),
        }
        plan.status.history[index] = run;
    }
}

enum Fate {
    Running {
        message: Option<String>,
    },
    Proving {
        step: Option<Step>,
    },
    Failed {
        reason: String,
        message: String,
        at: Timestamp,
    },
    Good {
        by: Verify,
        facts: Facts,
        at: Timestamp,
    },
}

fn fate(run: &mut BackupRun, plan: &mut Plan, backup: &ValidatedBackup, seen: &Observed) -> Fate {
    let Some(job) = seen.jobs.get(&run.name) else {
        return Fate::Failed {
            reason: "JobDeleted".to_owned(),
            message: "its Job was deleted before it had ended".to_owned(),
            at: seen.now,
        };
    };
    let facts = match &job.report {
        Some(Report::Saved {
            facts,
            kept,
            prune_failure,
            ..
        }) => {
            note(&mut plan.status, *kept);
            describe(run, facts);
            run.message = prune_failure
                .as_ref()
                .map(|why| format!("good, but older snapshots could not be removed: {why}"));
            facts.clone()
        }
        _ => return unsaved(run, job, backup, seen),
    };
    let at = job.ended.map_or(seen.now, |ended| ended.at);
    if backup.verify == Verify::Hash {
        let by = Verify::Hash;
        return Fate::Good { by, facts, at };
    }
    proven(run, facts, backup, seen)
}

/// The run has saved nothing, or not yet.
fn unsaved(run: &BackupRun, job: &JobFacts, backup: &ValidatedBackup, seen: &Observed) -> Fate {
    let at = job.ended.map_or(seen.now, |ended| ended.at);
    if let Some(Report::Failed { reason, message }) = &job.report {
        return Fate::Failed {
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            at,
        };
    }
    let Some(ended) = job.ended else {
        return Fate::Running {
            message: job.trouble.clone(),
        };
    };
    without_report(run.message.as_ref(), job, ended, backup)
}

/// It ended, and the agent did not say how.
fn without_report(
    before: Option<&String>,
    job: &JobFacts,
    ended: Ended,
    backup: &ValidatedBackup,
) -> Fate {
    let trouble = job.trouble.as_ref().or(before);
    let (reason, mut message) = match ended.how {
        How::TimedOut => (
            FailureReason::TimedOut.as_str(),
            format!(
                "it did not end within {}, which is spec.backupPolicy.timeoutInSecond",
                duration(backup.timeout.as_secs())
            ),
        ),
        How::Failed | How::Succeeded => {
            ("AgentFailed", "the agent ended without a report".to_owned())
        }
    };
    if let Some(trouble) = trouble {
        message = format!("{message}; last seen: {trouble}");
    }
    Fate::Failed {
        reason: reason.to_owned(),
        message,
        at: ended.at,
    }
}

/// What is saved counts once it has been restored on scratch space.
fn proven(run: &BackupRun, facts: Facts, backup: &ValidatedBackup, seen: &Observed) -> Fate {
    let failed = |reason: &str, message: String, at| Fate::Failed {
        reason: reason.to_owned(),
        message: format!("saved, but not proven: {message}"),
        at,
    };
    let version = facts.etcd_version.as_deref().map(str::parse);
    let Some(Ok(version)) = version else {
        return failed(
            FailureReason::ProofFailed.as_str(),
            "nothing says which etcd it was taken from".to_owned(),
            seen.now,
        );
    };
    let Some(job) = seen.jobs.get(&jobs::proof_name(&run.name)) else {
        let step = Step::Prove {
            run: run.name.clone(),
            snapshot: SnapshotRef {
                name: facts.snapshot.clone(),
                sha256: Some(facts.sha256).filter(|hash| !hash.is_empty()),
            },
            version,
        };
        return Fate::Proving { step: Some(step) };
    };
    let at = job.ended.map_or(seen.now, |ended| ended.at);
    match (&job.report, job.ended) {
        (Some(Report::Sound { .. }), _) => Fate::Good {
            by: Verify::Restore,
            facts,
            at,
        },
        (Some(Report::Failed { reason, message }), _) => {
            failed(reason.as_str(), message.clone(), at)
        }
        (_, None) => job
            .trouble
            .as_ref()
            .map_or(Fate::Proving { step: None }, |trouble| Fate::Running {
                message: Some(format!("saved; its proof does not begin: {trouble}")),
            }),
        (_, Some(ended)) => match without_report(None, job, ended, backup) {
            Fate::Failed {
                reason, message, ..
            } => failed(&reason, message, ended.at),
            other => other,
        },
    }
}

fn note(status: &mut EtcdBackupStatus, kept: u64) {
    status.snapshots = i64::try_from(kept).ok();
}

fn describe(run: &mut BackupRun, facts: &Facts) {
    run.snapshot = Some(facts.snapshot.clone());
    run.size = Some(Quantity(display_bytes(facts.size)));
    run.hash = Some(facts.hash.clone());
    run.etcd_version.clone_from(&facts.etcd_version);
    run.etcd_revision = Some(facts.revision);
}

fn fail(plan: &mut Plan, run: &mut BackupRun, reason: &str, message: String, at: Timestamp) {
    end(run, RunResult::Failed, at);
    run.reason = Some(reason.to_owned());
    plan.tellings.push(Telling {
        warning: true,
        reason: "RunFailed",
        note: format!("{}: {reason}: {message}", run.name),
    });
    plan.status.succeeded = Some(false);
    plan.status.reason = Some(message.clone());
    run.message = Some(message);
}

fn succeed(plan: &mut Plan, run: &mut BackupRun, by: Verify, facts: &Facts, at: Timestamp) {
    end(run, RunResult::Succeeded, at);
    run.verified = Some(by);
    let taken = facts.taken.as_deref().and_then(|at| at.parse().ok());
    let size = run.size.as_ref().map_or("", |size| size.0.as_str());
    plan.tellings.push(Telling {
        warning: false,
        reason: "RunSucceeded",
        note: format!(
            "{}: saved revision {} ({size}) as {}",
            run.name, facts.revision, facts.snapshot
        ),
    });
    let status = &mut plan.status;
    status.succeeded = Some(true);
    status.reason = None;
    status.etcd_version.clone_from(&facts.etcd_version);
    status.etcd_revision = Some(facts.revision);
    status.last_success_date = Some(Time(taken.unwrap_or(at)));
}

fn end(run: &mut BackupRun, result: RunResult, at: Timestamp) {
    run.result = Some(result);
    let took = run.started.as_ref().map(|began| at.duration_since(began.0));
    run.duration = took.map(|took| duration(u64::try_from(took.as_secs()).unwrap_or_default()));
}

/// Ends what is under way, because another run takes its place.
pub(super) fn end_for_another(plan: &mut Plan, seen: &Observed) {
    let names: Vec<String> = super::running(&plan.status)
        .map(|run| run.name.clone())
        .collect();
    for name in names {
        for job in [name.clone(), jobs::proof_name(&name)] {
            if let Some(facts) = seen.jobs.get(&job) {
                plan.steps.push(Step::Delete {
                    uid: facts.uid.clone(),
                    job,
                });
            }
        }
        plan.steps
            .retain(|step| !matches!(step, Step::Prove { run, .. } if *run == name));
        let Some(index) = plan.status.history.iter().position(|run| run.name == name) else {
            continue;
        };
        let mut run = plan.status.history[index].clone();
        let message = "the next run was due, and spec.concurrencyPolicy is Replace".to_owned();
        fail(plan, &mut run, "Replaced", message, seen.now);
        plan.status.history[index] = run;
    }
}

/// `1h2m3s`.
pub(super) fn duration(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

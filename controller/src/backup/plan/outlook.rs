//! How a backup stands, in conditions and in one word.

use etcd_operator_api::{
    ValidatedBackup,
    v1beta2::{
        BackupSummary, RunResult,
        condition::{READY, RECONCILING, STALLED},
    },
    validated::Recurrence,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{Hindrance, Plan, running};
use crate::backup::observed::Observed;

pub(super) fn publish(
    plan: &mut Plan,
    backup: &ValidatedBackup,
    seen: &Observed,
    hindrance: Option<&Hindrance>,
) {
    let status = &mut plan.status;
    status.observed_generation = Some(backup.generation);
    let newest = status
        .history
        .iter()
        .find(|run| run.result != Some(RunResult::Running));
    let under_way = running(status).next();
    let failed = newest.filter(|run| run.result == Some(RunResult::Failed));
    let once = backup.recurrence == Recurrence::Once;

    let said = |known: Option<&String>| known.cloned().unwrap_or_default();
    let (ready, ready_reason, ready_message) = match (newest, status.succeeded) {
        _ if hindrance.is_some() && newest.is_none() => {
            let (reason, message) = hindrance.map(Hindrance::words).unwrap_or_default();
            (false, reason.to_owned(), message.to_owned())
        }
        (Some(run), _) if run.result == Some(RunResult::Failed) => (
            false,
            run.reason.clone().unwrap_or_else(|| "RunFailed".to_owned()),
            said(run.message.as_ref()),
        ),
        (Some(run), _) => (
            true,
            "RunSucceeded".to_owned(),
            format!(
                "revision {} is saved as {}",
                run.etcd_revision.unwrap_or_default(),
                said(run.snapshot.as_ref())
            ),
        ),
        (None, Some(true)) => (
            true,
            "RunSucceeded".to_owned(),
            "the last run was good".to_owned(),
        ),
        (None, _) if once || under_way.is_some() => (
            false,
            "Running".to_owned(),
            "the first run has not ended".to_owned(),
        ),
        (None, _) => (
            true,
            "NotDueYet".to_owned(),
            "the first run is not due yet".to_owned(),
        ),
    };
    let (working, working_reason, working_message) = match (under_way, hindrance) {
        (Some(run), _) => (
            true,
            "Running".to_owned(),
            run.message.as_ref().map_or_else(
                || format!("{} is under way", run.name),
                |message| format!("{}: {message}", run.name),
            ),
        ),
        (None, Some(Hindrance::Waiting { reason, message })) => {
            (true, (*reason).to_owned(), message.clone())
        }
        _ => (
            false,
            "NothingToDo".to_owned(),
            "no run is under way".to_owned(),
        ),
    };
    let stalled = match (hindrance, failed) {
        (Some(Hindrance::Stalled { reason, message }), _) => {
            Some(((*reason).to_owned(), message.clone()))
        }
        // Nothing tries it again by itself.
        (None, Some(run)) if once && under_way.is_none() => Some((
            run.reason.clone().unwrap_or_else(|| "RunFailed".to_owned()),
            said(run.message.as_ref()),
        )),
        _ => None,
    };
    let summary = if under_way.is_some() {
        BackupSummary::Running
    } else if matches!(hindrance, Some(Hindrance::Stalled { .. })) {
        BackupSummary::Stalled
    } else if backup.suspend {
        BackupSummary::Suspended
    } else if newest.is_none() && status.succeeded.is_none() {
        BackupSummary::Waiting
    } else if failed.is_some() {
        BackupSummary::Failed
    } else {
        BackupSummary::Succeeded
    };
    status.summary = Some(summary);
    let generation = Some(backup.generation);
    let mut put = |type_: &str, value: bool, reason: &str, message: &str| {
        set(
            &mut status.conditions,
            condition(type_, value, reason, message, generation, seen.now),
        );
    };
    put(READY, ready, &ready_reason, &ready_message);
    put(RECONCILING, working, &working_reason, &working_message);
    match stalled {
        Some((reason, message)) => put(STALLED, true, &reason, &message),
        None => put(STALLED, false, "NothingInTheWay", "nothing in the way"),
    }
}

impl Hindrance {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Stalled { reason, message } | Self::Waiting { reason, message } => {
                (reason, message)
            }
        }
    }
}

pub(crate) fn condition(
    type_: &str,
    value: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: if value { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    }
}

/// Puts a condition in its place; the time changes only when the status does.
pub(crate) fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    if let Some(known) = conditions.iter_mut().find(|known| known.type_ == new.type_) {
        if known.status == new.status {
            new.last_transition_time = known.last_transition_time.clone();
        }
        *known = new;
    } else {
        conditions.push(new);
    }
}

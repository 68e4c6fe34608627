//! Situations in a line or two, and the plan as text.

use etcd_operator_api::{
    Policy, ValidatedBackup,
    orders::{EtcdAccess, Facts, FailureReason, Report},
    v1beta2::{BackupSummary, EtcdBackup, EtcdBackupStatus, Verify},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::backup::observed::{Ended, How, JobFacts, Subject};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

#[allow(clippy::needless_pass_by_value)] // Reads as a literal where it is called.
fn backup(more: Value) -> ValidatedBackup {
    let mut spec = json!({"clusterName": "c", "s3": {"path": "b/k", "awsSecret": "aws"}});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let object: EtcdBackup = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
        "metadata": {"name": "nightly", "namespace": "n", "uid": "u", "generation": 1},
        "spec": spec,
    }))
    .unwrap();
    ValidatedBackup::new(&object, &Policy::default()).unwrap()
}

/// Just made; etcd can be reached.
fn seen() -> Observed {
    Observed {
        now: now(),
        created: now() - SignedDuration::from_mins(90),
        status: EtcdBackupStatus::default(),
        run_now: None,
        subject: Ok(Subject {
            access: EtcdAccess::default(),
            client_secret: None,
            issues: false,
            repository: None,
        }),
        jobs: [].into(),
    }
}

/// What would be seen after the plan was carried out, a minute later.
fn after(plan: &Plan, mut seen: Observed) -> Observed {
    seen.now += SignedDuration::from_mins(1);
    seen.status = plan.status.clone();
    for step in &plan.steps {
        match step {
            Step::Save { run, cause } => {
                let job = job(Purpose::Save, seen.now, Some(cause.clone()));
                seen.jobs.insert(run.clone(), job);
            }
            Step::Prove { run, .. } => {
                let job = job(Purpose::Prove, seen.now, None);
                seen.jobs.insert(jobs::proof_name(run), job);
            }
            Step::Delete { job, .. } => drop(seen.jobs.remove(job)),
        }
    }
    seen
}

fn job(purpose: Purpose, created: Timestamp, cause: Option<Cause>) -> JobFacts {
    JobFacts {
        uid: "job".to_owned(),
        purpose,
        created,
        cause,
        ended: None,
        report: None,
        trouble: None,
    }
}

fn saved() -> Report {
    Report::Saved {
        facts: Facts {
            snapshot: "k_v7".to_owned(),
            hash: "abc".to_owned(),
            revision: 7,
            size: 3 << 20,
            etcd_version: Some("3.6.16".to_owned()),
            taken: Some("2026-01-01T12:00:30Z".to_owned()),
            ..Facts::default()
        },
        kept: 4,
        removed: 1,
        prune_failure: None,
    }
}

/// The Job under way ends like this.
fn ends(seen: &mut Observed, how: How, report: Option<Report>) {
    let at = seen.now;
    let job = seen
        .jobs
        .values_mut()
        .find(|job| job.ended.is_none())
        .unwrap();
    job.ended = Some(Ended { how, at });
    job.report = report;
}

fn text(plan: &Plan) -> String {
    let steps: Vec<String> = plan
        .steps
        .iter()
        .map(|step| match step {
            Step::Save { cause, .. } => format!("save for {cause:?}"),
            Step::Prove {
                snapshot, version, ..
            } => format!("prove {} on {version}", snapshot.name),
            Step::Delete { .. } => "delete a Job".to_owned(),
        })
        .collect();
    let conditions: Vec<String> = plan
        .status
        .conditions
        .iter()
        .filter(|known| known.status == "True")
        .map(|known| format!("{} {}", known.type_, known.reason))
        .collect();
    format!(
        "{}; {:?}; {}",
        if steps.is_empty() {
            "nothing".to_owned()
        } else {
            steps.join(", ")
        },
        plan.status.summary.unwrap(),
        conditions.join(", ")
    )
}

fn first_run(backup: &ValidatedBackup) -> Observed {
    let plan = plan(backup, &seen());
    after(&plan, seen())
}

#[test]
fn without_a_time_it_runs_once_for_each_generation() {
    let mut once = backup(json!({}));
    let first = plan(&once, &seen());
    assert_eq!(
        text(&first),
        "save for Generation(1); Running; Reconciling Running"
    );
    let mut then = after(&first, seen());
    assert_eq!(
        text(&plan(&once, &then)),
        "nothing; Running; Reconciling Running"
    );
    ends(&mut then, How::Succeeded, Some(saved()));
    let good = plan(&once, &then);
    assert_eq!(text(&good), "nothing; Succeeded; Ready RunSucceeded");
    assert_eq!(good.look_again, None);
    let status = &good.status;
    assert_eq!(status.succeeded, Some(true));
    assert_eq!(status.etcd_revision, Some(7));
    assert_eq!(status.snapshots, Some(4));
    assert_eq!(
        status.last_success_date.as_ref().unwrap().0.to_string(),
        "2026-01-01T12:00:30Z"
    );
    let run = &status.history[0];
    assert_eq!(run.verified, Some(Verify::Hash));
    assert_eq!(run.size.as_ref().unwrap().0, "3Mi");
    assert_eq!(run.duration.as_deref(), Some("1m0s"));

    let at_rest = after(&good, then);
    assert_eq!(
        plan(&once, &at_rest).status,
        good.status,
        "at rest nothing is written"
    );
    once.generation = 2;
    assert_eq!(
        text(&plan(&once, &at_rest)),
        "save for Generation(2); Running; Ready RunSucceeded, Reconciling Running"
    );
}

#[test]
fn a_run_is_the_same_however_often_it_is_begun() {
    let once = backup(json!({}));
    let first = plan(&once, &seen());
    // We died before the status was written: the Job is there, and nothing is known of it.
    let mut forgotten = after(&first, seen());
    forgotten.status = EtcdBackupStatus::default();
    let again = plan(&once, &forgotten);
    assert_eq!(text(&again), "nothing; Running; Reconciling Running");
    assert_eq!(again.status.history[0].name, first.status.history[0].name);
    assert_eq!(again.status.ran_generation, Some(1));
}

#[test]
fn a_run_that_failed_says_why_and_what_runs_once_waits_for_a_person() {
    let once = backup(json!({}));
    let mut failed = first_run(&once);
    let report = Report::Failed {
        reason: FailureReason::BucketNotFound,
        message: "there is no bucket b".to_owned(),
    };
    ends(&mut failed, How::Failed, Some(report));
    let plan = plan(&once, &failed);
    assert_eq!(text(&plan), "nothing; Failed; Stalled BucketNotFound");
    assert_eq!(plan.status.reason.as_deref(), Some("there is no bucket b"));
    assert_eq!(plan.status.succeeded, Some(false));
    assert_eq!(
        plan.tellings[0].note,
        format!(
            "{}: BucketNotFound: there is no bucket b",
            plan.status.history[0].name
        )
    );
}

#[test]
fn a_pod_that_does_not_start_is_spoken_of_while_it_does_not_and_after_the_time_out() {
    let once = backup(json!({"backupPolicy": {"timeoutInSecond": 90}}));
    let mut waiting = first_run(&once);
    let words = "Secret aws does not exist: its pod waits for it";
    waiting.jobs.values_mut().next().unwrap().trouble = Some(words.to_owned());
    let stuck = plan(&once, &waiting);
    let reconciling = stuck
        .status
        .conditions
        .iter()
        .find(|known| known.type_ == "Reconciling")
        .unwrap();
    assert!(reconciling.message.contains(words), "{reconciling:?}");
    // The Job's end takes the pod away, and with it what it said.
    let mut over = after(&stuck, waiting);
    ends(&mut over, How::TimedOut, None);
    over.jobs.values_mut().next().unwrap().trouble = None;
    let over = plan(&once, &over);
    assert_eq!(text(&over), "nothing; Failed; Stalled TimedOut");
    assert_eq!(
        over.status.reason.as_deref(),
        Some(
            "it did not end within 1m30s, which is spec.backupPolicy.timeoutInSecond; last seen: Secret aws does not exist: \
             its pod waits for it"
        )
    );
}

#[test]
fn an_agent_that_was_killed_for_good_and_a_job_that_was_deleted_are_failures() {
    let once = backup(json!({}));
    let mut killed = first_run(&once);
    ends(&mut killed, How::Failed, None);
    assert_eq!(
        text(&plan(&once, &killed)),
        "nothing; Failed; Stalled AgentFailed"
    );
    let mut deleted = first_run(&once);
    deleted.jobs.clear();
    assert_eq!(
        text(&plan(&once, &deleted)),
        "nothing; Failed; Stalled JobDeleted"
    );
}

#[test]
fn where_a_restore_is_asked_for_a_run_is_good_only_after_it() {
    let proven = backup(json!({"verify": "Restore"}));
    let mut saved_it = first_run(&proven);
    ends(&mut saved_it, How::Succeeded, Some(saved()));
    let asks = plan(&proven, &saved_it);
    assert_eq!(
        text(&asks),
        "prove k_v7 on 3.6.16; Running; Reconciling Running"
    );
    let proving = after(&asks, saved_it);
    assert_eq!(
        text(&plan(&proven, &proving)),
        "nothing; Running; Reconciling Running"
    );

    let sound = Report::Sound {
        facts: Facts::default(),
    };
    let mut good = proving.clone();
    ends(&mut good, How::Succeeded, Some(sound));
    let good = plan(&proven, &good);
    assert_eq!(text(&good), "nothing; Succeeded; Ready RunSucceeded");
    assert_eq!(good.status.history[0].verified, Some(Verify::Restore));

    let mut bad = proving;
    let report = Report::Failed {
        reason: FailureReason::ProofFailed,
        message: "keys are missing".to_owned(),
    };
    ends(&mut bad, How::Failed, Some(report));
    let bad = plan(&proven, &bad);
    assert_eq!(text(&bad), "nothing; Failed; Stalled ProofFailed");
    assert_eq!(bad.status.last_success_date, None);
}

#[test]
fn a_schedule_runs_when_it_is_due_and_a_failure_waits_for_the_next_time() {
    let hourly = backup(json!({"schedule": "0 * * * *", "retention": {"count": 3}}));
    let mut early = seen();
    early.created = now() - SignedDuration::from_secs(1);
    early.now = now() - SignedDuration::from_secs(1);
    let waits = plan(&hourly, &early);
    assert_eq!(text(&waits), "nothing; Waiting; Ready NotDueYet");
    assert_eq!(waits.look_again, Some(Duration::from_millis(1050)));
    early.now = now();
    let due = plan(&hourly, &early);
    assert_eq!(
        text(&due),
        "save for Due(2026-01-01T12:00:00Z); Running; Reconciling Running"
    );
    let mut failed = after(&due, early);
    ends(&mut failed, How::Failed, None);
    let failed = plan(&hourly, &failed);
    assert_eq!(text(&failed), "nothing; Failed; ");
    assert_eq!(
        failed.status.next_run.as_ref().unwrap().0.to_string(),
        "2026-01-01T13:00:00Z"
    );
}

#[test]
fn a_run_that_is_due_while_one_is_under_way_is_left_out_or_takes_its_place() {
    for (policy, expected) in [
        ("Forbid", "nothing; Running; Reconciling Running"),
        (
            "Replace",
            "delete a Job, save for Due(2026-01-01T13:00:00Z); Running; Reconciling Running",
        ),
    ] {
        let hourly = backup(json!({
            "schedule": "0 * * * *", "concurrencyPolicy": policy, "retention": {"count": 3},
        }));
        let mut under_way = first_run(&hourly);
        under_way.now = now() + SignedDuration::from_mins(61);
        let next = plan(&hourly, &under_way);
        assert_eq!(text(&next), expected);
        assert_eq!(
            next.status.last_run.as_ref().unwrap().0.to_string(),
            "2026-01-01T13:00:00Z"
        );
    }
}

#[test]
fn a_new_word_runs_it_now_and_the_same_word_never_again() {
    let nightly = backup(json!({"schedule": "@daily", "retention": {"count": 3}}));
    let mut asked = seen();
    asked.run_now = Some("please".to_owned());
    let runs = plan(&nightly, &asked);
    assert_eq!(
        text(&runs),
        "save for RunNow(\"please\"); Running; Reconciling Running"
    );
    let mut then = after(&runs, asked);
    ends(&mut then, How::Succeeded, Some(saved()));
    let then = after(&plan(&nightly, &then), then.clone());
    assert_eq!(
        text(&plan(&nightly, &then)),
        "nothing; Succeeded; Ready RunSucceeded"
    );
}

#[test]
fn what_a_cluster_asks_for_is_run_and_says_for_what() {
    let nightly = backup(json!({"schedule": "@daily", "retention": {"count": 3}}));
    let mut asked = seen();
    asked.status.requested = Some("c goes up".to_owned());
    let runs = plan(&nightly, &asked);
    assert_eq!(runs.status.history[0].request.as_deref(), Some("c goes up"));
    assert_eq!(runs.status.obeyed.as_deref(), Some("c goes up"));
    assert_eq!(
        runs.tellings[0].note.split_once(": ").unwrap().1,
        "saving before c goes up"
    );
}

#[test]
fn while_it_is_suspended_nothing_is_begun() {
    let suspended = backup(json!({"suspend": true}));
    let mut asked = seen();
    asked.run_now = Some("please".to_owned());
    let plan = plan(&suspended, &asked);
    assert_eq!(plan.steps, []);
    assert_eq!(plan.status.summary, Some(BackupSummary::Suspended));
    assert_eq!(plan.look_again, None);
}

#[test]
fn a_cluster_that_is_not_there_is_waited_for_in_words() {
    let once = backup(json!({}));
    let mut alone = seen();
    alone.subject = Err(Unreachable::NoCluster("c".to_owned()));
    let stalled = plan(&once, &alone);
    assert_eq!(text(&stalled), "nothing; Stalled; Stalled ClusterNotFound");
    assert_eq!(stalled.look_again, Some(WHILE_WAITING));
    alone.subject = Err(Unreachable::NotYet("c".to_owned()));
    assert_eq!(
        text(&plan(&once, &alone)),
        "nothing; Waiting; Reconciling WaitingForCluster"
    );
}

#[test]
fn the_last_jobs_are_kept_and_the_history_has_an_end() {
    let hourly = backup(json!({
        "backupPolicy": {"backupIntervalInSecond": 3600}, "retention": {"count": 3},
    }));
    let mut look = seen();
    for _ in 0..LONGEST_HISTORY + 5 {
        let begun = plan(&hourly, &look);
        assert!(
            begun
                .steps
                .iter()
                .any(|step| matches!(step, Step::Save { .. }))
        );
        look = after(&begun, look);
        ends(&mut look, How::Succeeded, Some(saved()));
        let ended = plan(&hourly, &look);
        look = after(&ended, look);
        look.now += SignedDuration::from_hours(1);
    }
    assert_eq!(look.status.history.len(), LONGEST_HISTORY);
    assert_eq!(look.jobs.len(), KEPT_RUNS);
}

#[test]
fn what_coreos_operator_has_saved_is_not_saved_again() {
    let once = backup(json!({}));
    let mut old = seen();
    old.status.succeeded = Some(true);
    assert_eq!(
        text(&plan(&once, &old)),
        "nothing; Succeeded; Ready RunSucceeded"
    );
}

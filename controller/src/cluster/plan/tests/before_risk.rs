//! A backup before each change of the minor version.

use jiff::SignedDuration;
use serde_json::json;

use super::plans;
use crate::cluster::{
    fixtures::{cluster, formed, member, now},
    observed::Observed,
    reliance::{BackupFacts, Relied, RunFacts},
};
use etcd_operator_api::ValidatedCluster;

const WORD: &str = "c goes from 3.6.16 to 3.7.3 (generation 1 of 11111111)";

/// A cluster that runs 3.6.16 and is to run 3.7.3; its logs can be read.
fn upgrade(relied: Relied, before_risk: &str) -> (ValidatedCluster, Observed) {
    let spec = |version: &str| {
        json!({
            "version": version,
            "backup": {"backupName": "nightly", "beforeRisk": before_risk},
        })
    };
    let mut seen = formed(&cluster(spec("3.6.16")), &["c-a", "c-b", "c-c"]);
    for name in ["c-a", "c-b", "c-c"] {
        let answer = member(&mut seen, name).answer.as_mut().unwrap();
        answer.storage_version = "3.6.0".to_owned();
    }
    seen.log_readable_by = Some(etcd_operator_api::Minor::new(3, 7));
    seen.relied = relied;
    (cluster(spec("3.7.3")), seen)
}

fn backup(change: impl FnOnce(&mut BackupFacts)) -> Relied {
    let mut facts = BackupFacts {
        saves_us: true,
        ..BackupFacts::default()
    };
    change(&mut facts);
    Relied::Found(facts)
}

fn run(request: Option<&str>, good: Option<bool>, minutes_ago: i64) -> RunFacts {
    RunFacts {
        request: request.map(ToOwned::to_owned),
        good,
        started: Some(now() - SignedDuration::from_mins(minutes_ago)),
        words: "BucketNotFound: there is no bucket b".to_owned(),
    }
}

#[track_caller]
fn says(relied: Relied, expected: &str) {
    let (cluster, seen) = upgrade(relied, "Always");
    let plan = plans(&cluster, &seen);
    assert!(
        plan.starts_with(expected),
        "{plan}\ndoes not begin with\n{expected}"
    );
}

const ON: &str = "restart c-b: it is to run another version";

#[test]
fn an_upgrade_of_the_minor_asks_for_a_backup_once_and_waits_for_it() {
    says(
        backup(|_| {}),
        &format!(
            "ask EtcdBackup nightly for a run; Upgrading BackingUp: {WORD}: a backup comes first"
        ),
    );
    says(
        backup(|facts| facts.requested = Some(WORD.to_owned())),
        &format!("no step; Upgrading BackingUp: {WORD}: EtcdBackup nightly is about to save"),
    );
    says(
        backup(|facts| facts.runs = vec![run(Some(WORD), None, 1)]),
        &format!("no step; Upgrading BackingUp: {WORD}: EtcdBackup nightly saves"),
    );
    says(
        backup(|facts| facts.runs = vec![run(Some(WORD), Some(true), 1)]),
        ON,
    );
}

#[test]
fn a_good_backup_that_was_taken_for_something_else_does_not_count() {
    says(
        backup(|facts| facts.runs = vec![run(Some("another step"), Some(true), 1)]),
        "ask EtcdBackup nightly",
    );
    says(
        backup(|facts| facts.runs = vec![run(None, Some(true), 1)]),
        "ask EtcdBackup nightly",
    );
}

#[test]
fn a_backup_that_failed_holds_the_step_until_a_later_one_is_good() {
    let failed = || run(Some(WORD), Some(false), 10);
    says(
        backup(|facts| facts.runs = vec![failed()]),
        &format!("no step; stalled BackupFailed: {WORD}: not before a good backup"),
    );
    says(
        backup(|facts| facts.runs = vec![failed(), run(None, Some(true), 20)]),
        "no step; stalled BackupFailed",
    );
    says(
        backup(|facts| facts.runs = vec![run(None, Some(false), 5), failed()]),
        "no step; stalled BackupFailed",
    );
    says(
        backup(|facts| facts.runs = vec![run(None, Some(true), 5), failed()]),
        ON,
    );
}

#[test]
fn a_backup_that_cannot_be_had_holds_the_step_and_says_why() {
    for (relied, why) in [
        (Relied::Missing, "EtcdBackup nightly does not exist"),
        (
            backup(|facts| facts.saves_us = false),
            "EtcdBackup nightly saves another cluster",
        ),
        (
            backup(|facts| facts.suspended = true),
            "EtcdBackup nightly is suspended",
        ),
    ] {
        let (cluster, seen) = upgrade(relied, "Always");
        let plan = plans(&cluster, &seen);
        assert!(plan.starts_with("no step; stalled BackupFailed"), "{plan}");
        assert!(plan.contains(why), "{plan}");
        assert!(
            plan.contains("beforeRisk of EtcdCluster c to Never"),
            "{plan}"
        );
    }
}

#[test]
fn whoever_says_never_is_not_held() {
    let (cluster, seen) = upgrade(Relied::Missing, "Never");
    assert!(plans(&cluster, &seen).starts_with(ON));
}

#[test]
fn a_patch_needs_no_backup_and_nor_does_a_step_that_has_begun() {
    let spec = |version: &str| json!({"version": version, "backup": {"backupName": "nightly"}});
    let mut seen = formed(&cluster(spec("3.6.15")), &["c-a", "c-b", "c-c"]);
    seen.relied = Relied::Missing;
    let plan = plans(&cluster(spec("3.6.16")), &seen);
    assert!(plan.starts_with(ON), "{plan}");

    let (target, mut seen) = upgrade(Relied::Missing, "Always");
    let moved = member(&mut seen, "c-b");
    moved.answer.as_mut().unwrap().version = "3.7.3".to_owned();
    moved.pod.as_mut().unwrap().version = Some(target.version);
    moved.pod.as_mut().unwrap().config = crate::cluster::children::fingerprint(&target, "c-b");
    let plan = plans(&target, &seen);
    assert!(plan.starts_with("restart c-c"), "{plan}");
}

#[test]
fn a_downgrade_asks_before_etcd_is_told_of_it() {
    let spec = |version: &str| json!({"version": version, "backup": {"backupName": "nightly"}});
    let mut seen = formed(&cluster(spec("3.7.3")), &["c-a", "c-b", "c-c"]);
    for name in ["c-a", "c-b", "c-c"] {
        let answer = member(&mut seen, name).answer.as_mut().unwrap();
        answer.storage_version = "3.7.0".to_owned();
    }
    seen.relied = backup(|_| {});
    let target = cluster(spec("3.6.16"));
    let plan = plans(&target, &seen);
    assert!(plan.starts_with("ask EtcdBackup nightly"), "{plan}");
    let word = "c goes from 3.7.3 to 3.6.16 (generation 1 of 11111111)";
    seen.relied = backup(|facts| facts.runs = vec![run(Some(word), Some(true), 1)]);
    let plan = plans(&target, &seen);
    assert!(
        plan.starts_with("prepare etcd for a downgrade to 3.6"),
        "{plan}"
    );
}

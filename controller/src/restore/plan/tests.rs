//! What a restore does, and when it touches nothing.

use etcd_operator_api::v1beta2::{EtcdRestore, PvcStore};
use serde_json::{Value, json};

use super::*;
use crate::cluster::{
    fixtures,
    reliance::{BackupFacts, RunFacts},
};

const UID: &str = "restore-uid";

fn store() -> Store {
    Store::PVC(PvcStore {
        claim_name: Some("backups".to_owned()),
        path: Some("etcd.backup".to_owned()),
    })
}

#[allow(clippy::needless_pass_by_value)] // Reads as a literal where it is called.
fn restore(target: Value) -> ValidatedRestore {
    let mut spec = json!({"pvc": {"claimName": "backups", "path": "etcd.backup"}});
    spec.as_object_mut()
        .unwrap()
        .extend(target.as_object().unwrap().clone());
    let object: EtcdRestore = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdRestore",
        "metadata": {"name": "back", "namespace": "n", "uid": UID},
        "spec": spec,
    }))
    .unwrap();
    ValidatedRestore::new(&object, &Policy::default()).unwrap()
}

fn into_new() -> ValidatedRestore {
    restore(json!({"newCluster": {"name": "c"}}))
}

fn in_place() -> ValidatedRestore {
    restore(json!({"etcdCluster": {"name": "c"}}))
}

fn now() -> Timestamp {
    fixtures::now()
}

fn nothing() -> Observed {
    Observed {
        now: now(),
        status: EtcdRestoreStatus::default(),
        source: Ok((store(), "etcd.backup".to_owned())),
        job: None,
        cluster: None,
        relied: Relied::Unknown,
        deleted: false,
        held: false,
    }
}

fn facts(version: &str) -> Facts {
    Facts {
        snapshot: "etcd.backup".to_owned(),
        sha256: "0".repeat(64),
        revision: 12,
        size: 1 << 20,
        etcd_version: Some(version.to_owned()),
        ..Facts::default()
    }
}

/// The Job ended with this, so many seconds ago.
fn after(report: Report, seconds: i64) -> Observed {
    Observed {
        job: Some(JobFacts {
            uid: "job".to_owned(),
            terminating: false,
            ended: Some(now() - SignedDuration::from_secs(seconds)),
            report: Some(report),
            trouble: None,
        }),
        ..nothing()
    }
}

fn failed(reason: FailureReason) -> Report {
    Report::Failed {
        reason,
        message: "words".to_owned(),
    }
}

/// The snapshot was checked, and fits.
fn checked() -> Observed {
    Observed {
        status: EtcdRestoreStatus {
            phase: Some(RestorePhase::Checking),
            snapshot: Some("etcd.backup".to_owned()),
            sha256: Some("0".repeat(64)),
            etcd_version: Some("3.6.16".to_owned()),
            etcd_revision: Some(12),
            ..EtcdRestoreStatus::default()
        },
        ..nothing()
    }
}

fn decide(restore: &ValidatedRestore, seen: &Observed) -> Plan {
    plan(restore, seen, &Policy::default())
}

fn reason(plan: &Plan) -> &'static str {
    match &plan.outlook {
        Outlook::Working(why) | Outlook::Stalled(why) | Outlook::Failed(why) => why.reason,
        Outlook::Succeeded => "Succeeded",
    }
}

/// A cluster that runs.
fn cluster(status: Value) -> EtcdCluster {
    let mut object = fixtures::object(json!({"version": "3.6.16"}));
    object.status = serde_json::from_value(status).unwrap();
    object
}

fn runs() -> EtcdCluster {
    cluster(json!({"clusterID": "c0", "bootstrap": {"token": "first"}}))
}

#[allow(clippy::needless_pass_by_value)]
fn seeded(by: &str, more: Value) -> EtcdCluster {
    let seed = Seed {
        restore: "back".to_owned(),
        restore_uid: by.to_owned(),
        snapshot: "etcd.backup".to_owned(),
        sha256: "0".repeat(64),
        ..Seed::default()
    }
    .from_store(store());
    let mut status = json!({"observedGeneration": 1, "bootstrap": {"token": "t", "seed": seed}});
    for (key, value) in more.as_object().unwrap() {
        if key == "former" {
            status["bootstrap"]["former"] = value.clone();
        } else {
            status[key] = value.clone();
        }
    }
    let mut object = cluster(status);
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(SEED.to_owned(), seed.text());
    object
}

fn ready() -> Value {
    json!([{
        "type": "Ready", "status": "True", "reason": "AsSpecified", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }])
}

#[test]
fn first_the_snapshot_is_fetched_and_nothing_else_is_done() {
    for (restore, cluster) in [(into_new(), None), (in_place(), Some(runs()))] {
        let seen = Observed {
            cluster,
            ..nothing()
        };
        let plan = decide(&restore, &seen);
        assert!(matches!(plan.step, Some(Step::Inspect { .. })), "{plan:?}");
        assert_eq!(plan.phase, Some(RestorePhase::Fetching));
    }
}

#[test]
fn a_sound_snapshot_that_fits_is_written_down_before_anything_is_made() {
    let sound = Report::Sound {
        facts: facts("3.6.16"),
    };
    let plan = decide(&into_new(), &after(sound, 0));
    assert_eq!(
        (plan.step, plan.phase),
        (None, Some(RestorePhase::Checking))
    );
    assert_eq!(plan.facts.unwrap().revision, 12);
}

#[test]
fn what_is_wrong_with_the_snapshot_itself_ends_the_restore_with_everything_untouched() {
    for reason in [FailureReason::SnapshotCorrupt, FailureReason::NotASnapshot] {
        let plan = decide(&into_new(), &after(failed(reason), 0));
        assert_eq!((plan.step, plan.phase), (None, Some(RestorePhase::Failed)));
        let Outlook::Failed(why) = plan.outlook else {
            panic!()
        };
        assert_eq!(
            (why.reason, why.message.as_str()),
            (reason.as_str(), "words")
        );
    }
}

#[test]
fn what_is_wrong_with_the_snapshot_is_not_tried_again_and_again_by_its_job() {
    for (fault, phase, stalled) in [
        (FailureReason::SnapshotCorrupt, RestorePhase::Failed, false),
        // It may be on its way into the store still.
        (
            FailureReason::SnapshotIncomplete,
            RestorePhase::Fetching,
            true,
        ),
        (
            FailureReason::StoreUnreachable,
            RestorePhase::Fetching,
            false,
        ),
    ] {
        let mut seen = after(failed(fault), 0);
        seen.job.as_mut().unwrap().ended = None;
        let plan = decide(&into_new(), &seen);
        assert_eq!((reason(&plan), plan.phase), (fault.as_str(), Some(phase)));
        assert_eq!(matches!(plan.outlook, Outlook::Stalled(_)), stalled);
        assert_eq!(plan.step, None);
    }
}

#[test]
fn what_does_not_fit_ends_the_restore_with_everything_untouched() {
    let table = vec![
        (
            in_place(),
            Some(runs()),
            facts("3.4.1"),
            "VersionDoesNotFit",
        ),
        (
            restore(json!({"newCluster": {"name": "c", "spec": {"version": "3.7.3"}}})),
            None,
            facts("3.5.35"),
            "VersionDoesNotFit",
        ),
        (
            into_new(),
            None,
            Facts {
                size: 5 << 30,
                ..facts("3.6.16")
            },
            "LargerThanQuota",
        ),
        // No cluster of this version may be made at all.
        (into_new(), None, facts("3.5.1"), "InvalidCluster"),
    ];
    for (restore, cluster, facts, expected) in table {
        let seen = Observed {
            cluster,
            ..after(Report::Sound { facts }, 0)
        };
        let plan = decide(&restore, &seen);
        assert_eq!(reason(&plan), expected);
        assert_eq!((plan.step, plan.phase), (None, Some(RestorePhase::Failed)));
    }
}

#[test]
fn a_fault_of_the_store_is_tried_again_after_a_while() {
    for (fault, passing) in [
        (FailureReason::StoreUnreachable, true),
        (FailureReason::CredentialsInvalid, false),
    ] {
        let plan = decide(&into_new(), &after(failed(fault), 1));
        assert_eq!(plan.step, None);
        assert_eq!(reason(&plan), fault.as_str());
        assert_eq!(matches!(plan.outlook, Outlook::Working(_)), passing);
        let plan = decide(&into_new(), &after(failed(fault), 60));
        assert!(matches!(plan.step, Some(Step::DeleteJob { .. })));
        assert_ne!(plan.phase, Some(RestorePhase::Failed));
    }
}

#[test]
fn a_new_cluster_carries_its_seed_from_its_first_moment_and_the_version_of_the_snapshot() {
    let plan = decide(&into_new(), &checked());
    let Some(Step::Create { cluster }) = plan.step else {
        panic!("{plan:?}")
    };
    assert_eq!(cluster.spec.version.as_deref(), Some("3.6.16"));
    assert_eq!(cluster.metadata.owner_references, None);
    let seed = Seed::read(&cluster.metadata.annotations.unwrap()[SEED]).unwrap();
    assert_eq!(seed.restore_uid, UID);
    assert_eq!(seed.store(), Some(store()));
}

#[test]
fn a_cluster_that_is_not_of_this_restore_is_left_alone() {
    for mut seen in [nothing(), checked()] {
        seen.cluster = Some(runs());
        let plan = decide(&into_new(), &seen);
        assert_eq!((plan.step.clone(), reason(&plan)), (None, "ClusterExists"));
        seen.cluster = None;
        let plan = decide(&in_place(), &seen);
        assert_eq!((plan.step.clone(), reason(&plan)), (None, "ClusterMissing"));
    }
    // Made by us, begun, and gone: it is not made again.
    let mut seen = checked();
    seen.status.phase = Some(RestorePhase::Restoring);
    let plan = decide(&into_new(), &seen);
    assert_eq!((plan.step.clone(), reason(&plan)), (None, "ClusterGone"));
}

#[test]
fn a_restore_has_succeeded_when_its_cluster_says_that_it_is_ready() {
    let table = [
        (json!({}), RestorePhase::Restoring),
        // Of the incarnation before: this one has no ID yet.
        (json!({"conditions": ready()}), RestorePhase::Restoring),
        (json!({"clusterID": "c1"}), RestorePhase::Starting),
        (
            json!({"clusterID": "c1", "conditions": ready(), "observedGeneration": 0}),
            RestorePhase::Starting,
        ),
        (
            json!({"clusterID": "c1", "conditions": ready()}),
            RestorePhase::Succeeded,
        ),
    ];
    for restore in [into_new(), in_place()] {
        for (status, expected) in table.clone() {
            let mut seen = checked();
            seen.cluster = Some(seeded(UID, status.clone()));
            let plan = decide(&restore, &seen);
            assert_eq!((plan.step, plan.phase), (None, Some(expected)), "{status}");
        }
    }
}

#[test]
fn in_place_is_held_before_it_is_begun_and_waits_for_another() {
    let mut seen = checked();
    seen.cluster = Some(runs());
    assert_eq!(decide(&in_place(), &seen).step, Some(Step::Hold));
    seen.held = true;
    let plan = decide(&in_place(), &seen);
    assert!(matches!(plan.step, Some(Step::Replace { .. })), "{plan:?}");
    assert_eq!(plan.phase, Some(RestorePhase::Restoring));

    let former = json!({"token": "first", "members": ["c-old"]});
    seen.cluster = Some(seeded("another", json!({"former": former})));
    let plan = decide(&in_place(), &seen);
    assert_eq!((plan.step.clone(), reason(&plan)), (None, "AnotherRestore"));
    // One that is over is no hindrance.
    seen.cluster = Some(seeded("another", json!({"clusterID": "c1"})));
    assert!(matches!(
        decide(&in_place(), &seen).step,
        Some(Step::Replace { .. })
    ));
    let mut paused = runs();
    paused.spec.paused = Some(true);
    seen.cluster = Some(paused);
    assert_eq!(decide(&in_place(), &seen).step, None);
}

#[test]
fn a_restore_that_is_deleted_goes_back_until_it_has_succeeded() {
    let former = json!({"token": "first", "clusterID": "c0", "members": ["c-old"]});
    let deleted = |cluster: Option<EtcdCluster>, held: bool| {
        let seen = Observed {
            cluster,
            held,
            deleted: true,
            ..checked()
        };
        decide(&in_place(), &seen).step
    };
    let under_way = seeded(UID, json!({"former": former}));
    assert_eq!(deleted(Some(under_way), true), Some(Step::GoBack));
    let over = seeded(UID, json!({"clusterID": "c1"}));
    assert_eq!(deleted(Some(over), true), Some(Step::LetGo));
    assert_eq!(deleted(None, true), Some(Step::LetGo));
    assert_eq!(deleted(Some(runs()), true), Some(Step::LetGo));
    assert_eq!(deleted(Some(runs()), false), None);
}

#[test]
fn when_all_is_over_the_job_goes_and_then_the_hold() {
    let sound = Report::Sound {
        facts: facts("3.6.16"),
    };
    let mut seen = after(sound, 60);
    seen.status.phase = Some(RestorePhase::Succeeded);
    seen.held = true;
    let plan = decide(&into_new(), &seen);
    assert!(matches!(plan.step, Some(Step::DeleteJob { .. })));
    seen.job = None;
    assert_eq!(decide(&into_new(), &seen).step, Some(Step::LetGo));
    seen.held = false;
    let plan = decide(&into_new(), &seen);
    assert_eq!((plan.step, plan.look_again), (None, None));
}

#[test]
fn a_cluster_that_was_edited_meanwhile_is_asked_again_whether_the_snapshot_fits() {
    let mut seen = checked();
    seen.held = true;
    let mut edited = runs();
    edited.spec.version = Some("3.7.3".to_owned());
    seen.status.etcd_version = Some("3.5.35".to_owned());
    seen.cluster = Some(edited);
    let plan = decide(&in_place(), &seen);
    assert_eq!(
        (plan.step.clone(), reason(&plan)),
        (None, "VersionDoesNotFit")
    );
}

#[test]
fn a_cluster_that_never_served_is_not_replaced_for_there_would_be_no_way_back() {
    let mut seen = checked();
    seen.held = true;
    seen.cluster = Some(cluster(json!({"bootstrap": {"token": "first"}})));
    let plan = decide(&in_place(), &seen);
    assert_eq!(
        (plan.step.clone(), reason(&plan)),
        (None, "ClusterNotBegun")
    );
}

#[allow(clippy::needless_pass_by_value)]
fn condition(type_: &str) -> Value {
    json!({
        "type": type_, "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

#[test]
fn a_recovery_from_a_survivor_is_waited_for_unless_it_cannot_go_on() {
    let mut seen = checked();
    seen.held = true;
    let recovery = json!({"clusterID": "c0", "survivor": "c-a"});
    let mut status =
        json!({"clusterID": "c0", "bootstrap": {"token": "first"}, "recovery": recovery});
    seen.cluster = Some(cluster(status.clone()));
    let plan = decide(&in_place(), &seen);
    assert_eq!(
        (plan.step.clone(), reason(&plan)),
        (None, "RecoveryUnderWay")
    );
    status["conditions"] = json!([condition("Stalled")]);
    seen.cluster = Some(cluster(status));
    let plan = decide(&in_place(), &seen);
    assert!(matches!(plan.step, Some(Step::Replace { .. })), "{plan:?}");
}

#[test]
fn a_recovery_from_a_backup_is_of_the_cluster_it_names_and_only_while_no_quorum_serves() {
    let recover = restore(json!({"etcdCluster": {"name": "c", "clusterID": "c0"}}));
    let serves = cluster(json!({
        "clusterID": "c0", "bootstrap": {"token": "t"}, "conditions": [condition("Available")],
    }));
    let another = cluster(json!({"clusterID": "c9", "bootstrap": {"token": "t"}}));
    for mut seen in [nothing(), checked()] {
        seen.held = true;
        seen.cluster = Some(runs());
        assert!(decide(&recover, &seen).step.is_some());
        for (found, expected) in [
            (serves.clone(), "RecoveryNotNeeded"),
            (another.clone(), "RecoveryOfAnother"),
        ] {
            seen.cluster = Some(found);
            let plan = decide(&recover, &seen);
            assert_eq!((plan.step.clone(), reason(&plan)), (None, expected));
            // For good: a quorum that is missed some day must not let it loose.
            assert_eq!(plan.phase, Some(RestorePhase::Failed));
        }
        // A plain restore in place is a declared one, and needs neither.
        seen.cluster = Some(serves.clone());
        assert!(decide(&in_place(), &seen).step.is_some());
    }
    // Once it has begun, the cluster has another ID, and in the end serves.
    let mut seen = checked();
    seen.cluster = Some(seeded(UID, json!({"clusterID": "c1"})));
    assert_eq!(decide(&recover, &seen).phase, Some(RestorePhase::Starting));
}

#[test]
fn a_backup_comes_before_the_data_are_replaced_and_holds_the_restore_when_it_fails() {
    let word = "c is restored in place by back (restore-)";
    let mut relies = runs();
    relies.spec.backup = serde_json::from_value(json!({"backupName": "nightly"})).unwrap();
    let mut seen = checked();
    seen.held = true;
    seen.cluster = Some(relies.clone());
    let mut found = BackupFacts {
        saves_us: true,
        ..BackupFacts::default()
    };
    seen.relied = Relied::Found(found.clone());
    let asks = Step::RequestBackup {
        backup: "nightly".to_owned(),
        word: word.to_owned(),
    };
    assert_eq!(decide(&in_place(), &seen).step, Some(asks));
    for (good, expected) in [
        (None, "BackingUp"),
        (Some(false), "BackupFailed"),
        (Some(true), "Restoring"),
    ] {
        found.runs = vec![RunFacts {
            request: Some(word.to_owned()),
            good,
            started: Some(now()),
            words: "StoreUnreachable: it is down".to_owned(),
        }];
        seen.relied = Relied::Found(found.clone());
        let plan = decide(&in_place(), &seen);
        assert_eq!(reason(&plan), expected);
        assert_eq!(plan.step.is_some(), good == Some(true));
    }
    seen.relied = Relied::Missing;
    assert_eq!(reason(&decide(&in_place(), &seen)), "BackupFailed");
    relies.spec.backup =
        serde_json::from_value(json!({"backupName": "nightly", "beforeRisk": "Never"})).unwrap();
    seen.cluster = Some(relies);
    assert_eq!(reason(&decide(&in_place(), &seen)), "Restoring");
}

//! EtcdBackups: what is accepted, what is rejected and why, what is warned of.

#![allow(clippy::needless_pass_by_value)] // `json!` literals read best by value.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::examples::backup;
use crate::validated::{Bucket, Provider, Retention, Store};

fn typed(spec: Value) -> EtcdBackup {
    serde_json::from_value(backup(spec)).unwrap()
}

fn judged(spec: Value) -> Judgement {
    judge(&typed(spec), None, &Policy::default())
}

fn accepts(spec: Value) {
    assert_eq!(judged(spec.clone()).violations, [], "{spec}");
}

fn rejects(spec: Value, field: &str, reason: Reason, words: &str) {
    let violations = judged(spec.clone()).violations;
    let [violation] = violations.as_slice() else {
        panic!("{spec}: {violations:?}");
    };
    assert_eq!(
        (violation.field.as_str(), violation.reason),
        (field, reason),
        "{spec}"
    );
    assert!(
        violation.message.contains(words),
        "{spec}: {}",
        violation.message
    );
}

fn lines(judgement: &Judgement) -> Vec<String> {
    let lines = judgement.warnings.iter();
    lines.map(ToString::to_string).collect()
}

fn warns(spec: Value, line: &str) {
    let lines = lines(&judged(spec.clone()));
    assert!(
        lines.iter().any(|warning| warning.contains(line)),
        "{spec}: {lines:?}"
    );
}

fn read(spec: Value) -> ValidatedBackup {
    let mut object = typed(spec);
    object.metadata.uid = Some("u".to_owned());
    ValidatedBackup::new(&object, &Policy::default()).unwrap()
}

/// A sound one, with this on top.
fn with(added: Value) -> Value {
    let mut spec = json!({"clusterName": "c", "s3": {"path": "b/k"}});
    for (name, value) in added.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

#[test]
fn manifests_of_2018_still_apply() {
    for spec in [
        json!({"etcdEndpoints": ["http://example-etcd-cluster-client:2379"], "storageType": "S3",
               "s3": {"path": "mybucket/etcd.backup", "awsSecret": "aws"}}),
        json!({"etcdEndpoints": ["http://example-etcd-cluster-client:2379"], "storageType": "S3",
               "backupPolicy": {"backupIntervalInSecond": 125, "maxBackups": 4},
               "s3": {"path": "mybucket/etcd.backup", "awsSecret": "aws"}}),
        json!({"etcdEndpoints": ["https://a:2379", "https://b:2379"], "storageType": "GCS", "clientTLSSecret": "etcd-client-tls",
               "gcs": {"path": "my-etcd-backups-bucket/my-etcd-backup-object", "gcpSecret": "gcp"}}),
        json!({"etcdEndpoints": ["example-etcd-cluster-client:2379"], "storageType": "ABS",
               "abs": {"path": "etcd-backups/etcd.backup", "absSecret": "abs"}}),
        // As Go wrote what was not set.
        json!({"etcdEndpoints": ["http://c:2379"], "storageType": "S3", "clientTLSSecret": "",
               "backupPolicy": {"timeoutInSecond": 0, "backupIntervalInSecond": 0, "maxBackups": 0},
               "s3": {"path": "b/k", "awsSecret": "", "endpoint": "", "forcePathStyle": false}}),
    ] {
        accepts(spec);
    }
}

#[test]
fn what_coreos_reported_is_read() {
    let mut object = backup(json!({}));
    object["status"] = json!({"succeeded": true, "Reason": "because", "etcdVersion": "3.2.13",
                              "etcdRevision": 7, "lastSuccessDate": null});
    let status = serde_json::from_value::<EtcdBackup>(object)
        .unwrap()
        .status
        .unwrap();
    assert_eq!(status.reason.as_deref(), Some("because"));
    assert_eq!(status.etcd_revision, Some(7));
}

#[test]
fn every_kind_of_store_is_accepted() {
    for store in [
        json!({"s3": {"path": "b/k", "region": "eu-central-1", "endpoint": "https://s3.example.com", "forcePathStyle": true, "caSecret": "ca"}}),
        json!({"gcs": {"path": "b/k"}}),
        json!({"abs": {"path": "b/k", "storageAccount": "devstoreaccount1", "endpoint": "http://azurite:10000/devstoreaccount1"}}),
        json!({"pvc": {"claimName": "backups", "path": "etcd/etcd.backup"}}),
    ] {
        let mut spec = json!({"clusterName": "c"});
        for (name, value) in store.as_object().unwrap() {
            spec[name] = value.clone();
        }
        accepts(spec);
    }
}

#[test]
fn all_violations_come_at_once() {
    let spec = json!({"etcdEndpoints": ["nowhere"], "storageType": "PVC", "s3": {"path": "b"},
                      "schedule": "61 3 * * *", "timeZone": "Mars/Base", "retention": {"count": 0}});
    let found = judged(spec).violations;
    let reasons: Vec<Reason> = found.iter().map(|violation| violation.reason).collect();
    let expected = [
        Reason::EndpointInvalid,
        Reason::StoreTypeMismatch,
        Reason::StorePathInvalid,
        Reason::TimeZoneUnknown,
        Reason::ScheduleInvalid,
        Reason::OutOfBounds,
    ];
    assert_eq!(reasons, expected, "{found:?}");
}

#[test]
fn a_schedule_says_which_field_is_wrong() {
    for schedule in ["0 3 * * *", "@daily", "*/15 8-18 * * MON-FRI"] {
        accepts(with(json!({"schedule": schedule})));
    }
    rejects(
        with(json!({"schedule": "0 3 * * 7"})),
        "spec.schedule",
        Reason::ScheduleInvalid,
        "a day of week from 0 to 6, not `7`",
    );
    rejects(
        with(json!({"schedule": ""})),
        "spec.schedule",
        Reason::ScheduleInvalid,
        "such as `0 3 * * *`",
    );
    for zone in ["Europe/Berlin", "Etc/UTC", "UTC"] {
        accepts(with(json!({"schedule": "@daily", "timeZone": zone})));
    }
    rejects(
        with(json!({"schedule": "@daily", "timeZone": "Local"})),
        "spec.timeZone",
        Reason::TimeZoneUnknown,
        "such as Europe/Berlin",
    );
}

#[test]
fn risky_settings_warn() {
    warns(
        with(json!({"s3": {"path": "b/k", "endpoint": "http://minio:9000"}})),
        "spec.s3.endpoint: plain text",
    );
    warns(with(json!({"schedule": "@daily"})), "grows without end");
    warns(
        with(json!({"retention": {"count": 3}})),
        "means nothing to a backup that runs once",
    );
    warns(
        with(json!({"backupPolicy": {"backupIntervalInSecond": 30}})),
        "a whole snapshot",
    );
    let endpoints = |scheme: &str, secret: &str| json!({"etcdEndpoints": [format!("{scheme}://c:2379")], "clientTLSSecret": secret, "s3": {"path": "b/k"}});
    warns(endpoints("https", ""), "no certificate is shown");
    warns(endpoints("http", "tls"), "no endpoint begins with https");
    for spec in [
        endpoints("https", ""),
        endpoints("http", "tls"),
        with(json!({"schedule": "@daily"})),
    ] {
        for warning in judged(spec).warnings {
            let untrimmed = warning.field.len() + 2 + warning.message.len();
            assert!(untrimmed <= super::super::LONGEST_WARNING, "{warning}");
        }
    }
}

#[test]
fn a_change_that_runs_again_or_leaves_backups_behind_warns() {
    let mut old = typed(with(json!({})));
    old.status = Some(EtcdBackupStatus {
        succeeded: Some(true),
        ..EtcdBackupStatus::default()
    });
    let moved = json!({"s3": {"path": "b/other"}});
    let again = judge(&typed(with(moved.clone())), Some(&old), &Policy::default());
    assert!(again.allowed());
    assert!(lines(&again)[0].contains("runs once more"));

    let mut nightly = moved;
    nightly["schedule"] = json!("@daily");
    let repeated = judge(&typed(with(nightly)), Some(&old), &Policy::default());
    let lines = lines(&repeated);
    assert!(
        lines.iter().any(|line| line.contains("at the old place")),
        "{lines:?}"
    );
}

#[test]
fn what_was_wrong_before_can_be_mended_step_by_step() {
    let old = typed(json!({"clusterName": "c", "s3": {"path": "b"}, "schedule": "61 3 * * *"}));
    let mended =
        typed(json!({"clusterName": "c", "s3": {"path": "b/k"}, "schedule": "61 3 * * *"}));
    assert_eq!(
        judge(&mended, Some(&old), &Policy::default()).violations,
        []
    );
    assert_eq!(judge(&old, Some(&old), &Policy::default()).violations, []);
    let mut deleted = old.clone();
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(judge(&deleted, None, &Policy::default()).violations, []);
}

#[test]
fn the_controller_reads_what_admission_accepted() {
    let read_back = read(json!({
        "clusterName": "c", "schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "verify": "Restore",
        "retention": {"count": 7, "age": "720h"},
        "s3": {"path": "mybucket/a/b", "awsSecret": "aws", "region": "eu-central-1"},
    }));
    assert_eq!(read_back.subject, Subject::Cluster("c".to_owned()));
    assert_eq!(
        read_back.store,
        Store::Bucket(Bucket {
            provider: Provider::S3 {
                region: Some("eu-central-1".to_owned()),
                path_style: false
            },
            bucket: "mybucket".to_owned(),
            key: "a/b".to_owned(),
            secret: Some("aws".to_owned()),
            endpoint: None,
            ca_secret: None,
        })
    );
    let Recurrence::Scheduled {
        schedule,
        time_zone,
    } = read_back.recurrence
    else {
        panic!("not scheduled")
    };
    assert!(schedule.at(1, 1, 0, 2, 30));
    assert_eq!(time_zone.iana_name(), Some("Europe/Berlin"));
    assert_eq!(read_back.timeout, Duration::from_hours(1));
    assert_eq!(
        read_back.retention,
        Retention {
            count: Some(7),
            age: Some(Duration::from_hours(720))
        }
    );

    let coreos = read(
        json!({"etcdEndpoints": ["https://c:2379"], "clientTLSSecret": "tls",
        "backupPolicy": {"timeoutInSecond": 60, "backupIntervalInSecond": 125, "maxBackups": 4}, "gcs": {"path": "b/k"}}),
    );
    assert_eq!(
        coreos.recurrence,
        Recurrence::Every(Duration::from_secs(125))
    );
    assert_eq!(coreos.timeout, Duration::from_mins(1));
    assert_eq!(coreos.retention.count, Some(4));
    assert!(matches!(
        coreos.subject,
        Subject::Endpoints { client_tls: Some(secret), .. } if secret.keys == SecretKeys::COREOS_OPERATOR
    ));
}

#[test]
fn the_controller_holds_what_slipped_past_admission() {
    let object = typed(json!({"clusterName": "c"}));
    let found = ValidatedBackup::new(&object, &Policy::default()).unwrap_err();
    let reasons: Vec<Reason> = found.iter().map(|violation| violation.reason).collect();
    assert_eq!(reasons, [Reason::MetadataIncomplete, Reason::StoreMissing]);
}

//! EtcdRestores: what is accepted, what is rejected and why, what is warned of.

#![allow(clippy::needless_pass_by_value)] // `json!` literals read best by value.

use serde_json::{Value, json};

use super::*;
use crate::examples::restore;
use crate::validated::Store;

fn typed(spec: Value) -> EtcdRestore {
    serde_json::from_value(restore(spec)).unwrap()
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

#[test]
fn manifests_of_2018_still_apply() {
    for spec in [
        json!({"etcdCluster": {"name": "example-etcd-cluster"}, "backupStorageType": "S3",
               "s3": {"path": "mybucket/etcd.backup", "awsSecret": "aws"}}),
        json!({"etcdCluster": {"name": "example-etcd-cluster"}, "backupStorageType": "GCS",
               "gcs": {"path": "my-etcd-backups-bucket/my-etcd-backup-object", "gcpSecret": "gcp"}}),
        json!({"etcdCluster": {"name": "example-etcd-cluster"}, "backupStorageType": "ABS",
               "abs": {"path": "etcd-backups/etcd.backup", "absSecret": "abs"}}),
        // As Go wrote what was not set.
        json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3",
               "s3": {"path": "b/k", "awsSecret": "aws", "endpoint": "", "forcePathStyle": false}}),
    ] {
        accepts(spec);
    }
}

#[test]
fn a_new_cluster_holds_every_rule_of_a_cluster_at_its_own_place() {
    let with = |spec: Value| json!({"backupName": "b", "newCluster": {"name": "n", "spec": spec}});
    accepts(with(json!({})));
    accepts(with(
        json!({"size": 5, "version": "3.6.16", "storage": {"size": "20Gi"}}),
    ));
    rejects(
        with(json!({"size": 4})),
        "spec.newCluster.spec.size",
        Reason::SizeNotAllowed,
        "use 3 or 5",
    );
    rejects(
        with(json!({"version": "3.6.16", "options": {"extraArgs": {"max-walls": "5"}}})),
        "spec.newCluster.spec.options.extraArgs[max-walls]",
        Reason::FlagUnknown,
        "did you mean `max-wals`?",
    );
    let warnings = judged(with(json!({"size": 1}))).warnings;
    assert!(
        warnings
            .iter()
            .any(|warning| warning.field == "spec.newCluster.spec.size"),
        "{warnings:?}"
    );
}

#[test]
fn in_place_says_what_is_given_up() {
    let spec = json!({"backupName": "b", "etcdCluster": {"name": "c"}});
    let lines: Vec<String> = judged(spec)
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        lines.iter().any(|line| line.contains("is given up")),
        "{lines:?}"
    );
}

#[test]
fn a_restore_may_change_until_it_begins() {
    let old = typed(json!({"backupName": "b", "etcdCluster": {"name": "c"}}));
    let new = typed(json!({"backupName": "b", "etcdCluster": {"name": "d"}}));
    let policy = Policy::default();
    assert_eq!(judge(&new, Some(&old), &policy).violations, []);
    let mut begun = old.clone();
    begun.status = Some(serde_json::from_value(json!({"phase": "Restoring"})).unwrap());
    let refused = judge(&new, Some(&begun), &policy).violations;
    assert_eq!(refused[0].reason, Reason::RestoreImmutable);
    assert_eq!(judge(&old, Some(&begun), &policy).violations, []);
}

#[test]
fn the_controller_reads_what_admission_accepted() {
    let read = |spec: Value| {
        let mut object = typed(spec);
        object.metadata.uid = Some("u".to_owned());
        ValidatedRestore::new(&object, &Policy::default()).unwrap()
    };
    let newest = read(json!({"backupName": "b", "newCluster": {"name": "n", "spec": {"size": 5}}}));
    assert_eq!(
        newest.source,
        Source::Backup {
            name: "b".to_owned(),
            snapshot: None
        }
    );
    let Target::New { name, spec } = newest.target else {
        panic!("not new")
    };
    assert_eq!(
        (name.as_str(), spec.size, spec.version),
        ("n", Some(5), None)
    );

    let coreos = read(
        json!({"etcdCluster": {"name": "c"}, "pvc": {"claimName": "p", "path": "etcd.backup"}}),
    );
    assert_eq!(
        coreos.target,
        Target::InPlace {
            name: "c".to_owned(),
            cluster_id: None
        }
    );
    assert_eq!(
        coreos.source,
        Source::Store(Store::Volume {
            claim: "p".to_owned(),
            path: "etcd.backup".to_owned()
        })
    );
}

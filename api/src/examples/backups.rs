//! What breaks the rules of EtcdBackup and EtcdRestore.

use serde_json::{Value, json};

use super::Example;
use crate::validation::Reason;

fn object(kind: &str, spec: Value) -> Value {
    let mut object = super::cluster(spec);
    object["kind"] = json!(kind);
    object
}

/// An EtcdBackup with this spec.
pub fn backup(spec: Value) -> Value {
    object("EtcdBackup", spec)
}

/// An EtcdRestore with this spec.
pub fn restore(spec: Value) -> Value {
    object("EtcdRestore", spec)
}

fn of(reason: Reason, what: &'static str, new: Value) -> Example {
    Example {
        reason,
        what,
        old: None,
        new,
        by_api_server: true,
    }
}

/// A sound EtcdBackup into S3, with this on top.
fn saved(reason: Reason, what: &'static str, added: Value) -> Example {
    let sound = json!({"clusterName": "example", "s3": {"path": "mybucket/etcd.backup"}});
    of(reason, what, backup(merged(sound, added)))
}

/// An EtcdBackup into this store.
fn stored(reason: Reason, what: &'static str, store: Value) -> Example {
    let spec = merged(json!({"clusterName": "example"}), store);
    of(reason, what, backup(spec))
}

/// A sound EtcdRestore from S3 into a new cluster, with this on top.
fn restored(reason: Reason, what: &'static str, added: Value) -> Example {
    let sound = json!({"s3": {"path": "mybucket/etcd.backup"}, "newCluster": {"name": "restored"}});
    of(reason, what, restore(merged(sound, added)))
}

fn merged(mut spec: Value, added: Value) -> Value {
    if let (Value::Object(spec), Value::Object(added)) = (&mut spec, added) {
        spec.extend(added);
    }
    spec
}

fn with_long_name(mut example: Example) -> Example {
    example.new["metadata"]["name"] = json!("a".repeat(53));
    example
}

pub(super) fn of_subjects() -> Vec<Example> {
    use Reason::{
        BackupSubjectMissing, BackupSubjectTwice, ClientTlsSecretUnused, EndpointInvalid,
        NameInvalid, NameTooLong,
    };
    let store = json!({"path": "mybucket/etcd.backup"});
    let endpoints = |endpoints: Value| backup(json!({"etcdEndpoints": endpoints, "s3": store}));
    vec![
        with_long_name(saved(NameTooLong, "a name of 53 characters", json!({}))),
        of(
            BackupSubjectMissing,
            "nothing to save",
            backup(json!({"s3": store})),
        ),
        of(BackupSubjectMissing, "no endpoint", endpoints(json!([]))),
        saved(
            BackupSubjectTwice,
            "two clusters to save",
            json!({"etcdEndpoints": ["http://example-client:2379"]}),
        ),
        of(
            EndpointInvalid,
            "an endpoint without a port",
            endpoints(json!(["http://example-client"])),
        ),
        of(
            EndpointInvalid,
            "a port that does not exist",
            endpoints(json!(["http://example-client:70000"])),
        )
        .webhook_only(),
        saved(
            ClientTlsSecretUnused,
            "a certificate nobody shows",
            json!({"clientTLSSecret": "etcd-client"}),
        ),
        saved(
            NameInvalid,
            "no name of a Secret",
            json!({"authSecret": "Root User"}),
        )
        .webhook_only(),
    ]
}

pub(super) fn of_stores() -> Vec<Example> {
    use Reason::{
        StoreAccountInvalid, StoreClaimMissing, StoreEndpointInvalid, StoreMissing,
        StorePathInvalid, StoreRegionInvalid, StoreTwice, StoreTypeMismatch,
    };
    let s3 = |s3: Value| json!({"s3": merged(json!({"path": "mybucket/etcd.backup"}), s3)});
    let abs = |abs: Value| json!({"abs": merged(json!({"path": "mycontainer/etcd.backup"}), abs)});
    vec![
        stored(StoreMissing, "no store", json!({"storageType": "S3"})),
        saved(
            StoreTwice,
            "two stores",
            json!({"gcs": {"path": "mybucket/etcd.backup"}}),
        ),
        saved(
            StoreTypeMismatch,
            "another store than said",
            json!({"storageType": "GCS"}),
        ),
        stored(StorePathInvalid, "no path", json!({"gcs": {}})),
        stored(
            StorePathInvalid,
            "a bucket without a key",
            json!({"s3": {"path": "mybucket"}}),
        ),
        stored(
            StorePathInvalid,
            "a path with a scheme",
            json!({"s3": {"path": "s3://mybucket/etcd.backup"}}),
        ),
        stored(
            StorePathInvalid,
            "a way out of the volume",
            json!({"pvc": {"claimName": "backups", "path": "../etcd.backup"}}),
        ),
        stored(
            StoreClaimMissing,
            "no claim",
            json!({"pvc": {"path": "etcd.backup"}}),
        ),
        stored(
            StoreEndpointInvalid,
            "no address",
            s3(json!({"endpoint": "s3 example com"})),
        ),
        stored(
            StoreRegionInvalid,
            "no region",
            s3(json!({"region": "Frankfurt am Main"})),
        ),
        stored(
            StoreAccountInvalid,
            "an account nobody names",
            abs(json!({})),
        ),
        stored(
            StoreAccountInvalid,
            "an account named twice",
            abs(json!({"absSecret": "azure", "storageAccount": "backups"})),
        ),
        stored(
            StoreAccountInvalid,
            "no account",
            abs(json!({"storageAccount": "My Backups"})),
        ),
    ]
}

pub(super) fn of_times() -> Vec<Example> {
    use Reason::{
        DurationInvalid, OutOfBounds, RetentionTooShort, RetentionTwice, ScheduleInvalid,
        ScheduleNever, ScheduleTwice, TimeZoneUnknown, TimeZoneUnused,
    };
    let policy = |policy: Value| json!({"backupPolicy": policy});
    let retention = |retention: Value| json!({"schedule": "@daily", "retention": retention});
    vec![
        saved(
            ScheduleInvalid,
            "no schedule",
            json!({"schedule": "every night"}),
        ),
        saved(
            ScheduleInvalid,
            "a minute that does not exist",
            json!({"schedule": "61 3 * * *"}),
        )
        .webhook_only(),
        saved(
            ScheduleNever,
            "a day that never comes",
            json!({"schedule": "0 0 30 2 *"}),
        )
        .webhook_only(),
        saved(
            ScheduleTwice,
            "a schedule and an interval",
            json!({"schedule": "@daily", "backupPolicy": {"backupIntervalInSecond": 3600}}),
        ),
        saved(
            TimeZoneUnknown,
            "no time zone",
            json!({"schedule": "@daily", "timeZone": "my time"}),
        ),
        saved(
            TimeZoneUnknown,
            "a zone nobody knows",
            json!({"schedule": "@daily", "timeZone": "Europe/Atlantis"}),
        )
        .webhook_only(),
        saved(
            TimeZoneUnused,
            "a zone without a schedule",
            json!({"timeZone": "Europe/Berlin"}),
        ),
        saved(
            OutOfBounds,
            "a time-out before it starts",
            policy(json!({"timeoutInSecond": -1})),
        ),
        saved(
            OutOfBounds,
            "a backup every second",
            policy(json!({"backupIntervalInSecond": 1})),
        ),
        saved(
            OutOfBounds,
            "fewer backups than none",
            policy(json!({"maxBackups": -1})),
        ),
        saved(
            OutOfBounds,
            "no backup kept",
            retention(json!({"count": 0})),
        ),
        saved(
            RetentionTwice,
            "two numbers of backups",
            json!({"schedule": "@daily", "backupPolicy": {"maxBackups": 4}, "retention": {"count": 5}}),
        ),
        saved(
            DurationInvalid,
            "an age in days",
            retention(json!({"age": "30d"})),
        ),
        saved(
            RetentionTooShort,
            "backups gone within the hour",
            retention(json!({"age": "5m"})),
        ),
    ]
}

pub(super) fn of_restores() -> Vec<Example> {
    use Reason::{
        NameNotALabel, NameTooLong, RestoreImmutable, RestoreTargetMissing, RestoreTargetTwice,
        SizeNotAllowed, SnapshotInvalid, SnapshotUnused, StorageNotLargerThanQuota, StoreMissing,
        StorePathInvalid, StoreTwice, StoreTypeMismatch, VersionKnownBad,
    };
    let target = json!({"name": "restored"});
    let from = |added: Value| {
        let spec = merged(
            json!({"backupName": "nightly", "newCluster": target}),
            added,
        );
        restore(spec)
    };
    let new_cluster = |spec: Value| json!({"newCluster": {"name": "restored", "spec": spec}});
    let mut begun = from(json!({}));
    begun["status"] = json!({"phase": "Fetching"});
    let mut changed = begun.clone();
    changed["spec"]["newCluster"]["name"] = json!("other");
    vec![
        with_long_name(restored(
            NameTooLong,
            "a restore's name of 53 characters",
            json!({}),
        )),
        of(
            StoreMissing,
            "no backup",
            restore(json!({"newCluster": target})),
        ),
        restored(StoreTwice, "two sources", json!({"backupName": "nightly"})),
        restored(
            StoreTypeMismatch,
            "another source than said",
            json!({"backupStorageType": "PVC"}),
        ),
        of(
            StoreTypeMismatch,
            "a kind of store beside an EtcdBackup",
            from(json!({"backupStorageType": "S3"})),
        ),
        restored(
            StorePathInvalid,
            "a folder instead of a backup",
            json!({"s3": {"path": "mybucket/backups/"}}),
        ),
        restored(
            SnapshotUnused,
            "a snapshot of no EtcdBackup",
            json!({"snapshot": "mybucket/etcd.backup_v42"}),
        ),
        of(
            SnapshotInvalid,
            "a way out of the store",
            from(json!({"snapshot": "../etcd.backup"})),
        ),
        of(
            RestoreTargetMissing,
            "no target",
            restore(json!({"backupName": "nightly"})),
        ),
        restored(
            RestoreTargetMissing,
            "a target without a name",
            json!({"newCluster": {}}),
        ),
        restored(
            RestoreTargetTwice,
            "two targets",
            json!({"etcdCluster": {"name": "example"}}),
        ),
        restored(
            NameTooLong,
            "a new cluster's name of 41 characters",
            json!({"newCluster": {"name": "a".repeat(41)}}),
        ),
        restored(
            NameNotALabel,
            "a new cluster no Service can carry",
            json!({"newCluster": {"name": "3.example"}}),
        ),
        restored(
            SizeNotAllowed,
            "a new cluster of an even size",
            new_cluster(json!({"size": 4})),
        ),
        restored(
            VersionKnownBad,
            "a new cluster that loses data",
            new_cluster(json!({"version": "3.5.1"})),
        ),
        restored(
            StorageNotLargerThanQuota,
            "a new cluster without room for the log",
            new_cluster(json!({"storage": {"size": "4Gi"}, "options": {"quotaBackend": "4Gi"}})),
        ),
        Example {
            reason: RestoreImmutable,
            what: "another target on the way",
            old: Some(begun),
            new: changed,
            by_api_server: true,
        },
    ]
}

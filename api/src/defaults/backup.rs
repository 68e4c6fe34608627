//! Defaults of EtcdBackup and EtcdRestore.

use crate::policy::Policy;
use crate::v1beta2::{ConcurrencyPolicy, EtcdBackup, EtcdRestore, StorageType, Verify};

/// Long enough for a large database over a slow line.
pub const TIMEOUT_SECONDS: i64 = 3600;
pub const TIME_ZONE: &str = "Etc/UTC";

/// Fills what is unset. Idempotent. Takes the policy as `default_cluster` does, so that admission treats every kind alike.
pub fn default_backup(backup: &mut EtcdBackup, _policy: &Policy) {
    let spec = &mut backup.spec;
    if spec.storage_type.is_none() {
        spec.storage_type = the_only_one([
            (StorageType::S3, spec.s3.is_some()),
            (StorageType::GCS, spec.gcs.is_some()),
            (StorageType::ABS, spec.abs.is_some()),
            (StorageType::PVC, spec.pvc.is_some()),
        ]);
    }
    if spec.schedule.is_some() {
        spec.time_zone.get_or_insert_with(|| TIME_ZONE.to_owned());
    }
    let policy = spec.backup_policy.get_or_insert_default();
    policy.timeout_in_second.get_or_insert(TIMEOUT_SECONDS);
    let repeats = policy.backup_interval_in_second.is_some_and(|s| s != 0);
    if spec.schedule.is_some() || repeats {
        spec.concurrency_policy
            .get_or_insert(ConcurrencyPolicy::Forbid);
    }
    spec.verify.get_or_insert(Verify::Hash);
}

/// Fills what is unset. Idempotent. A cluster to be made gets its defaults when it is made.
pub fn default_restore(restore: &mut EtcdRestore, _policy: &Policy) {
    let spec = &mut restore.spec;
    if spec.backup_storage_type.is_none() {
        spec.backup_storage_type = the_only_one([
            (StorageType::S3, spec.s3.is_some()),
            (StorageType::GCS, spec.gcs.is_some()),
            (StorageType::ABS, spec.abs.is_some()),
            (StorageType::PVC, spec.pvc.is_some()),
        ]);
    }
}

/// With several there is nothing to guess.
fn the_only_one(described: [(StorageType, bool); 4]) -> Option<StorageType> {
    let mut kinds = described.into_iter().filter(|(_, there)| *there);
    match (kinds.next(), kinds.next()) {
        (Some((kind, _)), None) => Some(kind),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::examples::{backup, restore};

    fn defaulted_backup(spec: &Value) -> Value {
        let mut typed: EtcdBackup = serde_json::from_value(backup(spec.clone())).unwrap();
        default_backup(&mut typed, &Policy::default());
        let once = typed.clone();
        default_backup(&mut typed, &Policy::default());
        assert_eq!(typed, once, "{spec}");
        serde_json::to_value(&typed.spec).unwrap()
    }

    fn defaulted_restore(spec: &Value) -> Value {
        let mut typed: EtcdRestore = serde_json::from_value(restore(spec.clone())).unwrap();
        default_restore(&mut typed, &Policy::default());
        serde_json::to_value(&typed.spec).unwrap()
    }

    #[test]
    fn a_backup_shows_what_it_means() {
        let once = json!({"clusterName": "c", "s3": {"path": "b/k"}});
        assert_eq!(
            defaulted_backup(&once),
            json!({
                "clusterName": "c", "s3": {"path": "b/k"}, "storageType": "S3",
                "backupPolicy": {"timeoutInSecond": 3600}, "verify": "Hash",
            })
        );
        let nightly = defaulted_backup(&json!({"clusterName": "c", "schedule": "@daily"}));
        assert_eq!(nightly["timeZone"], "Etc/UTC");
        assert_eq!(nightly["concurrencyPolicy"], "Forbid");
        let hourly = json!({"backupPolicy": {"backupIntervalInSecond": 3600}});
        assert_eq!(defaulted_backup(&hourly)["concurrencyPolicy"], "Forbid");
    }

    #[test]
    fn what_is_said_is_kept() {
        let said = json!({
            "clusterName": "c", "storageType": "PVC", "pvc": {"claimName": "p", "path": "k"},
            "schedule": "@daily", "timeZone": "Europe/Berlin", "concurrencyPolicy": "Replace", "verify": "Restore",
            "backupPolicy": {"timeoutInSecond": 0, "maxBackups": 4},
        });
        assert_eq!(defaulted_backup(&said), said);
    }

    #[test]
    fn two_stores_are_not_chosen_from() {
        let two = json!({"s3": {}, "gcs": {}});
        assert_eq!(defaulted_restore(&two), two);
        assert_eq!(defaulted_backup(&two).get("storageType"), None);
    }

    #[test]
    fn a_restore_gets_the_kind_of_its_store_and_its_new_cluster_nothing() {
        let said = json!({"gcs": {"path": "b/k"}, "newCluster": {"name": "n", "spec": {}}});
        let mut meant = said.clone();
        meant["backupStorageType"] = json!("GCS");
        assert_eq!(defaulted_restore(&said), meant);
    }
}

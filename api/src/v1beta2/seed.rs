//! The snapshot a cluster starts from: written by a restore on the EtcdCluster it makes, and kept in the bootstrap record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AbsStore, GcsStore, PvcStore, S3Store};
use crate::orders::Store;

/// On an EtcdCluster from its first moment: the [`Seed`] its members start from, as JSON.
pub const SEED: &str = "etcd.database.coreos.com/seed";

/// The snapshot the first members start from. It names Secrets and holds nothing of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Seed {
    /// The EtcdRestore.
    pub restore: String,

    /// Its UID.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,

    /// A bucket of S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,

    /// A bucket of Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsStore>,

    /// A container of Azure Blob Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs: Option<AbsStore>,

    /// A volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcStore>,

    /// The snapshot's key in the bucket, or its path in the volume.
    pub snapshot: String,

    /// SHA-256 of its data: every member starts from this file and from no other.
    pub sha256: String,

    /// Its size in bytes.
    pub size: i64,

    /// etcd's revision in it.
    pub revision: i64,

    /// ServiceAccount of the first members' Pods where the cluster names none, for stores reached by workload identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
}

/// Why a seed is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    #[error("must be what an EtcdRestore writes, and not {0}")]
    Unreadable(String),
    #[error("must have one store: one of `s3`, `gcs`, `abs` and `pvc`")]
    Store,
    #[error("must have {0}")]
    Missing(&'static str),
}

impl Seed {
    /// Reads the annotation.
    pub fn read(text: &str) -> Result<Self, SeedError> {
        let seed: Self =
            serde_json::from_str(text).map_err(|error| SeedError::Unreadable(error.to_string()))?;
        let is_digest =
            |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if seed.store().is_none() {
            return Err(SeedError::Store);
        }
        if seed.restore_uid.is_empty() {
            return Err(SeedError::Missing("the UID of its EtcdRestore"));
        }
        if seed.snapshot.is_empty() {
            return Err(SeedError::Missing("a snapshot"));
        }
        if !is_digest(&seed.sha256) {
            return Err(SeedError::Missing(
                "the SHA-256 of the snapshot, 64 hexadecimal digits",
            ));
        }
        Ok(seed)
    }

    /// Writes the annotation.
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// The one store it names.
    pub fn store(&self) -> Option<Store> {
        let stores = [
            self.s3.clone().map(Store::S3),
            self.gcs.clone().map(Store::GCS),
            self.abs.clone().map(Store::ABS),
            self.pvc.clone().map(Store::PVC),
        ];
        let mut named = stores.into_iter().flatten();
        let one = named.next();
        one.filter(|_| named.next().is_none())
    }

    /// With this store instead of the one it names.
    #[must_use]
    pub fn from_store(self, store: Store) -> Self {
        let mut seed = Self {
            s3: None,
            gcs: None,
            abs: None,
            pvc: None,
            ..self
        };
        match store {
            Store::S3(store) => seed.s3 = Some(store),
            Store::GCS(store) => seed.gcs = Some(store),
            Store::ABS(store) => seed.abs = Some(store),
            Store::PVC(store) => seed.pvc = Some(store),
        }
        seed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sound() -> Value {
        json!({
            "restore": "back", "restoreUID": "1", "s3": {"path": "bucket/key"}, "snapshot": "key",
            "sha256": "0".repeat(64), "size": 4096, "revision": 12,
        })
    }

    #[test]
    fn what_a_restore_writes_is_read_again() {
        let seed = Seed::read(&sound().to_string()).unwrap();
        assert_eq!(Seed::read(&seed.text()), Ok(seed.clone()));
        assert_eq!(seed.store().unwrap().path(), Some("bucket/key"));
        let moved = seed.from_store(Store::PVC(PvcStore::default()));
        assert!(matches!(moved.store(), Some(Store::PVC(_))));
    }

    #[test]
    fn rejects_what_would_start_members_from_nothing_in_particular() {
        let without = |field: &str, value: Value| {
            let mut seed = sound();
            seed[field] = value;
            Seed::read(&seed.to_string()).unwrap_err().to_string()
        };
        for (field, value, words) in [
            ("s3", Value::Null, "must have one store"),
            ("pvc", json!({"claimName": "c"}), "must have one store"),
            ("restoreUID", json!(""), "must have the UID"),
            ("snapshot", json!(""), "must have a snapshot"),
            ("sha256", json!("abc"), "must have the SHA-256"),
            ("size", json!("large"), "must be what an EtcdRestore writes"),
        ] {
            let said = without(field, value);
            assert!(said.starts_with(words), "{field}: {said}");
        }
        assert!(Seed::read("yes").is_err());
    }
}

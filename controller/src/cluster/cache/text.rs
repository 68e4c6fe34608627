//! A child that is only ever compared with what it should be.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::cluster::children::contains;

/// Its JSON: a fraction of the object in memory.
#[derive(Debug)]
pub(crate) struct Text {
    json: String,
    /// Digest of what it was last found to agree with: at rest nothing is parsed.
    agrees_with: AtomicU64,
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Text {
    pub(super) fn of<K: Resource + Serialize>(mut child: K) -> Self {
        let meta = child.meta_mut();
        // What changes without anybody's wish is not kept, so that it wakes nobody.
        *meta = ObjectMeta {
            name: meta.name.take(),
            namespace: meta.namespace.take(),
            labels: meta.labels.take(),
            annotations: meta.annotations.take(),
            owner_references: meta.owner_references.take(),
            ..ObjectMeta::default()
        };
        Self {
            // What cannot be written out agrees with nothing, and is applied anew.
            json: serde_json::to_string(&child).unwrap_or_default(),
            agrees_with: AtomicU64::default(),
        }
    }

    pub(crate) fn read<K: DeserializeOwned>(&self) -> Option<K> {
        serde_json::from_str(&self.json).ok()
    }

    /// Whether everything `wanted` is there as it is wanted.
    pub(crate) fn agrees(&self, wanted: &impl Serialize) -> bool {
        let Ok(text) = serde_json::to_string(wanted) else {
            return false;
        };
        let mut digest = DefaultHasher::new();
        text.hash(&mut digest);
        // Zero is what nothing has been compared with yet.
        let digest = digest.finish() | 1;
        if self.agrees_with.load(Ordering::Relaxed) == digest {
            return true;
        }
        let (live, wanted): (Option<Value>, Option<Value>) =
            (self.read(), serde_json::from_str(&text).ok());
        let agrees =
            matches!((live, wanted), (Some(live), Some(wanted)) if contains(&live, &wanted));
        if agrees {
            self.agrees_with.store(digest, Ordering::Relaxed);
        }
        agrees
    }
}

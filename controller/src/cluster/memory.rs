//! What the Secrets of a cluster at rest were last read to hold, so that a thousand clusters at rest are not a thousand times five
//! Secrets read and parsed with every look.
//!
//! What is remembered may decide one thing only: that there is nothing to do. As soon as a plan made with it is anything but rest,
//! the Secrets are read and the plan is made anew. What users bring is never remembered.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kube::ResourceExt;
use tokio::time::Instant;

use etcd_operator_api::v1beta2::EtcdCluster;

use super::{certificates::OperatorIdentity, children::labels, observed::Certificates};

/// How long it is believed that nobody has touched the Secrets. Far less than the operator's own certificate lives.
const BELIEVED: Duration = Duration::from_mins(10);

/// What was read of a cluster's Secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    /// `None` where the spec asks the operator for no certificates.
    pub(crate) certificates: Option<Certificates>,
    /// How the operator shows itself to etcd, where its authority is ours; elsewhere it is read each time.
    pub(crate) identity: Option<OperatorIdentity>,
}

#[derive(Debug)]
struct Remembered {
    uid: Option<String>,
    generation: Option<i64>,
    rotation_request: Option<String>,
    members: Vec<String>,
    at: Instant,
    secrets: Secrets,
}

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<String, Remembered>>);

impl Memory {
    /// What is remembered, if it was read for the very same cluster, spec and members, and not too long ago.
    pub(crate) fn recall(&self, object: &EtcdCluster, members: &[String]) -> Option<Secrets> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(&key(object))?;
        let fits = known.uid == object.uid()
            && known.generation == object.metadata.generation
            && known.rotation_request.as_ref() == object.annotations().get(labels::ROTATE_CA)
            && known.members == members
            && known.at.elapsed() < BELIEVED;
        fits.then(|| known.secrets.clone())
    }

    pub(crate) fn remember(&self, object: &EtcdCluster, members: &[String], secrets: Secrets) {
        let remembered = Remembered {
            uid: object.uid(),
            generation: object.metadata.generation,
            rotation_request: object.annotations().get(labels::ROTATE_CA).cloned(),
            members: members.to_vec(),
            at: Instant::now(),
            secrets,
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key(object), remembered);
    }

    pub(crate) fn forget(&self, cluster: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(cluster);
    }
}

/// A cluster's namespace and name: it may be gone when its UID is no longer to be had.
pub(crate) fn key(object: &EtcdCluster) -> String {
    named(object.metadata.namespace.as_deref(), &object.name_any())
}

pub(crate) fn named(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::fixtures, *};

    fn nothing_issued() -> Secrets {
        Secrets {
            certificates: None,
            identity: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_same_cluster_spec_and_members_are_recalled_and_not_for_ever() {
        let memory = Memory::default();
        let object = fixtures::object(json!({}));
        let members = ["c-a".to_owned()];
        memory.remember(&object, &members, nothing_issued());
        assert!(memory.recall(&object, &members).is_some());
        assert!(memory.recall(&object, &[]).is_none());

        let mut edited = object.clone();
        edited.metadata.generation = Some(2);
        assert!(memory.recall(&edited, &members).is_none());
        let mut namesake = object.clone();
        namesake.metadata.uid = Some("another".to_owned());
        assert!(memory.recall(&namesake, &members).is_none());
        let mut asked = object.clone();
        let wish = (labels::ROTATE_CA.to_owned(), "now".to_owned());
        asked.annotations_mut().extend([wish]);
        assert!(memory.recall(&asked, &members).is_none());

        tokio::time::advance(BELIEVED).await;
        assert!(memory.recall(&object, &members).is_none());
    }

    #[test]
    fn what_is_forgotten_is_not_recalled() {
        let memory = Memory::default();
        let object = fixtures::object(json!({}));
        memory.remember(&object, &[], nothing_issued());
        memory.forget(&key(&object));
        assert!(memory.recall(&object, &[]).is_none());
    }
}

//! A model of what the API server holds of one cluster. A cache is an older copy of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash},
};

use etcd_operator_api::{Version, v1beta2::BootstrapRecord};

use crate::cluster::observed::Start;

#[derive(Clone, Default)]
pub(super) struct Kubernetes {
    pub(super) bootstrap: Option<BootstrapRecord>,
    pub(super) cluster_id: Option<u64>,
    pub(super) was_ready: bool,
    pub(super) available_since: Option<i64>,
    pub(super) unwell_since: BTreeMap<String, i64>,
    pub(super) compacted: Option<i64>,
    pub(super) defragmented: BTreeMap<String, i64>,
    /// Changes with every write to the status: a write against an older look is refused.
    pub(super) status_version: u64,
    pub(super) starts: BTreeMap<String, Start>,
    pub(super) certified: BTreeSet<String>,
    pub(super) pods: BTreeMap<String, ModelPod>,
    pub(super) claims: BTreeMap<String, u64>,
}

#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)] // Each is one independent fact about a pod.
pub(super) struct ModelPod {
    pub(super) uid: u64,
    pub(super) version: Version,
    pub(super) config: String,
    pub(super) claim: u64,
    /// Readiness needs a quorum, as `/readyz` does.
    pub(super) ready: bool,
    pub(super) since: i64,
    /// Started, and its etcd serves unless `frozen`.
    pub(super) running: bool,
    pub(super) frozen: bool,
    /// Made before its member was added.
    pub(super) newcomer: bool,
    /// Its etcd has been started once.
    pub(super) ran: bool,
}

/// A pod that is there before its claim.
pub(super) const NO_CLAIM: u64 = 0;

/// Longer than any patience: what has lasted so long may as well have lasted for ever.
const AGES: i64 = 8;

impl Kubernetes {
    /// Only where it is the very pod that is meant.
    pub(super) fn delete_pod(&mut self, name: &str, uid: &str) {
        let meant = |pod: &ModelPod| pod.uid.to_string() == uid;
        if self.pods.get(name).is_some_and(meant) {
            self.pods.remove(name);
        }
    }

    pub(super) fn delete_claim(&mut self, name: &str, uid: &str) {
        let meant = |claim: &u64| claim.to_string() == uid;
        if self.claims.get(name).is_some_and(meant) {
            self.claims.remove(name);
        }
    }

    /// What of it decides the future; see `World::key`.
    pub(super) fn key(
        &self,
        now: i64,
        place: &dyn Fn(u64) -> Option<usize>,
        hasher: &mut DefaultHasher,
    ) {
        let age = |since: i64| (now - since).min(AGES);
        for founder in self.bootstrap.iter().flat_map(|record| &record.members) {
            let claim = founder.claim_uid.as_ref().and_then(|uid| uid.parse().ok());
            (&founder.name, claim.map(place)).hash(hasher);
        }
        (self.bootstrap.is_some(), self.cluster_id, self.was_ready).hash(hasher);
        self.available_since.map(age).hash(hasher);
        for (name, at) in &self.defragmented {
            (name, Some(*at) >= self.compacted).hash(hasher);
        }
        for (name, since) in &self.unwell_since {
            (name, age(*since)).hash(hasher);
        }
        for (name, start) in &self.starts {
            (name, start.state(), start.initial_cluster()).hash(hasher);
        }
        self.certified.hash(hasher);
        for (name, pod) in &self.pods {
            (name, place(pod.uid), place(pod.claim)).hash(hasher);
            (&pod.config, pod.version.to_string(), age(pod.since)).hash(hasher);
            (pod.ready, pod.running, pod.frozen).hash(hasher);
            (pod.newcomer, pod.ran).hash(hasher);
        }
        for (name, claim) in &self.claims {
            (name, place(*claim)).hash(hasher);
        }
    }
}

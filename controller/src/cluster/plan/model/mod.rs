//! A model API server and a model etcd to run the plan against: stale caches, crashes between any two writes, replies that
//! get lost, pods and disks that go. `simulation` plays long random scripts on it, `exhaustive` every short one.
//!
//! The model of etcd knows what can go wrong: a voter that comes back without its log is a broken history, not an error.

pub(super) mod etcd;
mod events;
mod kubernetes;
mod pass;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use etcd_operator_api::{ValidatedCluster, Version};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use self::{
    etcd::{Begun, Data, Etcd, Up},
    kubernetes::{Kubernetes, ModelPod, NO_CLAIM},
};
use crate::{
    cluster::{
        children::InPlace,
        fixtures::{self, CLUSTER_ID},
        observed::{Awaits, ClaimFacts, Listed, Member, Observed, PodFacts, Quorum, Start},
        reliance::Relied,
    },
    etcd::Answer,
};
pub(super) use events::Event;
pub(super) use pass::Trouble;

const QUOTA: i64 = 1 << 30;
/// From here on etcd adds a member although another is down, where the rest is enough.
const ADDS_WITH_ONE_DOWN: &str = "3.6.11";

/// Releases to move between.
pub(super) type Line = [&'static str; 3];
pub(super) const WITH_LEARNERS: Line = ["3.6.10", "3.6.12", "3.6.16"];
pub(super) const WITHOUT_LEARNERS: Line = ["3.3.10", "3.3.20", "3.3.27"];

/// What the spec asks for.
#[derive(Clone, Copy)]
struct Wish {
    line: Line,
    size: i32,
    version: usize,
    quota: u8,
}

#[derive(Clone)]
pub(super) struct World {
    wish: Wish,
    cluster: Arc<ValidatedCluster>,
    kubernetes: Kubernetes,
    cache: Kubernetes,
    volumes: BTreeMap<u64, Data>,
    /// Which version the member on a claim is to run.
    claim_versions: BTreeMap<u64, Version>,
    /// Which version that member was taken back from.
    taken_back: BTreeMap<u64, Version>,
    etcd: Etcd,
    /// The newest write that was acknowledged to a client.
    acknowledged: u64,
    counter: u64,
    minute: i64,
    /// A founder's volume was taken before the first quorum: that is left to a person.
    pub(super) founder_lost: bool,
    /// The first invariant that did not hold.
    pub(super) broken: Option<String>,
}

impl Wish {
    fn cluster(self) -> Arc<ValidatedCluster> {
        let quota = format!("{}Gi", 1 + self.quota);
        Arc::new(fixtures::cluster(json!({
            "size": self.size,
            "version": self.line[self.version % self.line.len()],
            "options": {"quotaBackend": quota},
        })))
    }
}

fn minute(number: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(number)
}

impl World {
    pub(super) fn new(size: i32, line: Line) -> Self {
        let wish = Wish {
            line,
            size,
            version: 0,
            quota: 1,
        };
        Self {
            wish,
            cluster: wish.cluster(),
            kubernetes: Kubernetes::default(),
            cache: Kubernetes::default(),
            volumes: BTreeMap::new(),
            claim_versions: BTreeMap::new(),
            taken_back: BTreeMap::new(),
            etcd: Etcd::default(),
            acknowledged: 0,
            counter: 0,
            minute: 0,
            founder_lost: false,
            broken: None,
        }
    }

    /// The spec says what is wished for now.
    fn edit(&mut self) {
        self.cluster = self.wish.cluster();
    }

    fn unique(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn now(&self) -> Timestamp {
        minute(self.minute)
    }

    fn data(&self, name: &str) -> Option<&Data> {
        self.volumes.get(&self.kubernetes.pods.get(name)?.claim)
    }

    /// Members whose process runs, answers, and has its own data.
    fn up(&self) -> Up {
        let serves = |id: u64, name: &str| {
            let pod = self.kubernetes.pods.get(name);
            pod.is_some_and(|pod| pod.running && !pod.frozen)
                && self.data(name).is_some_and(|data| data.member == Some(id))
        };
        self.etcd
            .members
            .iter()
            .filter(|(id, member)| serves(**id, &member.name))
            .map(|(id, _)| *id)
            .collect()
    }

    fn has_quorum(&self) -> bool {
        self.etcd.has_quorum(&self.up())
    }

    /// Kubernetes and etcd go on by themselves for a moment.
    pub(super) fn live(&mut self) {
        self.minute += 1;
        let waiting: Vec<String> = self
            .kubernetes
            .pods
            .iter()
            .filter(|(_, pod)| !pod.running)
            .map(|(name, _)| name.clone())
            .collect();
        for name in waiting {
            self.start(&name);
        }
        self.elect_and_write();
        let (quorum, now) = (self.has_quorum(), self.minute);
        for pod in self.kubernetes.pods.values_mut() {
            let ready = pod.running && !pod.frozen && quorum;
            if ready != pod.ready {
                pod.ready = ready;
                pod.since = now;
            }
        }
    }

    /// The kubelet starts etcd on whatever the volume holds.
    fn start(&mut self, name: &str) {
        let Some(start) = self.kubernetes.starts.get(name) else {
            return;
        };
        let Some(pod) = self.kubernetes.pods.get_mut(name) else {
            return;
        };
        if pod.claim == NO_CLAIM {
            return;
        }
        pod.ran = true;
        let data = self.volumes.entry(pod.claim).or_default();
        match self.etcd.start(name, start, data) {
            Begun::Refuses => return,
            Begun::Breaks(what) => self.breaks(what),
            Begun::Runs => {}
        }
        if let Some(pod) = self.kubernetes.pods.get_mut(name) {
            pod.running = true;
        }
        self.etcd.form(&self.up());
    }

    fn elect_and_write(&mut self) {
        let up = self.up();
        let index = |world: &Self, id: &u64| {
            world
                .data(&world.etcd.members[id].name)
                .map_or(0, |data| data.index)
        };
        let indices: BTreeMap<u64, u64> = up.iter().map(|id| (*id, index(self, id))).collect();
        self.etcd.elect(&up, |id| indices[&id]);
        let Some(leader) = self.etcd.leader else {
            return;
        };
        let version = self.kubernetes.pods[&self.etcd.members[&leader].name].version;
        self.etcd.strict = version < ADDS_WITH_ONE_DOWN.parse().unwrap();
        let voters = self.etcd.voters();
        let newest = voters.iter().filter_map(|id| indices.get(id)).max();
        let newest = newest.copied().unwrap_or(0);
        if newest < self.acknowledged {
            self.breaks(format!(
                "write {} was acknowledged and is lost: a quorum knows only {newest}",
                self.acknowledged
            ));
        }
        if self.etcd.put(&up).is_ok() {
            self.acknowledged = newest + 1;
        }
        for id in up {
            let claim = self.kubernetes.pods[&self.etcd.members[&id].name].claim;
            if let Some(data) = self.volumes.get_mut(&claim) {
                data.index = self.acknowledged;
            }
        }
    }

    fn observe(&self) -> Observed {
        let cache = &self.cache;
        let mut members: BTreeMap<String, Member> = BTreeMap::new();
        for (name, uid) in &cache.claims {
            members.entry(name.clone()).or_default().claim = Some(ClaimFacts {
                uid: uid.to_string(),
                version: self.claim_versions.get(uid).copied(),
                taken_back_from: self.taken_back.get(uid).copied(),
                ..ClaimFacts::default()
            });
        }
        for (name, pod) in &cache.pods {
            members.entry(name.clone()).or_default().pod = Some(self.facts(pod));
        }
        let quorum = self.ask_etcd_of_its_members(&mut members);
        for (name, since) in &cache.unwell_since {
            if let Some(member) = members.get_mut(name) {
                member.unwell_since = Some(minute(*since));
            }
        }
        for (name, at) in &cache.defragmented {
            if let Some(member) = members.get_mut(name) {
                member.defragmented = Some(minute(*at));
            }
        }
        Observed {
            now: self.now(),
            // As many as there have been: equal histories give equal names.
            seed: (self.etcd.members.len() + self.etcd.removed.len()) as u64,
            bootstrap: cache.bootstrap.clone(),
            cluster_id: cache.cluster_id,
            members,
            quorum,
            aside: BTreeMap::new(),
            planted: None,
            recovery_request: None,
            recovery: None,
            coreos: None,
            foreign: Vec::new(),
            retained: Vec::new(),
            start_afresh: false,
            last_ran: None,
            log_readable_by: None,
            compacted: cache.compacted.map(minute),
            locked_out: false,
            starts: cache.starts.clone(),
            was_ready: cache.was_ready,
            available_since: cache.available_since.map(minute),
            certificates: Some(fixtures::certified(
                &cache.certified,
                self.now() + SignedDuration::from_hours(9),
            )),
            rotation_request: None,
            relied: Relied::Unknown,
            saved: None,
        }
    }

    fn facts(&self, pod: &ModelPod) -> PodFacts {
        PodFacts {
            uid: pod.uid.to_string(),
            node: None,
            ip: Some("10.0.0.1".to_owned()),
            ready: pod.ready,
            since: minute(pod.since),
            terminating: false,
            starting: false,
            ran: pod.ran,
            finished: false,
            version: Some(pod.version),
            config: pod.config.clone(),
            in_place: InPlace::of(&self.cluster),
            does_not_fit: false,
            loads: Some(fixtures::LOADS.to_owned()),
            restarts: 0,
            scratch: false,
            adopted: false,
            forced: false,
            awaits: (pod.newcomer && !pod.ran).then_some(if pod.claim == NO_CLAIM {
                Awaits::Place
            } else {
                Awaits::Word
            }),
            trouble: None,
        }
    }

    /// etcd is asked live, but only where the cache knows a pod.
    fn ask_etcd_of_its_members(&self, members: &mut BTreeMap<String, Member>) -> Option<Quorum> {
        let up = self.up();
        let known = |name: &String| self.cache.pods.contains_key(name);
        let asked = |id: &u64| up.contains(id) && known(&self.etcd.members[id].name);
        let quorum = self.etcd.has_quorum(&up) && self.etcd.members.keys().any(asked);
        for (id, listed) in &self.etcd.members {
            if asked(id) {
                members.entry(listed.name.clone()).or_default().answer =
                    Some(self.answer(*id, quorum));
            }
            if quorum {
                members.entry(listed.name.clone()).or_default().listed = Some(Listed {
                    id: *id,
                    learner: listed.learner,
                    started: listed.started,
                });
            }
        }
        quorum.then(|| Quorum {
            cluster_id: CLUSTER_ID,
            leader_id: self.etcd.leader.unwrap_or(0),
            strangers: Vec::new(),
        })
    }

    fn answer(&self, id: u64, quorum: bool) -> Answer {
        let listed = &self.etcd.members[&id];
        let index = self.data(&listed.name).map_or(0, |data| data.index);
        let full = self.etcd.full.as_ref();
        let bloated = full.is_some_and(|full| full.bloated.contains(&id));
        Answer {
            member_id: id,
            cluster_id: CLUSTER_ID,
            leader_id: self.etcd.leader.unwrap_or(0),
            version: self.kubernetes.pods[&listed.name].version.to_string(),
            learner: listed.learner,
            raft_index: index,
            applied_index: index,
            db_size: if bloated { QUOTA } else { 0 },
            db_size_in_use: 0,
            storage_version: String::new(),
            downgrade_to: None,
            alarms: self.etcd.alarms(),
            quota: u64::try_from(QUOTA).ok(),
            revision: i64::try_from(self.acknowledged).unwrap(),
            compacted: full.map(|full| full.compacted),
            locked_out: false,
            membership: (quorum && !listed.learner).then(Vec::new),
            heard_of: Vec::new(),
        }
    }

    /// The cache catches up.
    pub(super) fn look(&mut self) {
        self.cache = self.kubernetes.clone();
    }

    pub(super) fn cache_is_old(&self) -> bool {
        let key = |side: &Kubernetes| {
            let mut hasher = DefaultHasher::new();
            side.key(self.minute, &|uid| usize::try_from(uid).ok(), &mut hasher);
            hasher.finish()
        };
        key(&self.cache) != key(&self.kubernetes)
    }

    pub(super) fn converged(&self) -> bool {
        let (voters, up) = (self.etcd.voters(), self.up());
        let as_specified = |(name, pod): (&String, &ModelPod)| {
            pod.version == self.cluster.version
                && pod.config == crate::cluster::children::fingerprint(&self.cluster, name)
        };
        voters.len() == self.cluster.size.members()
            && self.etcd.alarms().is_empty()
            && voters.len() == self.etcd.members.len()
            && voters.iter().all(|id| up.contains(id))
            && self.kubernetes.pods.len() == voters.len()
            && self.kubernetes.claims.len() == voters.len()
            && self.kubernetes.pods.iter().all(as_specified)
    }

    /// What tells this world from another as far as its future goes: objects by the order they were made in, time and the
    /// log by how far they lie apart.
    pub(super) fn key(&self) -> u64 {
        let made: BTreeSet<u64> = [&self.kubernetes, &self.cache]
            .into_iter()
            .flat_map(|side| {
                let pods = side.pods.values().flat_map(|pod| [pod.uid, pod.claim]);
                pods.chain(side.claims.values().copied())
            })
            .collect();
        let place = |uid: u64| made.iter().position(|made| *made == uid);
        let indices: BTreeSet<u64> = made
            .iter()
            .filter_map(|uid| Some(self.volumes.get(uid)?.index))
            .chain([self.acknowledged])
            .collect();
        let mut hasher = DefaultHasher::new();
        for side in [&self.kubernetes, &self.cache] {
            side.key(self.minute, &place, &mut hasher);
        }
        (self.kubernetes.status_version == self.cache.status_version).hash(&mut hasher);
        for uid in &made {
            let version = [&self.claim_versions, &self.taken_back]
                .map(|versions| versions.get(uid).map(ToString::to_string));
            let data = self.volumes.get(uid).map(|data| {
                let index = indices.iter().position(|index| *index == data.index);
                (data.member, index)
            });
            (version, data).hash(&mut hasher);
        }
        let etcd = &self.etcd;
        for (id, member) in &etcd.members {
            (id, member.learner, member.started).hash(&mut hasher);
        }
        let newest = indices.iter().position(|index| *index == self.acknowledged);
        (&etcd.removed, etcd.formed, etcd.leader, newest).hash(&mut hasher);
        (&etcd.corrupt, &etcd.full, etcd.strict).hash(&mut hasher);
        let wish = &self.wish;
        (wish.size, wish.version % wish.line.len(), wish.quota).hash(&mut hasher);
        (self.founder_lost, self.broken.is_some()).hash(&mut hasher);
        hasher.finish()
    }
}

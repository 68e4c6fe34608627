//! A model API server and a model etcd to run the plan against: stale caches, crashes between any two writes, replies that
//! get lost, pods and disks that go. `simulation` plays long random scripts on it, `exhaustive` every short one.
//!
//! The model of etcd knows what can go wrong: a voter that comes back without its log is a broken history, not an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use etcd_operator_api::{
    ValidatedCluster, Version,
    v1beta2::{BootstrapMember, BootstrapRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{plan, rollout};
use crate::{
    cluster::{
        children::{self, InPlace, starts},
        fixtures::{self, CLUSTER_ID, id_of},
        observed::{ClaimFacts, Listed, Member, Observed, PodFacts, Quorum, Start, quorum_of},
        step::{Outlook, Step},
    },
    etcd::{Alarm, AlarmKind, Answer},
};

const QUOTA: i64 = 1 << 30;
const VERSIONS: [&str; 3] = ["3.6.10", "3.6.12", "3.6.16"];

/// What the API server holds. A cache is an older copy of it.
#[derive(Clone, Default)]
struct Kubernetes {
    bootstrap: Option<BootstrapRecord>,
    cluster_id: Option<u64>,
    was_ready: bool,
    available_since: Option<i64>,
    unwell_since: BTreeMap<String, i64>,
    compacted: Option<i64>,
    defragmented: BTreeMap<String, i64>,
    /// Changes with every write to the status: a write against an older look is refused.
    status_version: u64,
    starts: BTreeMap<String, Start>,
    certified: BTreeSet<String>,
    pods: BTreeMap<String, ModelPod>,
    claims: BTreeMap<String, u64>,
}

#[derive(Clone)]
struct ModelPod {
    uid: u64,
    version: Version,
    config: String,
    claim: u64,
    /// Readiness needs a quorum, as `/readyz` does.
    ready: bool,
    since: i64,
    /// Started, and its etcd serves unless `frozen`.
    running: bool,
    frozen: bool,
}

/// What is on a volume.
#[derive(Clone, Default)]
struct Data {
    member: Option<u64>,
    index: u64,
}

#[derive(Clone)]
struct EtcdMember {
    name: String,
    learner: bool,
    started: bool,
}

#[derive(Clone)]
pub(super) struct World {
    cluster: Arc<ValidatedCluster>,
    kubernetes: Kubernetes,
    cache: Kubernetes,
    volumes: BTreeMap<u64, Data>,
    /// Which version the member on a claim is to run.
    claim_versions: BTreeMap<u64, Version>,
    members: BTreeMap<u64, EtcdMember>,
    removed: BTreeSet<u64>,
    formed: bool,
    leader: Option<u64>,
    /// The newest write that was acknowledged to a client.
    acknowledged: u64,
    counter: u64,
    minute: i64,
    /// Members etcd has raised a CORRUPT alarm about.
    corrupt: BTreeSet<u64>,
    full: Option<Full>,
    /// A founder's volume was taken before the first quorum: that is left to a person.
    pub(super) founder_lost: bool,
    /// The first invariant that did not hold.
    pub(super) broken: Option<String>,
}

/// What one pass of the controller came to.
pub(super) struct Passed {
    pub(super) outlook: Outlook,
    /// How many writes it made or tried.
    pub(super) writes: u8,
}

/// The quota is used up.
#[derive(Clone, Hash)]
struct Full {
    alarm_of: u64,
    compacted: bool,
    /// Whose file has free space to give back once old revisions are dropped.
    bloated: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    DeletePod(u8),
    /// Takes the pod along: a claim in use is protected.
    DeleteClaim(u8),
    /// The disk behind a claim is replaced by an empty one, and the process starts again on it.
    Wipe(u8),
    /// Before the cluster has ever answered, a founder's claim and pod are taken away.
    LoseFounder(u8),
    /// The process ends and is started again in its pod.
    Crash(u8),
    Freeze(u8),
    Thaw,
    /// etcd finds that a member's data differ from the others'.
    Corrupt(u8),
    /// Clients use up the quota.
    Fill,
    Resize(u8),
    SetVersion(u8),
    /// The cache stops following.
    Stale,
    Fresh,
    /// The controller dies after so many writes of this pass.
    CrashAfter(u8),
    /// The pass acts, and hears an error.
    LoseReply,
    Quiet,
}

fn cluster(size: i32, version: &str) -> Arc<ValidatedCluster> {
    Arc::new(fixtures::cluster(json!({"size": size, "version": version})))
}

fn minute(number: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(number)
}

impl World {
    pub(super) fn new(size: i32) -> Self {
        Self {
            cluster: cluster(size, VERSIONS[0]),
            kubernetes: Kubernetes::default(),
            cache: Kubernetes::default(),
            volumes: BTreeMap::new(),
            claim_versions: BTreeMap::new(),
            members: BTreeMap::new(),
            removed: BTreeSet::new(),
            formed: false,
            leader: None,
            acknowledged: 0,
            counter: 0,
            minute: 0,
            corrupt: BTreeSet::new(),
            full: None,
            founder_lost: false,
            broken: None,
        }
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

    /// A member whose process runs, answers, and has its own data.
    fn serves(&self, id: u64) -> bool {
        let name = &self.members[&id].name;
        let running = self
            .kubernetes
            .pods
            .get(name)
            .is_some_and(|pod| pod.running && !pod.frozen);
        running && self.data(name).is_some_and(|data| data.member == Some(id))
    }

    fn voters(&self) -> Vec<u64> {
        self.members
            .iter()
            .filter(|(_, member)| !member.learner)
            .map(|(id, _)| *id)
            .collect()
    }

    fn has_quorum(&self) -> bool {
        let voters = self.voters();
        self.formed
            && voters.iter().filter(|id| self.serves(**id)).count() >= quorum_of(voters.len())
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
        let Some(start) = self.kubernetes.starts.get(name).cloned() else {
            return;
        };
        let pod = self.kubernetes.pods[name].clone();
        let id = id_of(name);
        let listed = self.members.get(&id).cloned();
        let data = self.volumes.get(&pod.claim).cloned().unwrap_or_default();
        if let Some(member) = data.member {
            if member != id {
                self.breaks(format!("the volume of {name} serves a second member"));
            }
            if self.removed.contains(&id) {
                return;
            }
        } else {
            match start {
                // It is told of nobody it could join: it ends.
                Start::Resume { .. } => return,
                Start::Join { .. } if listed.is_none() => return,
                Start::Bootstrap { initial_cluster } if !self.formed => {
                    for founder in initial_cluster
                        .split(',')
                        .filter_map(|entry| entry.split_once('='))
                    {
                        self.members
                            .entry(id_of(founder.0))
                            .or_insert_with(|| EtcdMember {
                                name: founder.0.to_owned(),
                                learner: false,
                                started: false,
                            });
                    }
                    if self.members.get(&id).is_none_or(|member| member.started) {
                        self.breaks(format!("{name} bootstraps a second time"));
                    }
                }
                Start::Bootstrap { .. } | Start::Join { .. } => {
                    if listed.is_none_or(|member| member.started) {
                        self.breaks(format!("{name} votes without its log"));
                    }
                }
            }
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.started = true;
        }
        self.volumes.entry(pod.claim).or_default().member = Some(id);
        if let Some(pod) = self.kubernetes.pods.get_mut(name) {
            pod.running = true;
        }
        let founders = self.voters();
        let started = founders.iter().filter(|id| self.serves(**id)).count();
        self.formed |= started >= quorum_of(founders.len());
    }

    fn elect_and_write(&mut self) {
        if !self.has_quorum() {
            self.leader = None;
            return;
        }
        let index = |world: &Self, id: u64| {
            world
                .data(&world.members[&id].name)
                .map_or(0, |data| data.index)
        };
        let serving: Vec<u64> = self
            .members
            .keys()
            .copied()
            .filter(|id| self.serves(*id))
            .collect();
        let voters: Vec<u64> = serving
            .iter()
            .copied()
            .filter(|id| !self.members[id].learner)
            .collect();
        let newest = voters.iter().map(|id| index(self, *id)).max().unwrap_or(0);
        if newest < self.acknowledged {
            self.breaks(format!(
                "write {} was acknowledged and is lost: a quorum knows only {newest}",
                self.acknowledged
            ));
        }
        if self.leader.is_none_or(|leader| !voters.contains(&leader)) {
            self.leader = voters.iter().copied().max_by_key(|id| index(self, *id));
        }
        if self.alarms().is_empty() {
            self.acknowledged = newest + 1;
        }
        for id in serving {
            let claim = self.kubernetes.pods[&self.members[&id].name].claim;
            if let Some(data) = self.volumes.get_mut(&claim) {
                data.index = self.acknowledged;
            }
        }
    }

    fn alarms(&self) -> Vec<Alarm> {
        let corrupt = self.corrupt.iter().map(|id| (AlarmKind::Corrupt, *id));
        let full = self.full.iter();
        corrupt
            .chain(full.map(|full| (AlarmKind::NoSpace, full.alarm_of)))
            .map(|(kind, member_id)| Alarm { kind, member_id })
            .collect()
    }

    fn observe(&self) -> Observed {
        let cache = &self.cache;
        let mut members: BTreeMap<String, Member> = BTreeMap::new();
        for (name, uid) in &cache.claims {
            members.entry(name.clone()).or_default().claim = Some(ClaimFacts {
                uid: uid.to_string(),
                terminating: false,
                requested: None,
                version: self.claim_versions.get(uid).copied(),
                lost: false,
            });
        }
        for (name, pod) in &cache.pods {
            members.entry(name.clone()).or_default().pod = Some(PodFacts {
                uid: pod.uid.to_string(),
                node: None,
                ip: Some("10.0.0.1".to_owned()),
                ready: pod.ready,
                since: minute(pod.since),
                terminating: false,
                starting: false,
                finished: false,
                version: Some(pod.version),
                config: pod.config.clone(),
                in_place: InPlace::of(&self.cluster),
                does_not_fit: false,
                loads: Some(fixtures::LOADS.to_owned()),
                restarts: 0,
                trouble: None,
            });
        }
        // etcd is asked live, but only where the cache knows a pod.
        let quorum = self.has_quorum()
            && self
                .members
                .iter()
                .any(|(id, m)| self.serves(*id) && cache.pods.contains_key(&m.name));
        for (id, listed) in &self.members {
            if self.serves(*id) && cache.pods.contains_key(&listed.name) {
                let index = self.data(&listed.name).map_or(0, |data| data.index);
                members.entry(listed.name.clone()).or_default().answer = Some(Answer {
                    member_id: *id,
                    cluster_id: CLUSTER_ID,
                    leader_id: self.leader.unwrap_or(0),
                    version: self.kubernetes.pods[&listed.name].version.to_string(),
                    learner: listed.learner,
                    raft_index: index,
                    applied_index: index,
                    db_size: if self
                        .full
                        .as_ref()
                        .is_some_and(|full| full.bloated.contains(id))
                    {
                        QUOTA
                    } else {
                        0
                    },
                    db_size_in_use: 0,
                    storage_version: String::new(),
                    downgrade_to: None,
                    alarms: self.alarms(),
                    quota: u64::try_from(QUOTA).ok(),
                    revision: i64::try_from(self.acknowledged).unwrap(),
                    compacted: self.full.as_ref().map(|full| full.compacted),
                    locked_out: false,
                    membership: (quorum && !listed.learner).then(Vec::new),
                });
            }
            if quorum {
                members.entry(listed.name.clone()).or_default().listed = Some(Listed {
                    id: *id,
                    learner: listed.learner,
                    started: listed.started,
                });
            }
        }
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
            seed: (self.members.len() + self.removed.len()) as u64,
            bootstrap: cache.bootstrap.clone(),
            cluster_id: cache.cluster_id,
            members,
            quorum: quorum.then(|| Quorum {
                cluster_id: CLUSTER_ID,
                leader_id: self.leader.unwrap_or(0),
                strangers: Vec::new(),
            }),
            foreign: Vec::new(),
            retained: Vec::new(),
            start_afresh: false,
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

    /// One pass of the controller, which may die after `most` writes of it.
    pub(super) fn pass(&mut self, most: u8) -> Passed {
        let seen = self.observe();
        let status_version = self.cache.status_version;
        let plan = plan(&self.cluster, &seen);
        let mut writes = 0;
        let mut may_write = || {
            let alive = writes < most;
            writes += u8::from(alive);
            alive
        };
        let wanted = starts::desired(&self.cluster, &seen);
        if wanted != seen.starts && may_write() {
            self.kubernetes.starts = wanted;
        }
        let mut record = None;
        match plan.step.clone() {
            Some(Step::RecordBootstrap { token, members }) => {
                let members = members
                    .into_iter()
                    .map(|name| BootstrapMember {
                        name,
                        claim_uid: None,
                    })
                    .collect();
                record = Some(BootstrapRecord { token, members });
            }
            Some(Step::RecordClaims { members }) => {
                record = Some(BootstrapRecord {
                    token: "t".to_owned(),
                    members,
                });
            }
            Some(Step::Prepare { members }) => {
                for name in members {
                    if may_write() && !self.kubernetes.claims.contains_key(&name) {
                        let uid = self.unique();
                        let version = rollout::newcomer_version(&self.cluster, &seen);
                        self.claim_versions.insert(uid, version);
                        self.kubernetes.claims.insert(name.clone(), uid);
                    }
                    if may_write() {
                        self.kubernetes.certified.insert(name);
                    }
                }
            }
            Some(Step::Start { members, .. }) => {
                for name in members {
                    if may_write() && !self.kubernetes.pods.contains_key(&name) {
                        self.create_pod(&name);
                    }
                }
            }
            Some(Step::Renew { members }) => {
                if may_write() {
                    self.kubernetes.certified.extend(members);
                }
            }
            Some(step) if may_write() => self.disrupt(&step),
            None | Some(_) => {}
        }
        if may_write() && self.kubernetes.status_version == status_version {
            let known = self
                .kubernetes
                .cluster_id
                .or(seen.quorum.as_ref().map(|quorum| quorum.cluster_id));
            let mut status = self.kubernetes.clone();
            status.cluster_id = known;
            status.was_ready |= plan.outlook == Outlook::Settled;
            let since = status.available_since.unwrap_or(self.minute);
            status.available_since = seen.quorum.is_some().then_some(since);
            status.unwell_since = seen
                .members
                .iter()
                .filter(|(_, member)| member.listed.is_some() && !member.healthy())
                .map(|(name, _)| {
                    (
                        name.clone(),
                        status
                            .unwell_since
                            .get(name)
                            .copied()
                            .unwrap_or(self.minute),
                    )
                })
                .collect();
            match &plan.step {
                Some(Step::Compact { .. }) => status.compacted = Some(self.minute),
                Some(Step::Defragment { name }) => {
                    status.defragmented.insert(name.clone(), self.minute);
                }
                _ => {}
            }
            let changed = record.is_some()
                || status.compacted != self.kubernetes.compacted
                || status.defragmented != self.kubernetes.defragmented
                || status.cluster_id != self.kubernetes.cluster_id
                || status.was_ready != self.kubernetes.was_ready
                || status.available_since != self.kubernetes.available_since
                || status.unwell_since != self.kubernetes.unwell_since;
            if changed {
                status.status_version += 1;
                if record.is_some() {
                    status.bootstrap = record;
                }
                self.kubernetes = status;
            }
        }
        Passed {
            outlook: plan.outlook,
            writes,
        }
    }

    fn create_pod(&mut self, name: &str) {
        // The kubelet does not start a pod whose claim is not there; neither does the scheduler place it.
        let Some(claim) = self.kubernetes.claims.get(name).copied() else {
            return;
        };
        let uid = self.unique();
        let pod = ModelPod {
            uid,
            version: self.claim_versions[&claim],
            config: children::fingerprint(&self.cluster, name),
            claim,
            ready: false,
            since: self.minute,
            running: false,
            frozen: false,
        };
        self.kubernetes.pods.insert(name.to_owned(), pod);
    }

    /// Steps that take something away, or change the membership.
    fn disrupt(&mut self, step: &Step) {
        let quorum = self.has_quorum();
        match step {
            Step::Restart { name, pod_uid, .. } => {
                self.must_keep_quorum_without(name, step);
                if let Some(claim) = self.kubernetes.claims.get(name) {
                    self.claim_versions.insert(*claim, self.cluster.version);
                }
                self.delete_pod(name, pod_uid);
            }
            Step::DeletePod { name, pod_uid, .. } => self.delete_pod(name, pod_uid),
            Step::DeleteClaim { name, claim_uid } => {
                if self.members.values().any(|member| member.name == *name) {
                    self.breaks(format!("{step}: but it is a member"));
                }
                if self
                    .kubernetes
                    .claims
                    .get(name)
                    .is_some_and(|uid| uid.to_string() == *claim_uid)
                {
                    self.kubernetes.claims.remove(name);
                }
            }
            _ if !quorum => {}
            Step::AddLearner { name } => {
                if self.members.values().any(|member| member.learner) {
                    self.breaks(format!("{step}: a second learner"));
                }
                if self.members.values().any(|member| member.name == *name)
                    || self.removed.contains(&id_of(name))
                {
                    self.breaks(format!("{step}: its name has been used"));
                }
                let member = EtcdMember {
                    name: name.clone(),
                    learner: true,
                    started: false,
                };
                self.members.insert(id_of(name), member);
            }
            Step::Promote { id, .. } => {
                if let Some(member) = self.members.get_mut(id) {
                    member.learner = false;
                }
                if !self.has_quorum() {
                    self.breaks(format!("{step}: cost the quorum"));
                }
            }
            Step::Remove { id, name, .. } => {
                if self.members.get(id).is_some_and(|member| !member.learner)
                    && self.voters().len() == 1
                {
                    self.breaks(format!("{step}: the last voter"));
                }
                self.members.remove(id);
                self.removed.insert(*id);
                if !self.has_quorum() {
                    self.breaks(format!("{step}: cost the quorum"));
                }
                if let Some(pod) = self.kubernetes.pods.get_mut(name) {
                    pod.running = false;
                }
            }
            Step::MoveLeader { to_id, .. } => self.leader = Some(*to_id),
            Step::Compact { .. } => self.full.iter_mut().for_each(|full| full.compacted = true),
            Step::Defragment { name } => {
                self.must_keep_quorum_without(name, step);
                if let Some(full) = self.full.as_mut().filter(|full| full.compacted) {
                    full.bloated.remove(&id_of(name));
                }
            }
            Step::Disarm { kind, member_id } => self.disarm(*kind, *member_id),
            _ => {}
        }
    }

    fn disarm(&mut self, kind: AlarmKind, member_id: u64) {
        match kind {
            AlarmKind::Corrupt => {
                if self.members.contains_key(&member_id) {
                    self.breaks(format!("{member_id:x} is corrupt and still a member"));
                }
                self.corrupt.remove(&member_id);
            }
            AlarmKind::NoSpace => {
                // Whoever still has no room raises it again.
                let Some(full) = self.full.take_if(|full| full.alarm_of == member_id) else {
                    return;
                };
                let still = full.bloated.iter().find(|id| self.members.contains_key(id));
                self.full = still.copied().map(|alarm_of| Full { alarm_of, ..full });
            }
        }
    }

    fn must_keep_quorum_without(&mut self, name: &str, step: &Step) {
        let voters = self.voters();
        let left = voters
            .iter()
            .filter(|id| self.members[id].name != name && self.serves(**id))
            .count();
        let serves = voters
            .iter()
            .any(|id| self.members[id].name == name && self.serves(*id));
        if serves && voters.len() > 1 && left < quorum_of(voters.len()) {
            self.breaks(format!("{step}: leaves {left} of {} voters", voters.len()));
        }
    }

    fn delete_pod(&mut self, name: &str, uid: &str) {
        if self
            .kubernetes
            .pods
            .get(name)
            .is_some_and(|pod| pod.uid.to_string() == uid)
        {
            self.kubernetes.pods.remove(name);
        }
    }

    fn nth<T>(items: &BTreeMap<String, T>, n: u8) -> Option<String> {
        items
            .keys()
            .nth(usize::from(n) % items.len().max(1))
            .cloned()
    }

    /// A fault or an edit. Data is destroyed only while everybody is well, and never a majority's: that no operator can mend.
    pub(super) fn happen(&mut self, event: Event) -> u8 {
        let mut writes = u8::MAX;
        match event {
            Event::DeletePod(n) => {
                if let Some(name) = Self::nth(&self.kubernetes.pods, n) {
                    self.kubernetes.pods.remove(&name);
                }
            }
            Event::DeleteClaim(n) => {
                if self.is_whole()
                    && let Some(name) = Self::nth(&self.kubernetes.claims, n)
                {
                    self.kubernetes.pods.remove(&name);
                    self.kubernetes.claims.remove(&name);
                }
            }
            // Not between a member's first start and the pass that sees it: until then etcd has to be told whom to join, and a
            // disk that is exchanged in that moment goes unnoticed.
            Event::Wipe(n) => {
                if self.is_whole()
                    && let Some(name) = Self::nth(&self.kubernetes.pods, n)
                    && matches!(
                        self.kubernetes.starts.get(&name),
                        Some(Start::Resume { .. })
                    )
                    && let Some(pod) = self.kubernetes.pods.get_mut(&name)
                {
                    pod.running = false;
                    let claim = pod.claim;
                    self.volumes.insert(claim, Data::default());
                }
            }
            Event::LoseFounder(n) => {
                if self.kubernetes.cluster_id.is_none()
                    && let Some(name) = Self::nth(&self.kubernetes.claims, n)
                {
                    self.kubernetes.pods.remove(&name);
                    self.kubernetes.claims.remove(&name);
                    self.founder_lost = true;
                }
            }
            Event::Crash(n) => {
                if let Some(pod) = Self::nth(&self.kubernetes.pods, n)
                    .and_then(|name| self.kubernetes.pods.get_mut(&name))
                {
                    pod.running = false;
                }
            }
            Event::Freeze(n) => {
                if let Some(pod) = Self::nth(&self.kubernetes.pods, n)
                    .and_then(|name| self.kubernetes.pods.get_mut(&name))
                {
                    pod.frozen = true;
                }
            }
            Event::Thaw => self
                .kubernetes
                .pods
                .values_mut()
                .for_each(|pod| pod.frozen = false),
            Event::Corrupt(n) => {
                if self.is_whole() && self.alarms().is_empty() {
                    let voters = self.voters();
                    self.corrupt.insert(voters[usize::from(n) % voters.len()]);
                }
            }
            Event::Fill => {
                if self.has_quorum() && self.alarms().is_empty() {
                    self.full = Some(Full {
                        alarm_of: self.voters()[0],
                        compacted: false,
                        bloated: self.members.keys().copied().collect(),
                    });
                }
            }
            Event::Resize(n) => {
                let size = [1, 3, 5, 7][usize::from(n) % 4];
                self.cluster = cluster(size, &self.cluster.version.to_string());
            }
            Event::SetVersion(n) => {
                let size = i32::try_from(self.cluster.size.members()).unwrap();
                self.cluster = cluster(size, VERSIONS[usize::from(n) % VERSIONS.len()]);
            }
            Event::CrashAfter(n) => writes = n % 8,
            Event::LoseReply => writes = 2,
            Event::Stale | Event::Fresh | Event::Quiet => {}
        }
        writes
    }

    /// Everybody serves, so that one may lose its data without a majority losing theirs.
    fn is_whole(&self) -> bool {
        self.voters().len() >= 3
            && self.kubernetes.cluster_id.is_some()
            && self.members.keys().all(|id| self.serves(*id))
    }

    pub(super) fn converged(&self) -> bool {
        let voters = self.voters();
        voters.len() == self.cluster.size.members()
            && self.alarms().is_empty()
            && voters.len() == self.members.len()
            && voters.iter().all(|id| self.serves(*id))
            && self.kubernetes.pods.len() == voters.len()
            && self.kubernetes.claims.len() == voters.len()
            && self
                .kubernetes
                .pods
                .values()
                .all(|pod| pod.version == self.cluster.version)
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
            let version = self.claim_versions.get(uid).map(ToString::to_string);
            let data = self.volumes.get(uid).map(|data| {
                let index = indices.iter().position(|index| *index == data.index);
                (data.member, index)
            });
            (version, data).hash(&mut hasher);
        }
        for (id, member) in &self.members {
            (id, member.learner, member.started).hash(&mut hasher);
        }
        let newest = indices.iter().position(|index| *index == self.acknowledged);
        (&self.removed, self.formed, self.leader, newest).hash(&mut hasher);
        (
            self.cluster.size.members(),
            self.cluster.version.to_string(),
        )
            .hash(&mut hasher);
        (&self.corrupt, &self.full).hash(&mut hasher);
        (self.founder_lost, self.broken.is_some()).hash(&mut hasher);
        hasher.finish()
    }
}

/// Longer than any patience: what has lasted so long may as well have lasted for ever.
const AGES: i64 = 8;

impl Kubernetes {
    fn key(&self, now: i64, place: &dyn Fn(u64) -> Option<usize>, hasher: &mut DefaultHasher) {
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
        }
        for (name, claim) in &self.claims {
            (name, place(*claim)).hash(hasher);
        }
    }
}

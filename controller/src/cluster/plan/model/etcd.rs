//! A model of etcd: who is a member, who leads, and what it refuses. Which processes run is told to it, as the set of those
//! that are up. `conformance` plays the same scripts on this and on real etcd.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    cluster::{
        fixtures::id_of,
        observed::{Start, quorum_of},
    },
    etcd::{Alarm, AlarmKind},
};

/// The members whose processes run, answer, and have their own data.
pub(in super::super) type Up = BTreeSet<u64>;

#[derive(Clone, Default)]
pub(in super::super) struct Etcd {
    pub(in super::super) members: BTreeMap<u64, EtcdMember>,
    pub(super) removed: BTreeSet<u64>,
    /// A quorum has been there once: from now on nobody founds.
    pub(super) formed: bool,
    pub(in super::super) leader: Option<u64>,
    /// Members etcd has raised a CORRUPT alarm about.
    pub(super) corrupt: BTreeSet<u64>,
    pub(super) full: Option<Full>,
    /// Older releases add nobody while anybody is down; newer ones count who is needed.
    pub(super) strict: bool,
}

#[derive(Clone)]
pub(in super::super) struct EtcdMember {
    pub(in super::super) name: String,
    pub(in super::super) learner: bool,
    pub(in super::super) started: bool,
}

/// What is on a volume.
#[derive(Clone, Default)]
pub(in super::super) struct Data {
    pub(super) member: Option<u64>,
    pub(super) index: u64,
}

/// The quota is used up.
#[derive(Clone, Hash)]
pub(super) struct Full {
    pub(super) alarm_of: u64,
    pub(super) compacted: bool,
    /// Whose file has free space to give back once old revisions are dropped.
    pub(super) bloated: BTreeSet<u64>,
}

/// Why etcd does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Refusal {
    /// It answers "no leader", or nothing at all in time.
    NoQuorum,
    NotRunning,
    Unhealthy,
    NotEnoughStarted,
    TooManyLearners,
    PeerUrlExists,
    UnknownMember,
    NotALearner,
    LearnerBehind,
    BadTransferee,
    NoSpace,
    Corrupt,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What came of the start of a process.
pub(in super::super) enum Begun {
    Runs,
    /// It ends at once.
    Refuses,
    /// It runs, and that must never happen.
    Breaks(String),
}

impl Etcd {
    pub(in super::super) fn new(strict: bool) -> Self {
        Self {
            strict,
            ..Self::default()
        }
    }

    pub(in super::super) fn voters(&self) -> Vec<u64> {
        let voting = self.members.iter().filter(|(_, member)| !member.learner);
        voting.map(|(id, _)| *id).collect()
    }

    pub(in super::super) fn has_quorum(&self, up: &Up) -> bool {
        let voters = self.voters();
        let serving = voters.iter().filter(|id| up.contains(id)).count();
        self.formed && serving >= quorum_of(voters.len())
    }

    fn needs_quorum(&self, up: &Up) -> Result<(), Refusal> {
        self.has_quorum(up).then_some(()).ok_or(Refusal::NoQuorum)
    }

    fn voters_up(&self, up: &Up) -> usize {
        self.voters().iter().filter(|id| up.contains(id)).count()
    }

    /// Somebody leads whenever a quorum can agree on it: who has the newest log.
    pub(in super::super) fn elect(&mut self, up: &Up, index: impl Fn(u64) -> u64) {
        if !self.has_quorum(up) {
            self.leader = None;
            return;
        }
        let mut voters = self.voters();
        voters.retain(|id| up.contains(id));
        if self.leader.is_none_or(|leader| !voters.contains(&leader)) {
            self.leader = voters.into_iter().max_by_key(|id| index(*id));
        }
    }

    /// A process starts on whatever its disk holds.
    pub(in super::super) fn start(&mut self, name: &str, start: &Start, data: &mut Data) -> Begun {
        let id = id_of(name);
        let mut broken = None;
        if let Some(member) = data.member {
            if member != id {
                broken = Some(format!("the volume of {name} serves a second member"));
            }
            if self.removed.contains(&id) {
                return Begun::Refuses;
            }
        } else {
            let unused = |members: &BTreeMap<u64, EtcdMember>| {
                members.get(&id).is_some_and(|member| !member.started)
            };
            match start {
                // It is told of nobody it could join: it ends.
                Start::Resume { .. } => return Begun::Refuses,
                Start::Join { .. } if !self.members.contains_key(&id) => return Begun::Refuses,
                Start::Bootstrap { initial_cluster } if !self.formed => {
                    let founders = initial_cluster.split(',');
                    for founder in founders.filter_map(|entry| entry.split_once('=')) {
                        let member = EtcdMember {
                            name: founder.0.to_owned(),
                            learner: false,
                            started: false,
                        };
                        self.members.entry(id_of(founder.0)).or_insert(member);
                    }
                    if !unused(&self.members) {
                        broken = Some(format!("{name} bootstraps a second time"));
                    }
                }
                Start::Bootstrap { .. } | Start::Join { .. } => {
                    if !unused(&self.members) {
                        broken = Some(format!("{name} votes without its log"));
                    }
                }
            }
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.started = true;
        }
        data.member = Some(id);
        broken.map_or(Begun::Runs, Begun::Breaks)
    }

    /// After a start: the first quorum ends the founding.
    pub(in super::super) fn form(&mut self, up: &Up) {
        let founders = self.voters();
        self.formed |= !founders.is_empty() && self.voters_up(up) >= quorum_of(founders.len());
    }

    pub(in super::super) fn add(
        &mut self,
        up: &Up,
        name: &str,
        learner: bool,
    ) -> Result<(), Refusal> {
        let voters = self.voters();
        let started = voters.iter().filter(|id| self.members[id].started).count();
        let alone = voters.len() == 1;
        if !learner && !alone && started < quorum_of(voters.len() + 1) {
            return Err(Refusal::NotEnoughStarted);
        }
        // Asked of the one that is asked alone, so without a quorum the answer is the same.
        let connected = self.voters_up(up);
        let enough = if self.strict {
            connected == voters.len()
        } else {
            alone || connected >= quorum_of(voters.len() + 1)
        };
        if !enough {
            return Err(Refusal::Unhealthy);
        }
        self.needs_quorum(up)?;
        if self.members.values().any(|member| member.name == name) {
            return Err(Refusal::PeerUrlExists);
        }
        if learner && self.members.values().any(|member| member.learner) {
            return Err(Refusal::TooManyLearners);
        }
        let member = EtcdMember {
            name: name.to_owned(),
            learner,
            started: false,
        };
        self.members.insert(id_of(name), member);
        Ok(())
    }

    pub(in super::super) fn promote(&mut self, up: &Up, id: u64) -> Result<(), Refusal> {
        self.needs_quorum(up)?;
        let member = self.members.get_mut(&id).ok_or(Refusal::UnknownMember)?;
        if !member.learner {
            return Err(Refusal::NotALearner);
        }
        // Whoever runs has caught up by the time it is asked for; whoever does not never will.
        if !up.contains(&id) {
            return Err(Refusal::LearnerBehind);
        }
        member.learner = false;
        Ok(())
    }

    pub(in super::super) fn remove(&mut self, up: &Up, id: u64) -> Result<(), Refusal> {
        let voters = self.voters();
        if voters.contains(&id) {
            let others = voters.iter().filter(|other| **other != id);
            let started = others.filter(|other| self.members[other].started).count();
            let left = voters.len() - 1;
            if left == 0 || started < quorum_of(left) {
                return Err(Refusal::NotEnoughStarted);
            }
            if up.contains(&id) && self.voters_up(up) - 1 < quorum_of(left) {
                return Err(Refusal::Unhealthy);
            }
        }
        self.needs_quorum(up)?;
        if self.members.remove(&id).is_none() {
            return Err(Refusal::UnknownMember);
        }
        self.removed.insert(id);
        Ok(())
    }

    pub(in super::super) fn move_leader(&mut self, up: &Up, to: u64) -> Result<(), Refusal> {
        self.needs_quorum(up)?;
        if !self.voters().contains(&to) {
            return Err(Refusal::BadTransferee);
        }
        if !up.contains(&to) {
            return Err(Refusal::NoQuorum);
        }
        self.leader = Some(to);
        Ok(())
    }

    pub(in super::super) fn read(&self, up: &Up) -> Result<(), Refusal> {
        self.needs_quorum(up)
    }

    pub(in super::super) fn put(&self, up: &Up) -> Result<(), Refusal> {
        self.needs_quorum(up)?;
        match self.alarms().first().map(|alarm| alarm.kind) {
            Some(AlarmKind::NoSpace) => Err(Refusal::NoSpace),
            Some(AlarmKind::Corrupt) => Err(Refusal::Corrupt),
            None => Ok(()),
        }
    }

    /// It concerns one member alone, whatever the others do.
    pub(in super::super) fn defragment(&mut self, up: &Up, id: u64) -> Result<(), Refusal> {
        if !up.contains(&id) {
            return Err(Refusal::NotRunning);
        }
        if let Some(full) = self.full.as_mut().filter(|full| full.compacted) {
            full.bloated.remove(&id);
        }
        Ok(())
    }

    pub(super) fn compact(&mut self, up: &Up) -> Result<(), Refusal> {
        self.needs_quorum(up)?;
        self.full.iter_mut().for_each(|full| full.compacted = true);
        Ok(())
    }

    pub(in super::super) fn alarms(&self) -> Vec<Alarm> {
        let corrupt = self.corrupt.iter().map(|id| (AlarmKind::Corrupt, *id));
        let full = self.full.iter();
        corrupt
            .chain(full.map(|full| (AlarmKind::NoSpace, full.alarm_of)))
            .map(|(kind, member_id)| Alarm { kind, member_id })
            .collect()
    }

    pub(in super::super) fn raise(
        &mut self,
        up: &Up,
        kind: AlarmKind,
        id: u64,
    ) -> Result<(), Refusal> {
        self.needs_quorum(up)?;
        match kind {
            AlarmKind::Corrupt => {
                self.corrupt.insert(id);
            }
            AlarmKind::NoSpace => {
                self.full = Some(Full {
                    alarm_of: id,
                    compacted: false,
                    bloated: BTreeSet::new(),
                });
            }
        }
        Ok(())
    }

    pub(in super::super) fn disarm(
        &mut self,
        up: &Up,
        kind: AlarmKind,
        id: u64,
    ) -> Result<(), Refusal> {
        self.needs_quorum(up)?;
        match kind {
            AlarmKind::Corrupt => {
                self.corrupt.remove(&id);
            }
            AlarmKind::NoSpace => {
                // Whoever still has no room raises it again.
                if let Some(full) = self.full.take_if(|full| full.alarm_of == id) {
                    let still = full.bloated.iter().find(|id| self.members.contains_key(id));
                    self.full = still.copied().map(|alarm_of| Full { alarm_of, ..full });
                }
            }
        }
        Ok(())
    }
}

//! One pass of the controller over the model: look, plan, write. Any write may be the last, be refused, or be made without the
//! controller hearing of it.

use etcd_operator_api::{
    Version,
    v1beta2::{BootstrapMember, BootstrapRecord},
};

use super::{
    ModelPod, World,
    etcd::{Refusal, Up},
    kubernetes::NO_CLAIM,
};
use crate::cluster::{
    children::{self, starts},
    fixtures::id_of,
    names,
    observed::{Observed, Start, quorum_of},
    plan::{plan, rollout},
    step::{Outlook, Plan, Reason, Step, Why},
};

/// What one pass of the controller came to.
pub(in super::super) struct Passed {
    pub(in super::super) outlook: Outlook,
    /// How many writes it made or tried.
    pub(in super::super) writes: u8,
}

/// What goes wrong with the writes of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Trouble {
    None,
    /// The controller dies after so many of them.
    Dies(u8),
    /// One of them, counted from zero, does not go as it should.
    Write(u8, Nth),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Nth {
    LosesItsReply,
    IsRefused,
}

/// The step did not go to its end, as far as the controller knows.
struct Hindered;

impl From<Refusal> for Hindered {
    fn from(_: Refusal) -> Self {
        Self
    }
}

/// Every write goes through it.
struct Pen {
    trouble: Trouble,
    written: u8,
    dead: bool,
}

impl Pen {
    /// Makes a write, or not; an error is what the controller hears of it.
    fn write<T>(&mut self, change: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Hindered> {
        self.dead |= matches!(self.trouble, Trouble::Dies(most) if self.written >= most);
        if self.dead {
            return Err(Hindered);
        }
        let number = self.written;
        self.written += 1;
        match self.trouble {
            Trouble::Write(nth, Nth::IsRefused) if nth == number => Err(Hindered),
            Trouble::Write(nth, Nth::LosesItsReply) if nth == number => {
                // What etcd or the API server made of it nobody hears.
                let _ = change();
                Err(Hindered)
            }
            _ => Ok(change()?),
        }
    }

    fn put(&mut self, change: impl FnOnce()) -> Result<(), Hindered> {
        self.write(|| {
            change();
            Ok(())
        })
    }
}

impl World {
    pub(in super::super) fn pass(&mut self, trouble: Trouble) -> Passed {
        let seen = self.observe();
        let mut plan = plan(&self.cluster, &seen);
        let mut pen = Pen {
            trouble,
            written: 0,
            dead: false,
        };
        let taken = self.take(&seen, &plan, &mut pen);
        if taken.is_err() {
            plan = plan.hindered_by(Reason::EtcdError, "it went wrong", false);
        }
        let record = taken.ok().flatten();
        self.publish(&seen, &plan, record, &mut pen);
        Passed {
            outlook: plan.outlook,
            writes: pen.written,
        }
    }

    fn take(
        &mut self,
        seen: &Observed,
        plan: &Plan,
        pen: &mut Pen,
    ) -> Result<Option<BootstrapRecord>, Hindered> {
        let wanted = starts::desired(&self.cluster, seen);
        if wanted != seen.starts {
            pen.put(|| self.kubernetes.starts = wanted)?;
        }
        match plan.step.clone() {
            None => {}
            Some(Step::RecordBootstrap { token, members, .. }) => {
                let members = members
                    .into_iter()
                    .map(|name| BootstrapMember {
                        name,
                        claim_uid: None,
                    })
                    .collect();
                return Ok(Some(BootstrapRecord {
                    token,
                    members,
                    ..BootstrapRecord::default()
                }));
            }
            Some(Step::RecordClaims { members }) => {
                return Ok(Some(BootstrapRecord {
                    token: "t".to_owned(),
                    members,
                    ..BootstrapRecord::default()
                }));
            }
            Some(Step::Prepare { members }) => {
                let version = rollout::newcomer_version(&self.cluster, seen);
                for name in members {
                    if !self.cache.claims.contains_key(&name) {
                        pen.put(|| {
                            let uid = self.unique();
                            if self.kubernetes.claims.contains_key(&name) {
                                return;
                            }
                            self.claim_versions.insert(uid, version);
                            if let Some(waiting) = self.kubernetes.pods.get_mut(&name) {
                                waiting.claim = uid;
                            }
                            self.kubernetes.claims.insert(name.clone(), uid);
                        })?;
                    }
                    pen.put(|| {
                        self.kubernetes.certified.insert(name);
                    })?;
                }
            }
            Some(Step::Start { members, .. }) => {
                for name in members {
                    pen.put(|| self.create_pod(&name))?;
                }
            }
            Some(Step::Await { name }) => {
                let version = rollout::newcomer_version(&self.cluster, seen);
                pen.put(|| self.make_a_place(&name, version))?;
            }
            Some(Step::GiveWord { .. }) => pen.put(|| {})?,
            Some(ref step @ Step::AddVoter { ref name }) if seen.voter_count() == 1 => {
                // The API server itself is asked, not the cache.
                let live = self.kubernetes.pods.get(name);
                let waits = |pod: &ModelPod| pod.newcomer && !pod.ran && pod.claim != NO_CLAIM;
                let known = self.cache.pods.get(name).map(|pod| pod.uid);
                if !live.is_some_and(|pod| waits(pod) && Some(pod.uid) == known) {
                    return Err(Hindered);
                }
                let first = seen.voters().map(|(voter, _)| voter.clone());
                let all: Vec<String> = first.chain([name.clone()]).collect();
                let initial_cluster = names::initial_cluster(&self.cluster, &all);
                let mut starts = seen.starts.clone();
                starts.insert(name.clone(), Start::Join { initial_cluster });
                pen.put(|| self.kubernetes.starts = starts)?;
                pen.write(|| self.ask_etcd(step))?;
                pen.put(|| {})?;
            }
            Some(Step::Renew { members }) => {
                pen.put(|| self.kubernetes.certified.extend(members))?;
            }
            Some(Step::Restart { name, pod_uid, why }) => {
                let step = plan.step.as_ref().map(ToString::to_string);
                let pod = seen.members.get(&name).and_then(|known| known.pod.as_ref());
                let version = rollout::comes_back_as(&self.cluster, pod, why);
                let back = pod.and_then(|pod| rollout::taken_back_from(&self.cluster, seen, pod));
                pen.put(|| {
                    if let Some(claim) = self.kubernetes.claims.get(&name).copied() {
                        self.claim_versions.insert(claim, version);
                        if why == Why::Upgrade {
                            self.taken_back.remove(&claim);
                            self.taken_back.extend(back.map(|back| (claim, back)));
                        }
                    }
                })?;
                pen.put(|| {
                    self.must_keep_quorum_without(&name, &step.unwrap_or_default());
                    self.kubernetes.delete_pod(&name, &pod_uid);
                })?;
            }
            Some(Step::KeepVersion { name, version }) => pen.put(|| {
                if let Some(claim) = self.kubernetes.claims.get(&name).copied() {
                    self.claim_versions.insert(claim, version);
                }
            })?,
            Some(Step::DeletePod { name, pod_uid, .. }) => {
                pen.put(|| self.kubernetes.delete_pod(&name, &pod_uid))?;
            }
            Some(Step::DeleteClaim { name, claim_uid }) => pen.put(|| {
                if self.etcd.members.contains_key(&id_of(&name)) {
                    self.breaks(format!("claim {name} is deleted, but it is a member"));
                }
                self.kubernetes.delete_claim(&name, &claim_uid);
            })?,
            Some(step) => pen.write(|| self.ask_etcd(&step))?,
        }
        Ok(None)
    }

    fn make_a_place(&mut self, name: &str, version: Version) {
        if self.kubernetes.pods.contains_key(name) {
            return;
        }
        let at_version = children::at_version(&self.cluster, version);
        let pod = ModelPod {
            uid: self.unique(),
            version,
            config: children::fingerprint(&at_version, name),
            claim: NO_CLAIM,
            ready: false,
            since: self.minute,
            running: false,
            frozen: false,
            newcomer: true,
            ran: false,
        };
        self.kubernetes.pods.insert(name.to_owned(), pod);
    }

    fn create_pod(&mut self, name: &str) {
        // The kubelet does not start a pod whose claim is not there; neither does the scheduler place it.
        let Some(claim) = self.kubernetes.claims.get(name).copied() else {
            return;
        };
        if self.kubernetes.pods.contains_key(name) {
            return;
        }
        let uid = self.unique();
        let version = self.claim_versions[&claim];
        let at_version = children::at_version(&self.cluster, version);
        let pod = ModelPod {
            uid,
            version,
            config: children::fingerprint(&at_version, name),
            claim,
            ready: false,
            since: self.minute,
            running: false,
            frozen: false,
            newcomer: false,
            ran: false,
        };
        self.kubernetes.pods.insert(name.to_owned(), pod);
    }

    /// Steps that are asked of etcd. What it would let happen and must not is a broken invariant.
    fn ask_etcd(&mut self, step: &Step) -> Result<(), Refusal> {
        let up = self.up();
        let had_quorum = self.etcd.has_quorum(&up);
        match step {
            Step::AddLearner { name } | Step::AddVoter { name } => {
                let learner = matches!(step, Step::AddLearner { .. });
                if self.etcd.removed.contains(&id_of(name)) {
                    self.breaks(format!("{step}: its name has been used"));
                }
                self.etcd.add(&up, name, learner)?;
                // Alone, a voter has to wait for the second, however it is added.
                if self.etcd.voters().len() > 2 && had_quorum {
                    self.must_have_quorum(&up, step);
                }
            }
            Step::Promote { id, .. } => {
                self.etcd.promote(&up, *id)?;
                self.must_have_quorum(&up, step);
            }
            Step::Remove { id, name, .. } => {
                let sound = |world: &Self| {
                    let voters = world.etcd.voters();
                    voters.iter().any(|id| !world.etcd.corrupt.contains(id))
                };
                let before = sound(self);
                self.etcd.remove(&up, *id)?;
                self.must_have_quorum(&up, step);
                if before && !sound(self) {
                    self.breaks(format!("{step}: it was the last whose data are sound"));
                }
                if let Some(pod) = self.kubernetes.pods.get_mut(name) {
                    pod.running = false;
                }
            }
            Step::MoveLeader { to_id, .. } => self.etcd.move_leader(&up, *to_id)?,
            Step::Compact { .. } => self.etcd.compact(&up)?,
            Step::Defragment { name } => {
                self.must_keep_quorum_without(name, &step.to_string());
                self.etcd.defragment(&up, id_of(name))?;
            }
            Step::Disarm { kind, member_id } => {
                if self.etcd.corrupt.contains(member_id)
                    && self.etcd.members.contains_key(member_id)
                {
                    self.breaks(format!("{step}: it is still a member"));
                }
                self.etcd.disarm(&up, *kind, *member_id)?;
            }
            _ => self.breaks(format!("{step}: not in this model")),
        }
        Ok(())
    }

    fn must_have_quorum(&mut self, up: &Up, step: &Step) {
        if !self.etcd.has_quorum(up) {
            self.breaks(format!("{step}: cost the quorum"));
        }
    }

    fn must_keep_quorum_without(&mut self, name: &str, step: &str) {
        let (up, id) = (self.up(), id_of(name));
        let voters = self.etcd.voters();
        let serving = voters.iter().filter(|voter| up.contains(voter));
        let left = serving.filter(|voter| **voter != id).count();
        let serves = voters.contains(&id) && up.contains(&id);
        if serves && voters.len() > 1 && left < quorum_of(voters.len()) {
            self.breaks(format!("{step}: leaves {left} of {} voters", voters.len()));
        }
    }

    /// The status, against the very version that was looked at, and only if it says something new.
    fn publish(
        &mut self,
        seen: &Observed,
        plan: &Plan,
        record: Option<BootstrapRecord>,
        pen: &mut Pen,
    ) {
        let before = &self.cache;
        let mut status = before.clone();
        status.cluster_id = before
            .cluster_id
            .or(seen.quorum.as_ref().map(|quorum| quorum.cluster_id));
        status.was_ready |= plan.outlook == Outlook::Settled;
        let since = before.available_since.unwrap_or(self.minute);
        status.available_since = seen.quorum.is_some().then_some(since);
        status.unwell_since = seen
            .members
            .iter()
            .filter(|(_, member)| member.listed.is_some() && !member.healthy())
            .map(|(name, _)| {
                let known = before.unwell_since.get(name).copied();
                (name.clone(), known.unwrap_or(self.minute))
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
            || status.compacted != before.compacted
            || status.defragmented != before.defragmented
            || status.cluster_id != before.cluster_id
            || status.was_ready != before.was_ready
            || status.available_since != before.available_since
            || status.unwell_since != before.unwell_since;
        if !changed {
            return;
        }
        if record.is_some() {
            status.bootstrap = record;
        }
        let written = pen.put(|| {
            let live = &mut self.kubernetes;
            if live.status_version != status.status_version {
                return;
            }
            live.status_version += 1;
            live.bootstrap = status.bootstrap;
            live.cluster_id = status.cluster_id;
            live.was_ready = status.was_ready;
            live.available_since = status.available_since;
            live.unwell_since = status.unwell_since;
            live.compacted = status.compacted;
            live.defragmented = status.defragmented;
        });
        // The next look sees what has become of it.
        drop(written);
    }
}

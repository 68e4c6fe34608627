//! What happens to a cluster: faults, edits, and a controller whose writes do not all go well.

use super::{
    Data, Start, World,
    etcd::Full,
    pass::{Nth, Trouble},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Event {
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
    /// An option is edited: every member is to be restarted.
    SetQuota(u8),
    /// The cache stops following.
    Stale,
    Fresh,
    /// The controller dies after so many writes of this pass.
    CrashAfter(u8),
    /// This write of the pass is made, and what comes back is an error.
    LoseReply(u8),
    /// This write of the pass is refused: somebody else wrote in between, or etcd is busy.
    Conflict(u8),
    Quiet,
}

/// A pass makes few writes.
const MOST_WRITES: u8 = 8;

impl World {
    /// A fault or an edit, and what goes wrong with the next pass. Data is destroyed only while everybody is well, and never
    /// a majority's: that no operator can mend.
    pub(in super::super) fn happen(&mut self, event: Event) -> Trouble {
        let pods = &mut self.kubernetes.pods;
        match event {
            Event::DeletePod(n) => {
                if let Some(name) = pods.nth_name(n) {
                    pods.remove(&name);
                }
            }
            Event::DeleteClaim(n) => {
                if self.is_whole()
                    && let Some(name) = self.kubernetes.claims.nth_name(n)
                {
                    self.kubernetes.pods.remove(&name);
                    self.kubernetes.claims.remove(&name);
                }
            }
            // Not between a member's first start and the pass that sees it: until then etcd has to be told whom to join, and a
            // disk that is exchanged in that moment goes unnoticed.
            Event::Wipe(n) => {
                let starts = &self.kubernetes.starts;
                if self.is_whole()
                    && let Some(name) = self.kubernetes.pods.nth_name(n)
                    && matches!(starts.get(&name), Some(Start::Resume { .. }))
                    && let Some(pod) = self.kubernetes.pods.get_mut(&name)
                {
                    pod.running = false;
                    let claim = pod.claim;
                    self.volumes.insert(claim, Data::default());
                }
            }
            Event::LoseFounder(n) => {
                if self.kubernetes.cluster_id.is_none()
                    && let Some(name) = self.kubernetes.claims.nth_name(n)
                {
                    self.kubernetes.pods.remove(&name);
                    self.kubernetes.claims.remove(&name);
                    self.founder_lost = true;
                }
            }
            Event::Crash(n) => {
                if let Some(pod) = pods.nth_name(n).and_then(|name| pods.get_mut(&name)) {
                    pod.running = false;
                }
            }
            Event::Freeze(n) => {
                if let Some(pod) = pods.nth_name(n).and_then(|name| pods.get_mut(&name)) {
                    pod.frozen = true;
                }
            }
            Event::Thaw => pods.values_mut().for_each(|pod| pod.frozen = false),
            Event::Corrupt(n) => {
                if self.is_whole() && self.etcd.alarms().is_empty() {
                    let voters = self.etcd.voters();
                    let accused = voters[usize::from(n) % voters.len()];
                    self.etcd.corrupt.insert(accused);
                }
            }
            Event::Fill => {
                if self.has_quorum() && self.etcd.alarms().is_empty() {
                    self.etcd.full = Some(Full {
                        alarm_of: self.etcd.voters()[0],
                        compacted: false,
                        bloated: self.etcd.members.keys().copied().collect(),
                    });
                }
            }
            Event::Resize(n) => {
                self.wish.size = [1, 3, 5, 7][usize::from(n) % 4];
                self.edit();
            }
            Event::SetVersion(n) => {
                self.wish.version = usize::from(n);
                self.edit();
            }
            Event::SetQuota(n) => {
                self.wish.quota = 1 + n % 2;
                self.edit();
            }
            Event::CrashAfter(n) => return Trouble::Dies(n % MOST_WRITES),
            Event::LoseReply(n) => return Trouble::Write(n % MOST_WRITES, Nth::LosesItsReply),
            Event::Conflict(n) => return Trouble::Write(n % MOST_WRITES, Nth::IsRefused),
            Event::Stale | Event::Fresh | Event::Quiet => {}
        }
        Trouble::None
    }

    /// Everybody serves, so that one may lose its data without a majority losing theirs.
    fn is_whole(&self) -> bool {
        let up = self.up();
        self.etcd.voters().len() >= 3
            && self.kubernetes.cluster_id.is_some()
            && self.etcd.members.keys().all(|id| up.contains(id))
    }
}

trait NthName {
    fn nth_name(&self, n: u8) -> Option<String>;
}

impl<T> NthName for std::collections::BTreeMap<String, T> {
    fn nth_name(&self, n: u8) -> Option<String> {
        let which = usize::from(n) % self.len().max(1);
        self.keys().nth(which).cloned()
    }
}

//! What is known of one cluster at one moment: the plan's only input beside the spec. Plain data, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::{
    Minor, Running, ValidatedCluster, Version,
    v1beta2::{BootstrapRecord, Seed, SeedError, SurvivorRecovery},
    validated::Storage,
};
use jiff::Timestamp;

use super::{
    children::InPlace,
    reliance::{Relied, Saved},
};
use crate::etcd::{Alarm, AlarmKind, Answer};

/// One look at a cluster: its durable records, its children, and what etcd itself says.
///
/// The children are read before etcd is asked. A child of a member that etcd does not list therefore belongs to a member
/// that has been removed, never to one that is about to be added: additions reach etcd first. The one exception says so itself: a
/// pod that `awaits`, whose etcd has never been started.
#[derive(Clone, Debug)]
pub struct Observed {
    pub now: Timestamp,
    /// Fresh randomness for the name of a new member.
    pub seed: u64,
    /// The durable record of the one bootstrap.
    pub bootstrap: Option<BootstrapRecord>,
    /// etcd's cluster ID as recorded in the status: set once, when a quorum first answered.
    pub cluster_id: Option<u64>,
    /// Every member that has a pod, a claim, or a line in etcd's list, by name.
    pub members: BTreeMap<String, Member>,
    /// What a quorum says; absent when none answered.
    pub quorum: Option<Quorum>,
    /// Members that a restore or a recovery has set aside: no pod of theirs runs, and their claims are kept untouched.
    pub aside: BTreeMap<String, Member>,
    /// The snapshot that the resource was made to start from, as its annotation has it.
    pub planted: Option<Result<Seed, SeedError>>,
    /// Somebody asks for a recovery from the best survivor, of the cluster of this ID.
    pub recovery_request: Option<String>,
    /// The durable record of such a recovery.
    pub recovery: Option<SurvivorRecovery>,
    /// CoreOS's operator made this cluster, or is in charge where it is.
    pub coreos: Option<Coreos>,
    /// Names of children that are taken by objects which are not this cluster's.
    pub foreign: Vec<String>,
    /// Claims that a former cluster of this name was told to leave behind.
    pub retained: Vec<String>,
    /// Somebody has said that this cluster is to start empty beside them.
    pub start_afresh: bool,
    /// How each member's etcd is told to start, as stored in the cluster's ConfigMap.
    pub starts: BTreeMap<String, Start>,
    /// Since when a quorum has been serving, by the last published status; absent while none was.
    pub available_since: Option<Timestamp>,
    /// When old revisions were last dropped to make room, by the last published status.
    pub compacted: Option<Timestamp>,
    /// The oldest version that ran when members last answered, as recorded in the status.
    pub last_ran: Option<Version>,
    /// The newest minor that can read every member's log, as recorded in the status.
    pub log_readable_by: Option<Minor>,
    /// Members answer, but let nobody in whom they do not know: authentication is on.
    pub locked_out: bool,
    /// The cluster has been whole before: what is missing now was lost, not still to come.
    pub was_ready: bool,
    /// `None` where the spec asks the operator for no certificates.
    pub certificates: Option<Certificates>,
    /// Somebody asks for new authorities: a new word in the annotation means a new wish.
    pub rotation_request: Option<String>,
    /// The EtcdBackup it relies on.
    pub relied: Relied,
    /// Its newest good snapshot; looked for while no quorum serves.
    pub saved: Option<Saved>,
}

/// What is known of CoreOS's operator and what it left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coreos {
    /// Who holds its lock, while that is fresh.
    pub in_charge: Option<String>,
    /// What of its pods is not as it makes them, or not as the spec says.
    pub misfits: Vec<String>,
}

/// What is known of the certificates we issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The TLS Secrets each member's pod mounts; a member without an entry lacks some of them.
    pub members: BTreeMap<String, MemberCertificates>,
    pub authorities: Vec<AuthorityFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberCertificates {
    /// When the first of them is to be renewed.
    pub due: Timestamp,
    /// A fingerprint of what etcd keeps from its start on: who signed, and whom it trusts.
    pub loads: String,
}

/// One authority, and how far the change to the next has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityFacts {
    pub secret: String,
    pub stage: Stage,
    /// When the next stage may begin, by the clock.
    pub due: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One authority; nothing under way.
    Settled,
    /// The next is to be trusted everywhere, and signs nothing yet.
    Announced,
    /// The next signs; the old one is still trusted.
    Switched,
}

/// A linearizable view of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quorum {
    pub cluster_id: u64,
    pub leader_id: u64,
    /// Members in etcd's list whose peer URL no member of ours can have: somebody added them by hand.
    pub strangers: Vec<u64>,
}

/// One member, from every side.
#[derive(Clone, Debug, Default)]
pub struct Member {
    pub pod: Option<PodFacts>,
    pub claim: Option<ClaimFacts>,
    /// Its line in the linearizable member list.
    pub listed: Option<Listed>,
    /// What it answered when asked.
    pub answer: Option<Answer>,
    /// Since when it has been unwell, by the last published status; absent while it was well.
    pub unwell_since: Option<Timestamp>,
    /// When it was last defragmented, by the last published status.
    pub defragmented: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: u64,
    pub learner: bool,
    /// A member that has never started has published no client addresses.
    pub started: bool,
}

#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // Each is one independent fact about a pod.
pub struct PodFacts {
    pub uid: String,
    pub node: Option<String>,
    pub ip: Option<String>,
    pub ready: bool,
    /// Since when `ready` has its value; the pod's creation where Kubernetes has not said.
    pub since: Timestamp,
    pub terminating: bool,
    /// Its process runs and has not yet passed its startup probe: it may be opening a large database.
    pub starting: bool,
    /// Its etcd has been started in it, however that ended.
    pub ran: bool,
    /// Ended for good: the container will not be started again in this pod.
    pub finished: bool,
    /// The version label it was made with.
    pub version: Option<Version>,
    /// Fingerprint of the configuration it was made with.
    pub config: String,
    /// What was last put on it in place.
    pub in_place: InPlace,
    /// Its node has no room for the resources it was last given.
    pub does_not_fit: bool,
    /// Fingerprint of the authorities it was started with; absent where it says nothing.
    pub loads: Option<String>,
    pub restarts: i32,
    /// Its data are in its node's scratch space, and go with it.
    pub scratch: bool,
    /// CoreOS's operator made it: its container is started once, and again only with another image.
    pub adopted: bool,
    /// It was started to go on as the only member, whatever others there were.
    pub forced: bool,
    /// What it waits for, where it was made before its member was added and its etcd has not been started since.
    pub awaits: Option<Awaits>,
    /// Why it is not running, in Kubernetes' words: `CrashLoopBackOff: …`, `Unschedulable: …`.
    pub trouble: Option<String>,
}

/// What the pod of a member that is yet to be added waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// A node, its volumes, its image.
    Place,
    /// Only how to start, which it is told when it is added.
    Word,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    pub uid: String,
    pub terminating: bool,
    /// How much it asks for, in bytes.
    pub requested: Option<u64>,
    /// How large the volume behind it is, in bytes; unknown until it is bound.
    pub capacity: Option<u64>,
    /// It has no owner, and outlives the resource.
    pub retained: bool,
    /// The version the member on it is to run: it changes only when the member is deliberately restarted.
    pub version: Option<Version>,
    /// The version it was last taken back from, which nobody had seen it serve as.
    pub taken_back_from: Option<Version>,
    /// `Lost`: the volume behind it is gone.
    pub lost: bool,
}

impl PodFacts {
    /// Nobody has the image it asks for, or gives it away.
    pub fn lacks_its_image(&self) -> bool {
        let words = ["ErrImage", "ImagePullBackOff", "InvalidImageName"];
        let trouble = self.trouble.as_deref().unwrap_or_default();
        !self.ran && words.iter().any(|word| trouble.starts_with(word))
    }
}

impl ClaimFacts {
    /// A pod can be started on it.
    pub fn usable(&self) -> bool {
        !self.lost && !self.terminating
    }
}

/// How a member's etcd starts on an *empty* data directory; on data it finds, etcd ignores all of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The one bootstrap: all founders at once.
    Bootstrap { initial_cluster: String },
    /// Added to a running cluster and never started yet.
    Join { initial_cluster: String },
    /// Has started before: its data must be there. It is told of itself alone, so that on an empty directory it finds
    /// nobody to join and refuses to start, instead of voting without its log.
    Resume { initial_cluster: String },
}

impl Start {
    pub fn initial_cluster(&self) -> &str {
        match self {
            Self::Bootstrap { initial_cluster }
            | Self::Join { initial_cluster }
            | Self::Resume { initial_cluster } => initial_cluster,
        }
    }

    /// etcd's `initial-cluster-state`.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Bootstrap { .. } => "new",
            Self::Join { .. } | Self::Resume { .. } => "existing",
        }
    }
}

impl Member {
    /// Serves linearizable reads, so it is in touch with a quorum; and it is the member etcd lists, not somebody else who
    /// answers at its address.
    pub fn healthy(&self) -> bool {
        let itself = |answer: &Answer| {
            self.listed
                .as_ref()
                .is_none_or(|listed| listed.id == answer.member_id)
        };
        self.answer.as_ref().is_some_and(|answer| {
            itself(answer)
                && (answer.membership.is_some() || (answer.learner && answer.leader_id != 0))
        })
    }

    pub fn is_voter(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| !listed.learner)
    }

    pub fn is_learner(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| listed.learner)
    }

    /// Its pod is on its way out, or about to be started with another image: it answers still, and soon will not.
    pub fn leaving(&self) -> bool {
        let other_image = |pod: &PodFacts| {
            let answered = self.answer.as_ref();
            let runs = answered.and_then(|answer| answer.version.parse::<Version>().ok());
            pod.adopted && pod.version.is_some() && runs.is_some() && runs != pod.version
        };
        self.pod
            .as_ref()
            .is_some_and(|pod| pod.terminating || other_image(pod))
    }

    pub fn pod_ready(&self) -> bool {
        let ready = self.pod.as_ref().is_some_and(|pod| pod.ready);
        ready && !self.leaving()
    }

    /// Its data go with its pod.
    pub fn on_scratch(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.scratch)
    }
}

impl Observed {
    /// Whether the Secrets a member's pod mounts are there, as far as they are ours to make.
    pub fn certified(&self, member: &str) -> bool {
        self.certificates
            .as_ref()
            .is_none_or(|known| known.members.contains_key(member))
    }

    /// CoreOS's operator made the cluster or is in charge of it, and this one has not taken it over: nothing of it is ours to touch.
    pub fn is_anothers(&self) -> bool {
        let coreos = self.coreos.as_ref();
        coreos.is_some_and(|coreos| coreos.in_charge.is_some() || self.bootstrap.is_none())
    }

    pub fn voters(&self) -> impl Iterator<Item = (&String, &Member)> {
        self.members.iter().filter(|(_, member)| member.is_voter())
    }

    pub fn learner(&self) -> Option<(&String, &Member)> {
        self.members.iter().find(|(_, member)| member.is_learner())
    }

    /// The number of voters etcd counts, strangers included.
    pub fn voter_count(&self) -> usize {
        self.voters().count()
            + self
                .quorum
                .as_ref()
                .map_or(0, |quorum| quorum.strangers.len())
    }

    /// The versions that answer now.
    pub fn running(&self) -> Option<Running> {
        Running::among(
            self.members
                .values()
                .filter_map(|member| member.answer.as_ref()?.version.parse().ok()),
        )
    }

    /// Every alarm that stands, by the word of members that are in touch with a quorum.
    pub fn alarms(&self) -> BTreeSet<Alarm> {
        self.voters()
            .filter(|(_, member)| member.healthy())
            .filter_map(|(_, member)| member.answer.as_ref())
            .flat_map(|answer| answer.alarms.iter().copied())
            .collect()
    }

    /// Whether etcd has raised an alarm about this member's data.
    pub fn is_corrupt(&self, member: &Member) -> bool {
        let corrupt = |id| {
            self.alarms()
                .iter()
                .any(|alarm| alarm.kind == AlarmKind::Corrupt && alarm.member_id == id)
        };
        member
            .listed
            .as_ref()
            .is_some_and(|listed| corrupt(listed.id))
    }

    /// Whether etcd has a member of this ID, ours or a stranger.
    pub fn is_listed(&self, id: u64) -> bool {
        let strange = self
            .quorum
            .iter()
            .any(|quorum| quorum.strangers.contains(&id));
        strange
            || self
                .members
                .values()
                .any(|member| member.listed.as_ref().is_some_and(|listed| listed.id == id))
    }

    pub fn leader(&self) -> Option<&String> {
        let leader_id = self.quorum.as_ref()?.leader_id;
        self.members
            .iter()
            .find(|(_, member)| {
                member
                    .listed
                    .as_ref()
                    .is_some_and(|listed| listed.id == leader_id)
            })
            .map(|(name, _)| name)
    }
}

/// Members live on their nodes' scratch space: a pod that goes takes its data along.
pub fn is_ephemeral(cluster: &ValidatedCluster) -> bool {
    matches!(cluster.storage, Storage::Ephemeral { .. })
}

/// A voter whose data are in scratch space, where the spec asks for claims: it is to be followed by one on a claim.
pub fn is_to_move(cluster: &ValidatedCluster, member: &Member) -> bool {
    !is_ephemeral(cluster) && member.is_voter() && member.on_scratch()
}

/// How many of `voters` must agree.
pub fn quorum_of(voters: usize) -> usize {
    voters / 2 + 1
}

//! The steps a plan can take, and the words for why it takes one, waits, or refuses. Plain data, no I/O.

use std::{fmt, time::Duration};

use etcd_operator_api::{
    Minor, Version,
    v1beta2::{BootstrapMember, Seed, SurvivorRecovery},
};

use super::observed::{AuthorityFacts, Stage};
use crate::etcd::AlarmKind;

/// What to do next. One at a time; the pipeline runs again after each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write down who the founders are, before anything of them exists.
    RecordBootstrap {
        token: String,
        members: Vec<String>,
        /// The snapshot they start from, where they do not start empty.
        seed: Option<Box<Seed>>,
    },
    /// Write down which claim each founder has: a founder is started on that claim and on no other.
    RecordClaims { members: Vec<BootstrapMember> },
    /// Write down how far the recovery from one survivor has come, before the next part of it is done.
    RecordRecovery { recovery: Box<SurvivorRecovery> },
    /// The recovery is long over and nobody asks for it any more: another may be asked for.
    ForgetRecovery,
    /// The cluster is whole: those it was set aside for are members like any other that etcd does not list.
    ReleaseFormer,
    /// Make the pods and claims of these members ours, as they are.
    Adopt { members: Vec<String> },
    /// Make claims and TLS Secrets for these members.
    Prepare { members: Vec<String> },
    /// Issue these members' certificates anew; etcd picks them up at the next handshake.
    Renew { members: Vec<String> },
    /// Take these authorities one stage on, on the way to the next.
    RotateAuthorities { authorities: Vec<AuthorityFacts> },
    /// Create the pods of these members. Nothing is taken away, so it may be many at once.
    Start { members: Vec<String>, why: Why },
    /// Create the pod of a member that is yet to be added: it waits in its place for the word to start.
    Await { name: String },
    /// Tell the kubelet that such a pod may start now.
    GiveWord { name: String, pod_uid: String },
    /// Add a member to etcd as a learner.
    AddLearner { name: String },
    /// Add a member to an etcd that knows no learners: it counts as a voter at once.
    AddVoter { name: String },
    /// Make a learner a voter.
    Promote { id: u64, name: String },
    /// Take a member out of etcd.
    Remove { id: u64, name: String, why: Why },
    /// Hand leadership to another member, before the leader is stopped.
    MoveLeader {
        from: String,
        to: String,
        to_id: u64,
    },
    /// Ask an EtcdBackup for a run, before the step that the word names.
    RequestBackup { backup: String, word: String },
    /// Tell etcd to make its data readable for the minor below.
    EnableDowngrade { to: Minor },
    /// Tell etcd that no downgrade is wanted any more.
    CancelDowngrade,
    /// The same, at the end of a feigned one: by now every member's log can be read by this minor.
    LogIsReadable { by: Minor },
    /// What was written down of everybody's logs is about to be true no more.
    ForgetReadableLog,
    /// Drop every revision older than this one.
    Compact { revision: i64 },
    /// Give a member's free space back to the disk; it serves nobody meanwhile.
    Defragment { name: String },
    /// Tell etcd that what it raised an alarm about is over.
    Disarm { kind: AlarmKind, member_id: u64 },
    /// Ask for larger volumes; members go on meanwhile.
    GrowClaims { members: Vec<String>, size: String },
    /// Take the owner of these claims away, so that they outlive the resource, or give it back.
    Reclaim { members: Vec<String>, retain: bool },
    /// Change labels, annotations or resources of a running pod; where Kubernetes cannot, restart it.
    Adjust { name: String, pod_uid: String },
    /// Give a pod the image of another version: its container starts anew beside the data in the pod.
    SwapImage { name: String, pod_uid: String },
    /// Evict a pod, or delete one that serves nobody, so that it is made anew on its claim.
    Restart {
        name: String,
        pod_uid: String,
        why: Why,
    },
    /// Write down that a member stays what it is, where its claim says that it is to become another version.
    KeepVersion { name: String, version: Version },
    /// Delete the pod of a member that etcd no longer has, or that will never run again.
    DeletePod {
        name: String,
        pod_uid: String,
        why: Why,
    },
    /// Delete the claim of a member that etcd no longer has.
    DeleteClaim { name: String, claim_uid: String },
}

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Bootstrap,
    PodGone,
    Joining,
    PodFinished,
    DataLost,
    Unreachable,
    LearnerStuck,
    NotAMember,
    ScaleDown,
    Upgrade,
    Configuration,
    Corrupt,
    Authority,
    SetAside,
    ToGoOnAlone,
    NoLongerAlone,
}

impl Why {
    pub fn words(self) -> &'static str {
        match self {
            Self::Bootstrap => "the cluster is being created",
            Self::PodGone => "its pod was gone",
            Self::Joining => "it joins the cluster",
            Self::PodFinished => "its pod has ended for good",
            Self::DataLost => "its data is lost",
            Self::Unreachable => "it has been unreachable for too long",
            Self::LearnerStuck => "it did not catch up",
            Self::NotAMember => "it is no longer a member",
            Self::ScaleDown => "the cluster is to be smaller",
            Self::Upgrade => "it is to run another version",
            Self::Configuration => "its configuration has changed",
            Self::Authority => "its certificate authorities have changed",
            Self::Corrupt => "its data differ from the others'",
            Self::SetAside => "it is set aside, and its volume is kept",
            Self::ToGoOnAlone => "it is to go on as the only member",
            Self::NoLongerAlone => "it is the only member now, and others may join",
        }
    }
}

impl Step {
    /// CamelCase, stable: the Event's reason and the metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::RecordBootstrap { .. } => "BootstrapRecorded",
            Self::RecordClaims { .. } => "ClaimsRecorded",
            Self::RecordRecovery { .. } => "RecoveryRecorded",
            Self::ForgetRecovery => "RecoveryForgotten",
            Self::ReleaseFormer => "FormerReleased",
            Self::Adopt { .. } => "MemberTakenOver",
            Self::SwapImage { .. } => "ImageChanged",
            Self::Prepare { .. } => "MemberPrepared",
            Self::Renew { .. } => "CertificatesRenewed",
            Self::RotateAuthorities { .. } => "AuthoritiesRotated",
            Self::Start { .. } => "MemberStarted",
            Self::Await { .. } => "MemberAwaited",
            Self::GiveWord { .. } => "MemberMayStart",
            Self::AddLearner { .. } => "LearnerAdded",
            Self::AddVoter { .. } => "MemberAdded",
            Self::Promote { .. } => "LearnerPromoted",
            Self::Remove { .. } => "MemberRemoved",
            Self::MoveLeader { .. } => "LeaderMoved",
            Self::RequestBackup { .. } => "BackupRequested",
            Self::EnableDowngrade { .. } => "DowngradeEnabled",
            Self::CancelDowngrade => "DowngradeCancelled",
            Self::LogIsReadable { .. } => "LogMadeReadable",
            Self::ForgetReadableLog => "LogForgotten",
            Self::Compact { .. } => "Compacted",
            Self::Defragment { .. } => "Defragmented",
            Self::Disarm { .. } => "AlarmDisarmed",
            Self::GrowClaims { .. } => "ClaimGrown",
            Self::Reclaim { .. } => "ReclaimChanged",
            Self::Adjust { .. } => "MemberAdjusted",
            Self::Restart { .. } => "MemberRestarted",
            Self::KeepVersion { .. } => "VersionKept",
            Self::DeletePod { .. } => "PodDeleted",
            Self::DeleteClaim { .. } => "ClaimDeleted",
        }
    }

    /// What `kubectl describe` tells of it: a line per member, so that none is folded into another's. Bookkeeping stays out.
    pub fn story(&self) -> Vec<Telling> {
        let about = |member: &String, note: String| Telling {
            member: Some(member.clone()),
            note,
        };
        let of_cluster = |note: String| vec![Telling { member: None, note }];
        match self {
            Self::RecordBootstrap { .. }
            | Self::RecordClaims { .. }
            | Self::ForgetRecovery
            | Self::ReleaseFormer
            | Self::Prepare { .. }
            | Self::KeepVersion { .. }
            | Self::ForgetReadableLog
            | Self::GiveWord { .. } => Vec::new(),
            Self::RecordRecovery { recovery } => {
                vec![about(&recovery.survivor, recovery_words(recovery))]
            }
            Self::Adopt { members } => {
                let told = |name| about(name, format!("took over {name} from CoreOS's operator"));
                members.iter().map(told).collect()
            }
            Self::SwapImage { name, .. } => {
                vec![about(name, format!("gave {name} another image in place"))]
            }
            Self::Await { name } => {
                vec![about(
                    name,
                    format!("made a place for {name}, before it is added"),
                )]
            }
            Self::Renew { members } => members
                .iter()
                .map(|name| about(name, format!("renewed the certificates of {name}")))
                .collect(),
            Self::RotateAuthorities { authorities } => authorities
                .iter()
                .map(|authority| Telling {
                    member: None,
                    note: format!("{}: {}", authority.secret, next_stage(authority.stage)),
                })
                .collect(),
            Self::Start { members, why } => members
                .iter()
                .map(|name| about(name, format!("started {name}: {}", why.words())))
                .collect(),
            Self::AddLearner { name } => vec![about(name, format!("added {name} as a learner"))],
            Self::AddVoter { name } => vec![about(name, format!("added {name}"))],
            Self::Promote { name, .. } => vec![about(name, format!("promoted {name} to a voter"))],
            Self::Remove { name, why, .. } => {
                vec![about(
                    name,
                    format!("removed {name} from the cluster: {}", why.words()),
                )]
            }
            Self::MoveLeader { from, to, .. } => {
                vec![about(to, format!("moved leadership from {from} to {to}"))]
            }
            Self::RequestBackup { backup, word } => of_cluster(format!(
                "asked EtcdBackup {backup} for a backup before {word}"
            )),
            Self::EnableDowngrade { to } => of_cluster(format!("etcd prepares its data for {to}")),
            Self::CancelDowngrade => of_cluster("cancelled the downgrade".to_owned()),
            Self::LogIsReadable { by } => {
                of_cluster(format!("every member's log can be read by {by}"))
            }
            Self::Compact { revision } => of_cluster(format!(
                "the quota is used up: dropped revisions older than {revision}"
            )),
            Self::Defragment { name } => {
                vec![about(name, format!("gave back the free space of {name}"))]
            }
            Self::Disarm { kind, .. } => of_cluster(format!("disarmed the alarm {}", kind.word())),
            Self::GrowClaims { members, size } => members
                .iter()
                .map(|name| about(name, format!("asked for {size} for claim {name}")))
                .collect(),
            Self::Reclaim { members, retain } => {
                let fate = if *retain { "outlives" } else { "goes with" };
                let told = |name| about(name, format!("claim {name} {fate} the cluster"));
                members.iter().map(told).collect()
            }
            Self::Adjust { name, .. } => {
                vec![about(name, format!("changed the pod of {name} in place"))]
            }
            Self::Restart { name, why, .. } => {
                vec![about(name, format!("restarted {name}: {}", why.words()))]
            }
            Self::DeletePod { name, why, .. } => {
                vec![about(name, format!("deleted pod {name}: {}", why.words()))]
            }
            Self::DeleteClaim { name, .. } => {
                vec![about(
                    name,
                    format!("deleted claim {name}: it is no longer a member"),
                )]
            }
        }
    }
}

/// How far a recovery has come, in words.
fn recovery_words(recovery: &SurvivorRecovery) -> String {
    let name = &recovery.survivor;
    if recovery.finished.is_some() {
        format!("the recovery from {name} is over")
    } else if recovery.alone.is_some() {
        format!("{name} is the only member now")
    } else {
        format!("recover the cluster from {name}, the best that is left")
    }
}

/// What comes after a stage, in words.
fn next_stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Settled => "a new authority is made, and trusted beside the old",
        Stage::Announced => "the new authority signs, the old is still trusted",
        Stage::Switched => "the old authority is trusted no more",
    }
}

/// One line of a cluster's story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
    /// The member it is about.
    pub member: Option<String>,
    pub note: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordBootstrap { members, .. } => {
                write!(f, "record the founders {}", members.join(", "))
            }
            Self::RecordRecovery { recovery } => f.write_str(&recovery_words(recovery)),
            Self::ForgetRecovery => write!(f, "forget the recovery that is over"),
            Self::ReleaseFormer => write!(f, "let the volumes of former members go"),
            Self::RecordClaims { members } => {
                let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
                write!(f, "record the claims of {}", names.join(", "))
            }
            Self::Adopt { members } => {
                write!(f, "take over {} from CoreOS's operator", members.join(", "))
            }
            Self::SwapImage { name, .. } => write!(f, "change the image of {name} in place"),
            Self::Prepare { members } => write!(f, "prepare {}", members.join(", ")),
            Self::Renew { members } => {
                write!(f, "renew the certificates of {}", members.join(", "))
            }
            Self::RotateAuthorities { authorities } => {
                let all: Vec<String> = authorities
                    .iter()
                    .map(|one| format!("{}: {}", one.secret, next_stage(one.stage)))
                    .collect();
                f.write_str(&all.join(", "))
            }
            Self::Start { members, why } => {
                write!(f, "start {}: {}", members.join(", "), why.words())
            }
            Self::Await { name } => write!(f, "make a place for {name}"),
            Self::GiveWord { name, .. } => write!(f, "let {name} start"),
            Self::AddLearner { name } => write!(f, "add {name} as a learner"),
            Self::AddVoter { name } => write!(f, "add {name} as a voter"),
            Self::Promote { name, .. } => write!(f, "promote {name} to a voter"),
            Self::Remove { name, why, .. } => {
                write!(f, "remove {name} from the cluster: {}", why.words())
            }
            Self::MoveLeader { from, to, .. } => write!(f, "move leadership from {from} to {to}"),
            Self::RequestBackup { backup, .. } => write!(f, "ask EtcdBackup {backup} for a run"),
            Self::EnableDowngrade { to } => write!(f, "prepare etcd for a downgrade to {to}"),
            Self::CancelDowngrade => write!(f, "cancel the downgrade"),
            Self::LogIsReadable { by } => write!(f, "go on to {by}: every log is readable"),
            Self::Compact { revision } => write!(f, "compact to revision {revision}"),
            Self::Defragment { name } => write!(f, "defragment {name}"),
            Self::Disarm { kind, member_id } => {
                write!(f, "disarm the alarm {} of {member_id:x}", kind.word())
            }
            Self::GrowClaims { members, size } => {
                write!(f, "grow the claims of {} to {size}", members.join(", "))
            }
            Self::Reclaim { members, retain } => {
                let fate = if *retain { "outlive" } else { "go with" };
                write!(
                    f,
                    "let the claims of {} {fate} the cluster",
                    members.join(", ")
                )
            }
            Self::Adjust { name, .. } => write!(f, "change the pod of {name} in place"),
            Self::Restart { name, why, .. } => write!(f, "restart {name}: {}", why.words()),
            Self::KeepVersion { name, version } => write!(f, "keep {name} on {version}"),
            Self::ForgetReadableLog => write!(f, "forget that every log is readable"),
            Self::DeletePod { name, why, .. } => write!(f, "delete pod {name}: {}", why.words()),
            Self::DeleteClaim { name, .. } => {
                write!(f, "delete claim {name}: it is no longer a member")
            }
        }
    }
}

/// How the cluster stands, seen from its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// What the spec asks for is what runs.
    Settled,
    /// On the way there, without anybody's help.
    Working {
        activity: Activity,
        reason: Reason,
        message: String,
    },
    /// A person must act; nothing is done until then.
    Stalled { reason: Reason, message: String },
}

/// What kind of work is under way: each has its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Creating,
    Scaling,
    Upgrading,
    Configuring,
    Recovering,
}

macro_rules! reasons {
    ($($name:ident,)*) => {
        /// Why the cluster is not settled: the condition's reason, CamelCase and stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason { $($name,)* }

        impl Reason {
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

reasons! {
    Bootstrapping,
    WaitingForMembers,
    WaitingForOldChildren,
    NameTaken,
    ClaimsRetained,
    InvalidSpec,
    Paused,
    MembersMissing,
    QuorumLost,
    RecoveringFromSurvivor,
    SurvivorLost,
    SettingAside,
    FounderLost,
    SeedInvalid,
    AuthEnabled,
    DataCorrupt,
    NoSpace,
    DifferentCluster,
    UnknownMember,
    OtherOperator,
    NothingToTakeOver,
    CannotTakeOver,
    TakingOver,
    MovingStorage,
    WouldLoseData,
    MemberUnhealthy,
    ReplacingMember,
    LearnerCatchingUp,
    ScalingUp,
    ScalingDown,
    RollingVersion,
    RollingConfiguration,
    Downgrading,
    BackingUp,
    BackupFailed,
    IllegalVersionChange,
    CleaningUp,
    GrowingStorage,
    VolumesCannotGrow,
    ChangingReclaim,
    SecretUnusable,
    RenewingCertificates,
    RotatingAuthorities,
    KubernetesError,
    CertificateError,
    EtcdError,
    EtcdNotReadyYet,
    NobodyToAsk,
    BudgetUsedUp,
    OutOfDate,
    NotLeader,
}

impl Reason {
    /// A step was tried and failed, as opposed to: is under way, or waits its turn.
    pub(crate) const fn is_a_failure(self) -> bool {
        matches!(
            self,
            Self::KubernetesError | Self::CertificateError | Self::EtcdError | Self::NobodyToAsk
        )
    }
}

/// The whole answer: at most one step, how things stand, and when to look again if nothing happens before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub step: Option<Step>,
    pub outlook: Outlook,
    pub look_again: Duration,
}

/// When nothing is going on.
const AT_REST: Duration = Duration::from_secs(30);
/// When somebody else is to act.
const SOON: Duration = Duration::from_secs(5);
/// When something is: most changes wake us anyway, but what happens inside etcd does not.
const AT_WORK: Duration = Duration::from_secs(1);

impl Plan {
    pub fn settled() -> Self {
        Self {
            step: None,
            outlook: Outlook::Settled,
            look_again: AT_REST,
        }
    }

    /// Something small is done while all is as it should be, and stays so.
    pub fn beside(step: Step) -> Self {
        Self {
            step: Some(step),
            look_again: AT_WORK,
            ..Self::settled()
        }
    }

    /// What it waits for may be over in moments, and nothing would tell.
    #[must_use]
    pub fn soon(self) -> Self {
        Self {
            look_again: SOON,
            ..self
        }
    }

    pub fn stalled(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            step: None,
            outlook: Outlook::Stalled {
                reason,
                message: message.into(),
            },
            look_again: AT_REST,
        }
    }

    /// The step was tried and did not happen: the outlook says why, and the rest of the plan stands.
    pub(crate) fn hindered_by(self, reason: Reason, message: &str, needs_a_person: bool) -> Self {
        if needs_a_person {
            return Self::stalled(reason, message);
        }
        let activity = match self.outlook {
            Outlook::Working { activity, .. } => activity,
            _ => Activity::Configuring,
        };
        Self {
            step: None,
            ..Self::waiting(activity, reason, message)
        }
    }

    /// All is as it should be, and nothing is to be done.
    pub(crate) fn is_rest(&self) -> bool {
        self.step.is_none() && self.outlook == Outlook::Settled
    }

    /// Names we need are taken: then not even the fixed children are touched.
    pub(crate) fn is_waiting_for_names(&self) -> bool {
        matches!(
            self.outlook,
            Outlook::Working {
                reason: Reason::WaitingForOldChildren,
                ..
            }
        )
    }

    pub fn waiting(activity: Activity, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            step: None,
            outlook: Outlook::Working {
                activity,
                reason,
                message: message.into(),
            },
            look_again: AT_WORK,
        }
    }

    pub fn step(
        step: Step,
        activity: Activity,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            step: Some(step),
            ..Self::waiting(activity, reason, message)
        }
    }
}

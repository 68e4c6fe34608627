//! What a restore does next. Pure: no I/O, no clock.
//!
//! Fetch and check, with nothing touched; see that it fits; then make the new cluster, or give the old one a new beginning. What is
//! decided from is durable: the status, the Job, and what stands on the EtcdCluster itself, so a crash anywhere goes on.

use std::time::Duration;

use etcd_operator_api::{
    Policy, Recovery, ValidatedCluster, ValidatedRestore, Version,
    orders::{Facts, FailureReason, Report, Store},
    quantity::Amount,
    recovery_refused,
    v1beta2::{
        EtcdCluster, EtcdClusterSpec, EtcdRestoreStatus, RestorePhase, SEED, Seed,
        condition::{READY, STALLED},
    },
    validated::Target,
};
use jiff::{SignedDuration, Timestamp};

use super::fits;
use crate::cluster::{
    observed::is_ephemeral,
    plan::before_risk::{self, First},
    reliance::Relied,
};

/// One look at a restore.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    /// What was published last.
    pub(crate) status: EtcdRestoreStatus,
    /// The store and the snapshot in it, or why there is none.
    pub(crate) source: Result<(Store, String), Hindrance>,
    pub(crate) job: Option<JobFacts>,
    /// The EtcdCluster of the target's name.
    pub(crate) cluster: Option<EtcdCluster>,
    /// The EtcdBackup that it relies on.
    pub(crate) relied: Relied,
    /// Somebody deletes the restore.
    pub(crate) deleted: bool,
    /// Our finalizer is on it.
    pub(crate) held: bool,
}

/// The Job that fetches and checks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobFacts {
    pub(crate) uid: String,
    pub(crate) terminating: bool,
    /// When it ended.
    pub(crate) ended: Option<Timestamp>,
    pub(crate) report: Option<Report>,
    /// Why its pod does not run, or how it ended without a report.
    pub(crate) trouble: Option<String>,
}

/// A word and a sentence on what is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hindrance {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Fetch and check the snapshot.
    Inspect { store: Store, snapshot: String },
    /// The Job has said what it had to say, or is tried again.
    DeleteJob { uid: String },
    /// Make the EtcdCluster.
    Create { cluster: Box<EtcdCluster> },
    /// Keep the restore from going before its cluster was put back.
    Hold,
    /// Let it go.
    LetGo,
    /// Ask the EtcdBackup that the EtcdCluster relies on for a run, before its data are replaced.
    RequestBackup { backup: String, word: String },
    /// Give the EtcdCluster a new beginning from the snapshot; its old members are set aside.
    Replace { seed: Box<Seed> },
    /// Let the old members be the cluster again.
    GoBack,
}

/// How a restore stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    Working(Hindrance),
    /// A person must act; it is looked at again.
    Stalled(Hindrance),
    /// It was given up.
    Failed(Hindrance),
    Succeeded,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) step: Option<Step>,
    pub(crate) phase: Option<RestorePhase>,
    pub(crate) outlook: Outlook,
    /// What was learnt of the snapshot.
    pub(crate) facts: Option<Facts>,
    pub(crate) look_again: Option<Duration>,
}

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(10);
/// How long after a failure the same is tried again.
const AGAIN: SignedDuration = SignedDuration::from_secs(15);

impl Plan {
    fn working(phase: RestorePhase, step: Option<Step>, message: impl Into<String>) -> Self {
        let reason = match phase {
            RestorePhase::Fetching => "Fetching",
            RestorePhase::Checking => "Checking",
            RestorePhase::Restoring => "Restoring",
            _ => "Starting",
        };
        Self {
            step,
            phase: Some(phase),
            outlook: Outlook::Working(hindrance(reason, message)),
            facts: None,
            look_again: Some(SOON),
        }
    }

    pub(crate) fn stalled(phase: Option<RestorePhase>, why: Hindrance) -> Self {
        Self {
            step: None,
            phase,
            outlook: Outlook::Stalled(why),
            facts: None,
            look_again: Some(LATER),
        }
    }

    fn failed(why: Hindrance) -> Self {
        Self {
            step: None,
            phase: Some(RestorePhase::Failed),
            outlook: Outlook::Failed(why),
            facts: None,
            look_again: Some(SOON),
        }
    }
}

pub(crate) fn hindrance(reason: &'static str, message: impl Into<String>) -> Hindrance {
    Hindrance {
        reason,
        message: message.into(),
    }
}

/// Decides the next step of one restore.
pub(crate) fn plan(restore: &ValidatedRestore, seen: &Observed, policy: &Policy) -> Plan {
    if seen.deleted {
        return leave(restore, seen);
    }
    match seen.status.phase {
        Some(RestorePhase::Succeeded) => return over(seen, Outlook::Succeeded),
        Some(RestorePhase::Failed) => {
            let message = seen.status.reason.clone().unwrap_or_default();
            return over(seen, Outlook::Failed(hindrance("Failed", message)));
        }
        _ => {}
    }
    if seen.status.sha256.is_none() {
        inspect(restore, seen, policy)
    } else {
        deliver(restore, seen, policy)
    }
}

/// Nothing is left to do but to clear away.
fn over(seen: &Observed, outlook: Outlook) -> Plan {
    let job = seen.job.as_ref().filter(|job| !job.terminating);
    let step = job
        .map(|job| Step::DeleteJob {
            uid: job.uid.clone(),
        })
        .or(seen.held.then_some(Step::LetGo));
    Plan {
        look_again: step.is_some().then_some(SOON),
        step,
        phase: seen.status.phase,
        outlook,
        facts: None,
    }
}

/// The restore is being deleted. In place, and before it has succeeded, the old members become the cluster again.
fn leave(restore: &ValidatedRestore, seen: &Observed) -> Plan {
    let step = match (seen.held, ours(restore, seen)) {
        (false, _) => None,
        (true, Some(record)) if record.former.is_some() => Some(Step::GoBack),
        (true, _) => Some(Step::LetGo),
    };
    Plan {
        look_again: step.is_some().then_some(SOON),
        step,
        phase: seen.status.phase,
        outlook: Outlook::Working(hindrance("Deleting", "the restore is being deleted")),
        facts: None,
    }
}

/// The target's bootstrap record, where it is of this very restore.
fn ours<'a>(
    restore: &ValidatedRestore,
    seen: &'a Observed,
) -> Option<&'a etcd_operator_api::v1beta2::BootstrapRecord> {
    let record = seen.cluster.as_ref()?.status.as_ref()?.bootstrap.as_ref()?;
    let seed = record.seed.as_ref()?;
    (seed.restore_uid == restore.uid).then_some(record)
}

/// Fetch and check. Nothing of any cluster is touched.
fn inspect(restore: &ValidatedRestore, seen: &Observed, policy: &Policy) -> Plan {
    use RestorePhase::Fetching;
    let before = seen.status.phase;
    if let Err(why) = target_is_there(restore, seen) {
        return Plan::stalled(before, why);
    }
    if let Some(plan) = not_meant(restore, seen) {
        return plan;
    }
    let (store, snapshot) = match &seen.source {
        Ok(source) => source.clone(),
        Err(why) => return Plan::stalled(before, why.clone()),
    };
    let Some(job) = &seen.job else {
        let step = Step::Inspect { store, snapshot };
        return Plan::working(Fetching, Some(step), "the snapshot is fetched and checked");
    };
    if job.terminating {
        return Plan::working(Fetching, None, "trying again");
    }
    let Some(ended) = job.ended else {
        // A Job tries again whatever its pod said; what is wrong with the snapshot itself is not worth waiting for.
        if let Some(Report::Failed { reason, message }) = &job.report {
            let why = hindrance(reason.as_str(), message.clone());
            return if reason.is_final() {
                Plan::failed(why)
            } else {
                hindered(*reason, why, None)
            };
        }
        let trouble = job.trouble.as_ref();
        let message = trouble.map_or_else(
            || "the snapshot is fetched and checked".to_owned(),
            |trouble| format!("the pod that fetches does not run: {trouble}"),
        );
        return Plan::working(Fetching, None, message);
    };
    let (reason, message) = match &job.report {
        Some(Report::Sound { facts }) => return check(restore, seen, policy, facts),
        Some(Report::Failed { reason, message }) => (*reason, message.clone()),
        _ => (
            FailureReason::Internal,
            job.trouble
                .clone()
                .unwrap_or_else(|| "the pod that fetches ended without a word".to_owned()),
        ),
    };
    let why = hindrance(reason.as_str(), message);
    if reason.is_final() {
        return Plan::failed(why);
    }
    let step = (seen.now.duration_since(ended) >= AGAIN).then(|| Step::DeleteJob {
        uid: job.uid.clone(),
    });
    hindered(reason, why, step)
}

/// What may pass by itself is waited for; for the rest somebody has to act. Both are tried again.
fn hindered(reason: FailureReason, why: Hindrance, step: Option<Step>) -> Plan {
    let passing = matches!(
        reason,
        FailureReason::StoreUnreachable | FailureReason::TimedOut | FailureReason::Internal
    );
    Plan {
        step,
        phase: Some(RestorePhase::Fetching),
        outlook: if passing {
            Outlook::Working(why)
        } else {
            Outlook::Stalled(why)
        },
        facts: None,
        look_again: Some(SOON),
    }
}

/// The target can be what it is meant to be.
fn target_is_there(restore: &ValidatedRestore, seen: &Observed) -> Result<(), Hindrance> {
    match (&restore.target, &seen.cluster) {
        (Target::New { name, .. }, Some(cluster)) if !is_made_by(restore, cluster) => {
            Err(hindrance(
                "ClusterExists",
                format!(
                    "EtcdCluster {name} exists already, and is left alone: delete it, or name another; to replace its data, use \
                     `etcdCluster`"
                ),
            ))
        }
        (Target::InPlace { name, .. }, None) => Err(hindrance(
            "ClusterMissing",
            format!("EtcdCluster {name} does not exist: to make it, use `newCluster`"),
        )),
        _ => Ok(()),
    }
}

fn is_made_by(restore: &ValidatedRestore, cluster: &EtcdCluster) -> bool {
    let annotations = cluster.metadata.annotations.as_ref();
    let seed = annotations
        .and_then(|annotations| annotations.get(SEED))
        .and_then(|text| Seed::read(text).ok());
    seed.is_some_and(|seed| seed.restore_uid == restore.uid)
}

/// The snapshot is sound; now it has to fit.
fn check(restore: &ValidatedRestore, seen: &Observed, policy: &Policy, facts: &Facts) -> Plan {
    let taken_from: Option<Version> = facts.etcd_version.as_ref().and_then(|v| v.parse().ok());
    let target = match target(restore, seen, policy, facts.etcd_version.as_deref()) {
        Ok(target) => target,
        Err(why) => return Plan::failed(why),
    };
    if let Err(why) = suits(restore, &target, taken_from, facts.size) {
        return Plan::failed(why);
    }
    Plan {
        facts: Some(facts.clone()),
        ..Plan::working(
            RestorePhase::Checking,
            None,
            format!(
                "the snapshot is sound, of revision {}, and fits",
                facts.revision
            ),
        )
    }
}

/// The snapshot fits the cluster, and there is a way back.
fn suits(
    restore: &ValidatedRestore,
    target: &ValidatedCluster,
    taken_from: Option<Version>,
    size: u64,
) -> Result<(), Hindrance> {
    if matches!(restore.target, Target::InPlace { .. }) && is_ephemeral(target) {
        return Err(hindrance(
            "NoWayBack",
            "the members live on scratch space, which goes with their pods: there would be no way back. Restore into a new cluster",
        ));
    }
    fits::fits(target, taken_from, size)
        .map_err(|unfit| hindrance(unfit.reason(), unfit.to_string()))
}

/// The cluster as it is to be, with every rule held.
fn target(
    restore: &ValidatedRestore,
    seen: &Observed,
    policy: &Policy,
    taken_from: Option<&str>,
) -> Result<ValidatedCluster, Hindrance> {
    let object = match &restore.target {
        Target::New { .. } => {
            let mut object = new_cluster(restore, taken_from);
            // As the API server gives one to every object.
            object.metadata.uid = Some(restore.uid.clone());
            object
        }
        Target::InPlace { .. } => seen.cluster.clone().unwrap_or_else(|| {
            // Seen before; without it no rule is held.
            EtcdCluster::new("", EtcdClusterSpec::default())
        }),
    };
    ValidatedCluster::new(&object, policy).map_err(|violations| {
        let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
        hindrance("InvalidCluster", words.join("; "))
    })
}

/// The EtcdCluster to be made, without its seed.
fn new_cluster(restore: &ValidatedRestore, taken_from: Option<&str>) -> EtcdCluster {
    let (name, mut spec) = match &restore.target {
        Target::New { name, spec } => (name.as_str(), (**spec).clone()),
        Target::InPlace { name, .. } => (name.as_str(), EtcdClusterSpec::default()),
    };
    if spec.version.as_deref().is_none_or(str::is_empty) {
        spec.version = taken_from.map(ToOwned::to_owned);
    }
    let mut cluster = EtcdCluster::new(name, spec);
    cluster.metadata.namespace = Some(restore.namespace.clone());
    cluster
}

/// The snapshot as the cluster is told of it.
fn seed(restore: &ValidatedRestore, seen: &Observed) -> Result<Seed, Hindrance> {
    let (store, _) = seen.source.clone()?;
    let status = &seen.status;
    let bytes = size_of(status);
    let seed = Seed {
        restore: restore.name.clone(),
        restore_uid: restore.uid.clone(),
        snapshot: status.snapshot.clone().unwrap_or_default(),
        sha256: status.sha256.clone().unwrap_or_default(),
        size: bytes
            .and_then(|bytes| i64::try_from(bytes).ok())
            .unwrap_or_default(),
        revision: status.etcd_revision.unwrap_or_default(),
        service_account: restore.service_account.clone(),
        ..Seed::default()
    };
    Ok(seed.from_store(store))
}

/// The snapshot's size, as far as its status has it.
fn size_of(status: &EtcdRestoreStatus) -> Option<u64> {
    Amount::parse(status.size.as_ref()?).ok()?.bytes()
}

/// A recovery of another cluster than the one that is there, or of one that a quorum serves: it is over before it has begun. Were it to
/// wait, a quorum that is missed for a moment some day would let it loose.
fn not_meant(restore: &ValidatedRestore, seen: &Observed) -> Option<Plan> {
    let Target::InPlace {
        cluster_id: Some(meant),
        ..
    } = &restore.target
    else {
        return None;
    };
    let status = seen.cluster.as_ref()?.status.as_ref();
    let (reason, words) = recovery_refused(meant, status, Recovery::FromBackup)?;
    let words = format!("`etcdCluster.clusterID` {words}: nothing is touched");
    Some(Plan::failed(hindrance(reason.as_str(), words)))
}

/// The snapshot is sound and fits: the cluster gets it.
fn deliver(restore: &ValidatedRestore, seen: &Observed, policy: &Policy) -> Plan {
    use RestorePhase::{Checking, Restoring, Starting};
    let begun = matches!(seen.status.phase, Some(Restoring | Starting));
    let made = seen
        .cluster
        .as_ref()
        .is_some_and(|cluster| is_made_by(restore, cluster));
    let record = ours(restore, seen);
    if made || record.is_some() {
        return follow(restore, seen, record.is_some());
    }
    if begun {
        return Plan::failed(hindrance(
            "ClusterGone",
            "the EtcdCluster that was being restored was deleted, or given to another restore",
        ));
    }
    if let Err(why) = target_is_there(restore, seen) {
        return Plan::stalled(Some(Checking), why);
    }
    let seed = match seed(restore, seen) {
        Ok(seed) => seed,
        Err(why) => return Plan::stalled(Some(Checking), why),
    };
    let Some(cluster) = &seen.cluster else {
        let mut cluster = new_cluster(restore, seen.status.etcd_version.as_deref());
        let annotations = cluster.metadata.annotations.get_or_insert_default();
        annotations.insert(SEED.to_owned(), seed.text());
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let step = Step::Create {
            cluster: Box::new(cluster),
        };
        return Plan::working(Restoring, Some(step), format!("making EtcdCluster {name}"));
    };
    not_meant(restore, seen).unwrap_or_else(|| replace(restore, seen, policy, cluster, seed))
}

/// In place: the old members are set aside, and new ones start from the snapshot.
fn replace(
    restore: &ValidatedRestore,
    seen: &Observed,
    policy: &Policy,
    cluster: &EtcdCluster,
    seed: Seed,
) -> Plan {
    use RestorePhase::{Checking, Restoring};
    let held = |reason, message: String| Plan::stalled(Some(Checking), hindrance(reason, message));
    let sound = match ValidatedCluster::new(cluster, policy) {
        Ok(sound) => sound,
        Err(violations) => {
            let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
            return held("InvalidCluster", words.join("; "));
        }
    };
    // It was asked before; the cluster may have been edited since.
    let taken_from = seen.status.etcd_version.as_ref();
    let taken_from = taken_from.and_then(|version| version.parse().ok());
    let size = size_of(&seen.status).unwrap_or_default();
    if let Err(why) = suits(restore, &sound, taken_from, size) {
        return Plan::stalled(Some(Checking), why);
    }
    if cluster.metadata.deletion_timestamp.is_some() {
        return held(
            "ClusterMissing",
            "the EtcdCluster is being deleted".to_owned(),
        );
    }
    if cluster.spec.paused == Some(true) {
        return held(
            "Paused",
            "the EtcdCluster is paused: nothing of it is touched".to_owned(),
        );
    }
    let status = cluster.status.clone().unwrap_or_default();
    let Some(record) = status.bootstrap else {
        return held(
            "ClusterNotBegun",
            "the EtcdCluster has not begun yet: there is nothing to replace".to_owned(),
        );
    };
    if record.former.is_some() {
        let by = record
            .seed
            .map_or_else(|| "the last".to_owned(), |seed| seed.restore);
        return held(
            "AnotherRestore",
            format!("restore {by} of the same EtcdCluster is not over: this one waits"),
        );
    }
    if status.cluster_id.is_none() {
        return held(
            "ClusterNotBegun",
            "the EtcdCluster has never served: there is nothing to replace, and nothing to go back to. Wait until it does, or delete \
             it and restore into a new one"
                .to_owned(),
        );
    }
    // One that cannot go on is no reason to wait: its members are set aside like any others.
    let stuck = status
        .conditions
        .iter()
        .any(|known| known.type_ == STALLED && known.status == "True");
    if !stuck
        && status
            .recovery
            .is_some_and(|recovery| recovery.finished.is_none())
    {
        return held(
            "RecoveryUnderWay",
            "the EtcdCluster is being recovered from a survivor: this restore waits".to_owned(),
        );
    }
    if let Some(plan) = backup_first(restore, seen, &sound) {
        return plan;
    }
    if !seen.held {
        return Plan::working(Checking, Some(Step::Hold), "the snapshot is sound and fits");
    }
    let step = Step::Replace {
        seed: Box::new(seed),
    };
    let message =
        "the members are set aside, their volumes are kept, and new ones start from the snapshot";
    Plan::working(Restoring, Some(step), message)
}

/// What comes before the data are replaced.
fn backup_first(
    restore: &ValidatedRestore,
    seen: &Observed,
    cluster: &ValidatedCluster,
) -> Option<Plan> {
    let word = format!(
        "{} is restored in place by {} ({:.8})",
        cluster.name, restore.name, restore.uid
    );
    let why = |words| hindrance("BackingUp", words);
    let (step, outlook) = match before_risk::first(cluster, &seen.relied, &word)? {
        First::Held(words) => {
            let why = hindrance("BackupFailed", words);
            return Some(Plan::stalled(Some(RestorePhase::Checking), why));
        }
        First::Waits(words) => (None, Outlook::Working(why(words))),
        First::Ask { backup } => {
            let words = format!("{word}: a backup comes first");
            let step = Step::RequestBackup { backup, word };
            (Some(step), Outlook::Working(why(words)))
        }
    };
    Some(Plan {
        outlook,
        ..Plan::working(RestorePhase::Checking, step, "")
    })
}

/// The cluster has the snapshot; what it says is said here too.
fn follow(restore: &ValidatedRestore, seen: &Observed, recorded: bool) -> Plan {
    let cluster = seen.cluster.as_ref();
    let status = cluster.and_then(|cluster| cluster.status.as_ref());
    let generation = cluster.and_then(|cluster| cluster.metadata.generation);
    let current = status.filter(|status| status.observed_generation == generation);
    let condition = |type_: &str| {
        let conditions = current.iter().flat_map(|status| &status.conditions);
        conditions
            .into_iter()
            .find(|known| known.type_ == type_)
            .cloned()
    };
    let formed = status.is_some_and(|status| status.cluster_id.is_some());
    let is_true = |type_: &str| condition(type_).is_some_and(|known| known.status == "True");
    if recorded && formed && is_true(READY) {
        return Plan {
            look_again: Some(SOON),
            ..over_now()
        };
    }
    let phase = if formed {
        RestorePhase::Starting
    } else {
        RestorePhase::Restoring
    };
    let said = condition(READY).map_or_else(
        || "waiting for the cluster".to_owned(),
        |known| known.message,
    );
    let way_back = ours(restore, seen).is_some_and(|record| record.former.is_some());
    let said = if way_back {
        format!(
            "{said}. To go back to the old members: kubectl -n {} delete etcdrestore {}",
            restore.namespace, restore.name
        )
    } else {
        said
    };
    if is_true(STALLED) {
        return Plan::stalled(Some(phase), hindrance("ClusterStalled", said));
    }
    Plan::working(phase, None, said)
}

fn over_now() -> Plan {
    Plan {
        step: None,
        phase: Some(RestorePhase::Succeeded),
        outlook: Outlook::Succeeded,
        facts: None,
        look_again: None,
    }
}

#[cfg(test)]
mod tests;

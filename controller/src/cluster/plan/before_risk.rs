//! A backup before what cannot be taken back: asked for once per step, and the step is not taken before it is good.

use etcd_operator_api::ValidatedCluster;

use crate::cluster::{
    observed::Observed,
    reliance::{BackupFacts, Relied, RunFacts},
    step::{Activity, Plan, Reason, Step},
};

/// What comes before a change of the minor version; nothing where it may begin or has begun.
pub(super) fn minor_step(cluster: &ValidatedCluster, seen: &Observed) -> Option<Plan> {
    let running = seen.running()?;
    let (here, target) = (running.lowest(), cluster.version);
    let whole = running.highest().minor() == here.minor();
    let under_way = seen.voters().any(|(_, member)| {
        let answer = member.answer.as_ref();
        answer.is_some_and(|answer| answer.downgrade_to.is_some())
    });
    if here.minor() == target.minor() || !whole || under_way {
        return None;
    }
    let word = format!(
        "{} goes from {here} to {target} (generation {} of {:.8})",
        cluster.name, cluster.generation, cluster.uid
    );
    backup_first(cluster, seen, Activity::Upgrading, &word)
}

/// What comes before a member goes on alone, whatever the others knew.
pub(super) fn recovery(
    cluster: &ValidatedCluster,
    seen: &Observed,
    survivor: &str,
    raft_index: u64,
) -> Option<Plan> {
    let word = format!(
        "{} is recovered from {survivor} at raft index {raft_index} ({:.8})",
        cluster.name, cluster.uid
    );
    backup_first(cluster, seen, Activity::Recovering, &word)
}

fn backup_first(
    cluster: &ValidatedCluster,
    seen: &Observed,
    activity: Activity,
    word: &str,
) -> Option<Plan> {
    Some(match first(cluster, &seen.relied, word)? {
        First::Held(words) => Plan::stalled(Reason::BackupFailed, words),
        First::Waits(words) => Plan::waiting(activity, Reason::BackingUp, words),
        First::Ask { backup } => Plan::step(
            Step::RequestBackup {
                backup,
                word: word.to_owned(),
            },
            activity,
            Reason::BackingUp,
            format!("{word}: a backup comes first"),
        ),
    })
}

/// What comes before a risky step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// This EtcdBackup is to be asked for a run.
    Ask { backup: String },
    /// It was, and is waited for.
    Waits(String),
    /// There is none to be had, and a person must act.
    Held(String),
}

/// What comes before a step; nothing where it may be taken. `word` names the step, and no other step ever.
pub(crate) fn first(cluster: &ValidatedCluster, relied: &Relied, word: &str) -> Option<First> {
    let reliance = cluster.backup.as_ref().filter(|it| it.before_risk)?;
    let name = &reliance.name;
    let held = |why: String| {
        Some(First::Held(format!(
            "{word}: not before a good backup, and {why}; nothing is touched. To go without one, set spec.backup.beforeRisk of \
             EtcdCluster {} to Never",
            cluster.name
        )))
    };
    let waits = |words: String| Some(First::Waits(format!("{word}: EtcdBackup {name} {words}")));
    let backup = match relied {
        Relied::Unknown => return waits("cannot be read".to_owned()),
        Relied::Missing => return held(format!("EtcdBackup {name} does not exist")),
        Relied::Found(backup) => backup,
    };
    if !backup.saves_us {
        return held(format!("EtcdBackup {name} saves another cluster"));
    }
    let Some(run) = asked(backup, word) else {
        if backup.suspended {
            return held(format!("EtcdBackup {name} is suspended"));
        }
        if backup.requested.as_deref() != Some(word) {
            return Some(First::Ask {
                backup: name.clone(),
            });
        }
        return match &backup.stalled {
            // What stalled it may be an earlier run that nobody tries again; then this one is about to begin.
            Some(words) if backup.runs.is_empty() => {
                held(format!("EtcdBackup {name} is stalled: {words}"))
            }
            stalled => {
                let said = stalled.as_ref().map(|words| format!("; it said: {words}"));
                waits(format!("is about to save{}", said.unwrap_or_default()))
            }
        };
    };
    match run.good {
        Some(true) => None,
        None => waits("saves".to_owned()),
        Some(false) if good_since(backup, run) => None,
        Some(false) => held(format!(
            "the run of EtcdBackup {name} failed: {}; when its cause is gone: kubectl -n {} annotate etcdbackup {name} \
             etcd.database.coreos.com/run-now=\"$(date)\" --overwrite",
            run.words, cluster.namespace
        )),
    }
}

fn asked<'a>(backup: &'a BackupFacts, word: &str) -> Option<&'a RunFacts> {
    backup
        .runs
        .iter()
        .find(|run| run.request.as_deref() == Some(word))
}

/// Somebody has put it right since, and ran it again.
fn good_since(backup: &BackupFacts, failed: &RunFacts) -> bool {
    backup
        .runs
        .iter()
        .any(|run| run.good == Some(true) && run.started > failed.started)
}

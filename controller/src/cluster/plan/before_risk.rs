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

/// What comes before a step; nothing where it may be taken. `word` names the step, and no other step ever.
pub(super) fn backup_first(
    cluster: &ValidatedCluster,
    seen: &Observed,
    activity: Activity,
    word: &str,
) -> Option<Plan> {
    let reliance = cluster.backup.as_ref().filter(|it| it.before_risk)?;
    let name = &reliance.name;
    let held = |why: String| {
        Some(Plan::stalled(
            Reason::BackupFailed,
            format!(
                "{word}: not before a good backup, and {why}; the cluster serves on. To go without one, set \
                 spec.backup.beforeRisk to Never"
            ),
        ))
    };
    let backup = match &seen.relied {
        Relied::Unknown => {
            return Some(Plan::waiting(
                activity,
                Reason::BackingUp,
                format!("{word}: EtcdBackup {name} cannot be read"),
            ));
        }
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
            let step = Step::RequestBackup {
                backup: name.clone(),
                word: word.to_owned(),
            };
            return Some(Plan::step(
                step,
                activity,
                Reason::BackingUp,
                format!("{word}: a backup comes first"),
            ));
        }
        return match &backup.stalled {
            // What stalled it may be an earlier run that nobody tries again; then this one is about to begin.
            Some(words) if backup.runs.is_empty() => {
                held(format!("EtcdBackup {name} is stalled: {words}"))
            }
            stalled => {
                let said = stalled.as_ref().map(|words| format!("; it said: {words}"));
                Some(Plan::waiting(
                    activity,
                    Reason::BackingUp,
                    format!(
                        "{word}: EtcdBackup {name} is about to save{}",
                        said.unwrap_or_default()
                    ),
                ))
            }
        };
    };
    match run.good {
        Some(true) => None,
        None => Some(Plan::waiting(
            activity,
            Reason::BackingUp,
            format!("{word}: EtcdBackup {name} saves"),
        )),
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

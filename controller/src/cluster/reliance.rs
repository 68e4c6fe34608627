//! The EtcdBackup a cluster relies on: what is known of it, and what the cluster says of it. Pure but for the one read.

use etcd_operator_api::{
    ValidatedCluster,
    v1beta2::{BackupRun, EtcdBackup, RunResult},
    validated::Reliance,
};
use jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::ListParams};

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Relied {
    /// It could not be read, or the cluster relies on none.
    #[default]
    Unknown,
    Missing,
    Found(BackupFacts),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupFacts {
    /// It saves this very cluster.
    pub saves_us: bool,
    pub suspended: bool,
    /// For which step it was last asked.
    pub requested: Option<String>,
    /// When its newest good snapshot was taken.
    pub last_success: Option<Timestamp>,
    /// The newest first.
    pub runs: Vec<RunFacts>,
    /// Why nothing is started, where something is in the way.
    pub stalled: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFacts {
    /// For which step it was asked for.
    pub request: Option<String>,
    /// Absent while it runs.
    pub good: Option<bool>,
    pub started: Option<Timestamp>,
    /// What it says of itself.
    pub words: String,
}

/// Reads the EtcdBackup that the cluster names.
pub(crate) async fn look(client: &Client, cluster: &ValidatedCluster) -> Relied {
    let Some(reliance) = &cluster.backup else {
        return Relied::Unknown;
    };
    let api: Api<EtcdBackup> = Api::namespaced(client.clone(), &cluster.namespace);
    match api.get_opt(&reliance.name).await {
        Ok(Some(backup)) => Relied::Found(facts(&backup, cluster)),
        Ok(None) => Relied::Missing,
        Err(error) => {
            tracing::debug!(%error, backup = reliance.name, "a backup could not be read");
            Relied::Unknown
        }
    }
}

/// The newest good snapshot of a cluster, wherever it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The EtcdBackup that took it.
    pub backup: String,
    pub revision: Option<i64>,
    pub at: Option<Timestamp>,
}

/// Asks every EtcdBackup of the namespace that saves this cluster; nothing where they cannot be read.
pub(super) async fn saved(client: &Client, cluster: &ValidatedCluster) -> Option<Saved> {
    let api: Api<EtcdBackup> = Api::namespaced(client.clone(), &cluster.namespace);
    match api.list(&ListParams::default()).await {
        Ok(found) => newest_of(&found.items, cluster),
        Err(error) => {
            tracing::debug!(%error, "backups could not be read");
            None
        }
    }
}

fn newest_of(backups: &[EtcdBackup], cluster: &ValidatedCluster) -> Option<Saved> {
    backups
        .iter()
        .filter(|backup| backup.spec.cluster_name.as_ref() == Some(&cluster.name))
        .filter_map(|backup| {
            let run = newest(&backup.status.as_ref()?.history)?;
            Some(Saved {
                backup: backup.name_any(),
                revision: run.etcd_revision,
                at: run.started.as_ref().map(|at| at.0),
            })
        })
        .max_by_key(|saved| saved.at)
}

/// The newest good run. One that was taken before a risky step may be of a lone member that was behind: then the one that has most.
pub(crate) fn newest(history: &[BackupRun]) -> Option<&BackupRun> {
    let is_good =
        |run: &&BackupRun| run.result == Some(RunResult::Succeeded) && run.snapshot.is_some();
    let first = history.iter().find(is_good)?;
    if first.request.is_none() {
        return Some(first);
    }
    // Of several that have as much, the newest, which stands first.
    let oldest_first = history.iter().rev().filter(is_good);
    oldest_first.max_by_key(|run| run.etcd_revision)
}

fn facts(backup: &EtcdBackup, cluster: &ValidatedCluster) -> BackupFacts {
    let status = backup.status.clone().unwrap_or_default();
    let stalled = status
        .conditions
        .iter()
        .find(|known| known.type_ == "Stalled" && known.status == "True");
    BackupFacts {
        saves_us: backup.spec.cluster_name.as_ref() == Some(&cluster.name),
        suspended: backup.spec.suspend == Some(true),
        requested: status.requested.clone(),
        last_success: status.last_success_date.as_ref().map(|at| at.0),
        stalled: stalled.map(|known| known.message.clone()),
        runs: status
            .history
            .iter()
            .map(|run| RunFacts {
                request: run.request.clone(),
                good: match run.result {
                    Some(RunResult::Succeeded) => Some(true),
                    Some(RunResult::Failed) => Some(false),
                    Some(RunResult::Running) | None => None,
                },
                started: run.started.as_ref().map(|at| at.0),
                words: format!(
                    "{}: {}",
                    run.reason.as_deref().unwrap_or("Running"),
                    run.message.as_deref().unwrap_or("no more is known")
                ),
            })
            .collect(),
    }
}

/// The condition `BackupHealthy`: its value, reason and message. Nothing that moves with the clock is in the words, or every look
/// would be a write.
pub(super) fn health(
    reliance: &Reliance,
    relied: &Relied,
    now: Timestamp,
) -> Option<(bool, &'static str, String)> {
    let name = &reliance.name;
    let backup = match relied {
        Relied::Unknown => return None,
        Relied::Missing => {
            let words = format!("EtcdBackup {name} does not exist");
            return Some((false, "BackupNotFound", words));
        }
        Relied::Found(backup) => backup,
    };
    if !backup.saves_us {
        let words = format!("EtcdBackup {name} saves another cluster: see its spec.clusterName");
        return Some((false, "AnotherCluster", words));
    }
    let Some(last) = backup.last_success else {
        let words = format!("EtcdBackup {name} has no good backup yet");
        return Some((false, "NoBackup", words));
    };
    let age = now.duration_since(last);
    let young = age.is_negative() || age.unsigned_abs() <= reliance.max_age;
    let hours = reliance.max_age.as_secs_f64() / 3600.0;
    Some(if young {
        let words = format!("the newest good backup is of {last}");
        (true, "Fresh", words)
    } else {
        let words = format!("the newest good backup is of {last}, which is more than {hours}h ago");
        (false, "TooOld", words)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::cluster::fixtures::{cluster, now};

    fn reliance() -> Reliance {
        Reliance {
            name: "nightly".to_owned(),
            before_risk: true,
            max_age: Duration::from_hours(26),
        }
    }

    fn said(relied: &Relied) -> Option<(bool, &'static str)> {
        health(&reliance(), relied, now()).map(|(value, reason, _)| (value, reason))
    }

    #[test]
    fn a_backup_is_healthy_while_its_newest_good_one_is_young_enough() {
        let taken = |hours: i64| {
            Relied::Found(BackupFacts {
                saves_us: true,
                last_success: Some(now() - SignedDuration::from_hours(hours)),
                ..BackupFacts::default()
            })
        };
        assert_eq!(said(&Relied::Unknown), None);
        assert_eq!(said(&Relied::Missing), Some((false, "BackupNotFound")));
        assert_eq!(said(&taken(26)), Some((true, "Fresh")));
        assert_eq!(said(&taken(27)), Some((false, "TooOld")));
        assert_eq!(
            said(&Relied::Found(BackupFacts::default())),
            Some((false, "AnotherCluster"))
        );
        let never = BackupFacts {
            saves_us: true,
            ..BackupFacts::default()
        };
        assert_eq!(said(&Relied::Found(never)), Some((false, "NoBackup")));
    }

    #[test]
    fn the_newest_good_backup_is_not_one_of_a_lone_member_that_was_behind() {
        let run = |name: &str, result: &str, revision: i64, request: Option<&str>| json!({"name": name, "result": result, "etcdRevision": revision, "request": request, "snapshot": name});
        let chosen = |history: serde_json::Value| {
            let history: Vec<BackupRun> = serde_json::from_value(history).unwrap();
            newest(&history).map(|run| run.name.clone())
        };
        assert_eq!(chosen(json!([])), None);
        let failed = run("r4", "Failed", 0, None);
        let nightly = run("r2", "Succeeded", 100, None);
        let older = run("r1", "Succeeded", 120, None);
        for (first, expected) in [
            (run("r3", "Succeeded", 90, None), "r3"),
            (run("r3", "Succeeded", 120, Some("a step")), "r3"),
            (run("r3", "Succeeded", 90, Some("a step")), "r1"),
        ] {
            let history = json!([failed, first, nightly, older]);
            assert_eq!(chosen(history).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_is_read_of_a_backup_is_what_its_status_says() {
        let backup: EtcdBackup = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
            "metadata": {"name": "nightly", "namespace": "n"},
            "spec": {"clusterName": "c", "suspend": true},
            "status": {
                "requested": "a step",
                "lastSuccessDate": "2026-01-01T00:00:00Z",
                "history": [
                    {"name": "r3", "result": "Running", "request": "a step"},
                    {"name": "r2", "result": "Failed", "reason": "NoQuorum", "message": "two are gone"},
                    {"name": "r1", "result": "Succeeded"},
                ],
            },
        }))
        .unwrap();
        let facts = facts(&backup, &cluster(json!({})));
        assert!(facts.saves_us && facts.suspended);
        assert_eq!(facts.requested.as_deref(), Some("a step"));
        assert_eq!(
            facts.runs.iter().map(|run| run.good).collect::<Vec<_>>(),
            [None, Some(false), Some(true)]
        );
        assert_eq!(facts.runs[1].words, "NoQuorum: two are gone");
    }
}

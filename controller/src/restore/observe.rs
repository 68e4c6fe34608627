//! Gathers what is known of one restore, live: restores are few, and each look is a handful of requests.

use etcd_operator_api::{
    ValidatedBackup, ValidatedCluster, ValidatedRestore,
    orders::Store,
    v1beta2::{EtcdBackup, EtcdCluster, EtcdRestore},
    validated::{Source, Target},
};
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    Context, FINALIZER,
    act::{ActError, job_name, read},
    plan::{Hindrance, JobFacts, Observed, hindrance},
};
use crate::{
    agents,
    cluster::reliance::{self, Relied},
};

pub(super) async fn observe(
    context: &Context,
    object: &EtcdRestore,
    restore: &ValidatedRestore,
) -> Result<Observed, ActError> {
    let namespace = &restore.namespace;
    let client = || context.client.clone();
    let target = match &restore.target {
        Target::InPlace { name, .. } | Target::New { name, .. } => name,
    };
    let clusters: Api<EtcdCluster> = Api::namespaced(client(), namespace);
    let cluster = read(&clusters, target).await?;
    let relied = match cluster
        .as_ref()
        .map(|found| ValidatedCluster::new(found, &context.policy))
    {
        Some(Ok(found)) => reliance::look(&context.client, &found).await,
        _ => Relied::Unknown,
    };
    let jobs: Api<Job> = Api::namespaced(client(), namespace);
    let job = match read(&jobs, &job_name(restore)).await? {
        Some(job) => Some(job_facts(context, restore, &job).await?),
        None => None,
    };
    Ok(Observed {
        now: Timestamp::now(),
        status: object.status.clone().unwrap_or_default(),
        source: source(context, object, restore).await?,
        job,
        cluster,
        relied,
        deleted: object.metadata.deletion_timestamp.is_some(),
        held: object.finalizers().iter().any(|held| held == FINALIZER),
    })
}

/// The store and the snapshot in it. One that was chosen stays chosen.
async fn source(
    context: &Context,
    object: &EtcdRestore,
    restore: &ValidatedRestore,
) -> Result<Result<(Store, String), Hindrance>, ActError> {
    let chosen = object
        .status
        .as_ref()
        .and_then(|status| status.snapshot.clone());
    let (name, snapshot) = match &restore.source {
        Source::Store(store) => {
            let store = agents::store(store);
            let snapshot = chosen.unwrap_or_else(|| within(&store).to_owned());
            return Ok(Ok((store, snapshot)));
        }
        Source::Backup { name, snapshot } => (name, snapshot),
    };
    let backups: Api<EtcdBackup> = Api::namespaced(context.client.clone(), &restore.namespace);
    let Some(backup) = read(&backups, name).await? else {
        return Ok(Err(hindrance(
            "BackupMissing",
            format!("EtcdBackup {name} does not exist"),
        )));
    };
    let store = match ValidatedBackup::new(&backup, &context.policy) {
        Ok(backup) => agents::store(&backup.store),
        Err(violations) => {
            let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
            return Ok(Err(hindrance(
                "BackupInvalid",
                format!("EtcdBackup {name}: {}", words.join("; ")),
            )));
        }
    };
    let newest = || {
        let status = backup.status.as_ref()?;
        reliance::newest(&status.history)?.snapshot.clone()
    };
    Ok(chosen
        .or_else(|| snapshot.clone())
        .or_else(newest)
        .map(|snapshot| (store, snapshot))
        .ok_or_else(|| {
            hindrance(
                "NoSnapshot",
                format!("EtcdBackup {name} has no good snapshot in its history yet"),
            )
        }))
}

/// The snapshot's key in its bucket, or its path in its volume.
fn within(store: &Store) -> &str {
    let path = store.path().unwrap_or_default();
    match store {
        Store::PVC(_) => path,
        _ => path.split_once('/').map_or(path, |(_, key)| key),
    }
}

async fn job_facts(
    context: &Context,
    restore: &ValidatedRestore,
    job: &Job,
) -> Result<JobFacts, ActError> {
    let ours = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        owner.uid == restore.uid
    };
    if !job.owner_references().iter().any(ours) {
        return Err(ActError::NameTaken(job.name_any()));
    }
    let ended = job.status.iter().flat_map(|status| &status.conditions);
    let ended = ended
        .flatten()
        .find(|known| {
            matches!(known.type_.as_str(), "Complete" | "Failed") && known.status == "True"
        })
        .and_then(|known| known.last_transition_time.as_ref())
        .map(|time| time.0);
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &restore.namespace);
    let of_job =
        ListParams::default().labels(&format!("batch.kubernetes.io/job-name={}", job.name_any()));
    let mut pods = pods
        .list(&of_job)
        .await
        .map_err(|source| ActError::Api {
            what: format!("the pods of Job {}", job.name_any()),
            source,
        })?
        .items;
    pods.sort_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
    let newest = pods.last();
    Ok(JobFacts {
        uid: job.uid().unwrap_or_default(),
        terminating: job.metadata.deletion_timestamp.is_some(),
        ended,
        report: newest.and_then(agents::report),
        trouble: newest.and_then(agents::trouble),
    })
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::v1beta2::{PvcStore, S3Store};

    use super::*;

    #[test]
    fn a_path_names_the_bucket_first_and_in_a_volume_it_does_not() {
        let s3 = Store::S3(S3Store {
            path: Some("bucket/a/etcd.backup".to_owned()),
            ..S3Store::default()
        });
        assert_eq!(within(&s3), "a/etcd.backup");
        let volume = Store::PVC(PvcStore {
            claim_name: Some("c".to_owned()),
            path: Some("a/etcd.backup".to_owned()),
        });
        assert_eq!(within(&volume), "a/etcd.backup");
    }
}

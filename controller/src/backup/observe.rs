//! Gathers one `Observed`: the Jobs and pods of a backup, read live, and how its etcd is reached. Of Secrets that users bring only
//! their existence is looked at, never what they hold.

use std::collections::BTreeMap;

use etcd_operator_api::{
    ValidatedBackup, ValidatedCluster,
    orders::EtcdAccess,
    v1beta2::{EtcdBackup, EtcdCluster, condition::AVAILABLE},
    validated,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Pod, Secret},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    BackupError, Context,
    jobs::{BACKUP, CAUSE, PURPOSE, RUN_NOW, tls_files},
    observed::{Ended, How, JobFacts, Observed, Purpose, Subject, Unreachable},
};
use crate::{
    agents,
    cluster::access::{self, Admission},
};

/// What Kubernetes puts on a Job's pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

pub(super) async fn observe(
    context: &Context,
    object: &EtcdBackup,
    backup: &ValidatedBackup,
) -> Result<Observed, BackupError> {
    let ours = ListParams::default().labels(&format!("{BACKUP}={}", backup.name));
    let jobs: Api<Job> = Api::namespaced(context.client.clone(), &backup.namespace);
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &backup.namespace);
    // Pods after Jobs: a Job that has ended has its pod's report here.
    let jobs = jobs.list(&ours).await.map_err(reading("its Jobs"))?.items;
    let mut pods = pods.list(&ours).await.map_err(reading("its pods"))?.items;
    pods.sort_by_key(|pod| pod.creation_timestamp().map(|at| at.0));
    let mut known = BTreeMap::new();
    for job in jobs {
        let owned = job
            .owner_references()
            .iter()
            .any(|owner| owner.uid == backup.uid);
        if !owned || job.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let name = job.name_any();
        let of_job: Vec<&Pod> = pods
            .iter()
            .filter(|pod| pod.labels().get(JOB_NAME) == Some(&name))
            .collect();
        let mut facts = job_facts(&job, &of_job);
        if facts.ended.is_none() && facts.report.is_none() && facts.trouble.is_none() {
            facts.trouble = missing_secret(context, backup, of_job.last().copied()).await?;
        }
        known.insert(name, facts);
    }
    Ok(Observed {
        now: Timestamp::now(),
        created: created(object.creation_timestamp().as_ref().map(|at| at.0)),
        status: object.status.clone().unwrap_or_default(),
        run_now: object
            .annotations()
            .get(RUN_NOW)
            .filter(|word| !word.is_empty())
            .cloned(),
        subject: subject(context, backup).await?,
        jobs: known,
    })
}

fn created(at: Option<Timestamp>) -> Timestamp {
    at.unwrap_or(Timestamp::UNIX_EPOCH)
}

fn reading(what: &str) -> impl FnOnce(kube::Error) -> BackupError {
    let what = what.to_owned();
    |source| BackupError::Read { what, source }
}

/// A pod waits for a Secret without a word in its status: only an Event says it, which is gone after an hour.
async fn missing_secret(
    context: &Context,
    backup: &ValidatedBackup,
    pod: Option<&Pod>,
) -> Result<Option<String>, BackupError> {
    let waits = |pod: &&Pod| {
        let status = pod.status.as_ref();
        status.and_then(|status| status.phase.as_deref()) == Some("Pending")
    };
    let Some(pod) = pod.filter(waits) else {
        return Ok(None);
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &backup.namespace);
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes {
        let named = volume
            .secret
            .as_ref()
            .and_then(|one| one.secret_name.as_ref());
        let Some(name) = named else { continue };
        let found = api.get_metadata_opt(name).await.map_err(reading(name))?;
        if found.is_none() {
            return Ok(Some(format!(
                "Secret {name} does not exist: its pod waits for it"
            )));
        }
    }
    Ok(None)
}

pub(super) fn job_facts(job: &Job, pods: &[&Pod]) -> JobFacts {
    let annotations = job.annotations();
    let conditions = || {
        job.status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .filter(|condition| condition.status == "True")
    };
    let ended = conditions().find_map(|condition| {
        let how = match (condition.type_.as_str(), condition.reason.as_deref()) {
            ("Complete", _) => How::Succeeded,
            ("Failed", Some("DeadlineExceeded")) => How::TimedOut,
            ("Failed", _) => How::Failed,
            _ => return None,
        };
        let at = condition.last_transition_time.as_ref();
        Some(Ended {
            how,
            at: created(at.map(|at| at.0)),
        })
    });
    JobFacts {
        uid: job.uid().unwrap_or_default(),
        purpose: if job
            .labels()
            .get(PURPOSE)
            .is_some_and(|word| word == "prove")
        {
            Purpose::Prove
        } else {
            Purpose::Save
        },
        created: created(job.creation_timestamp().as_ref().map(|at| at.0)),
        cause: annotations
            .get(CAUSE)
            .and_then(|text| serde_json::from_str(text).ok()),
        ended,
        report: pods.iter().rev().find_map(|pod| agents::report(pod)),
        trouble: pods.last().and_then(|pod| agents::trouble(pod)),
    }
}

async fn subject(
    context: &Context,
    backup: &ValidatedBackup,
) -> Result<Result<Subject, Unreachable>, BackupError> {
    let name = match &backup.subject {
        validated::Subject::Endpoints { urls, client_tls } => {
            return Ok(Ok(Subject {
                access: EtcdAccess {
                    endpoints: urls.clone(),
                    tls: client_tls.as_ref().map(|secret| tls_files(secret.keys)),
                    ..EtcdAccess::default()
                },
                client_secret: client_tls.as_ref().map(|secret| secret.name.clone()),
                issues: false,
                repository: None,
            }));
        }
        validated::Subject::Cluster(name) => name,
    };
    let Some(object) = context.cluster(&backup.namespace, name).await? else {
        return Ok(Err(Unreachable::NoCluster(name.clone())));
    };
    let cluster = match ValidatedCluster::new(&object, &context.policy) {
        Ok(cluster) => cluster,
        Err(violations) => {
            let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
            let words = format!("EtcdCluster {name} is not sound: {}", words.join("; "));
            return Ok(Err(Unreachable::Invalid(words)));
        }
    };
    Ok(of_cluster(&object, &cluster))
}

fn serves(known: &Condition) -> bool {
    known.type_ == AVAILABLE && known.status == "True"
}

pub(super) fn of_cluster(
    object: &EtcdCluster,
    cluster: &ValidatedCluster,
) -> Result<Subject, Unreachable> {
    let status = object.status.clone().unwrap_or_default();
    if status.cluster_id.is_none() {
        return Err(Unreachable::NotYet(cluster.name.clone()));
    }
    let admission = access::admission(cluster);
    let users = match &admission {
        Admission::Users(secret) => Some(secret),
        Admission::Plain | Admission::Issued => None,
    };
    Ok(Subject {
        access: EtcdAccess {
            endpoints: access::endpoints(cluster, &status),
            tls: users.map(|secret| tls_files(secret.keys)),
            auth: false,
            lone: !status.conditions.iter().any(serves),
            cluster_id: status.cluster_id,
        },
        client_secret: users.map(|secret| secret.name.clone()),
        issues: admission == Admission::Issued,
        repository: Some(cluster.repository.clone()),
    })
}

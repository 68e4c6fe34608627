//! Takes the steps of a plan. Each can be taken twice: what is there already is as good as made now.

use std::time::Duration;

use etcd_operator_api::{ValidatedBackup, ValidatedCluster, v1beta2::EtcdBackup, validated};
use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::Job,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions, PropagationPolicy},
};

use super::{
    BackupError, Context, jobs,
    observed::{Observed, Purpose, Subject},
    plan::Step,
};
use crate::{FIELD_MANAGER, cluster::access};

/// A run's certificate outlives the run's time-out by this.
const MARGIN: Duration = Duration::from_mins(10);

pub(super) async fn perform(
    context: &Context,
    backup: &ValidatedBackup,
    seen: &Observed,
    step: &Step,
) -> Result<(), BackupError> {
    context.guard()?;
    match step {
        Step::Save { run, cause } => {
            let Ok(subject) = &seen.subject else {
                return Ok(());
            };
            let job = jobs::save(backup, subject, &context.agent_image, run, cause)?;
            let job = create(context, backup, job).await?;
            issue(context, backup, subject, &job, seen.now).await
        }
        Step::Prove {
            run,
            snapshot,
            version,
        } => {
            let subject = seen.subject.as_ref().ok();
            let repository = subject.and_then(|subject| subject.repository.as_deref());
            let image = &context.agent_image;
            let job = jobs::prove(backup, repository, image, run, snapshot, *version)?;
            create(context, backup, job).await.map(drop)
        }
        Step::Delete { job, uid } => delete(context, backup, job, uid).await,
    }
}

async fn create(context: &Context, backup: &ValidatedBackup, job: Job) -> Result<Job, BackupError> {
    let api: Api<Job> = Api::namespaced(context.client.clone(), &backup.namespace);
    let name = job.name_any();
    let failed = |source| BackupError::Write {
        what: format!("Job {name}"),
        source,
    };
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&parameters, &job).await {
        Ok(made) => Ok(made),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let found = api.get(&name).await.map_err(failed)?;
            let ours = found
                .owner_references()
                .iter()
                .any(|owner| owner.uid == backup.uid);
            if ours {
                Ok(found)
            } else {
                Err(BackupError::NameTaken { name })
            }
        }
        Err(source) => Err(failed(source)),
    }
}

/// The run's own client certificate, where the cluster's authority is the operator's. It goes with the Job.
async fn issue(
    context: &Context,
    backup: &ValidatedBackup,
    subject: &Subject,
    job: &Job,
    now: Timestamp,
) -> Result<(), BackupError> {
    let validated::Subject::Cluster(name) = &backup.subject else {
        return Ok(());
    };
    if !subject.issues {
        return Ok(());
    }
    let Some(object) = context.cluster(&backup.namespace, name).await? else {
        return Ok(());
    };
    let Ok(cluster) = ValidatedCluster::new(&object, &context.policy) else {
        return Ok(());
    };
    let metadata = ObjectMeta {
        name: Some(job.name_any()),
        namespace: Some(backup.namespace.clone()),
        labels: Some(jobs::labels(&backup.name, Purpose::Save)),
        owner_references: Some(vec![OwnerReference {
            api_version: Job::api_version(&()).into_owned(),
            kind: Job::kind(&()).into_owned(),
            name: job.name_any(),
            uid: job.uid().unwrap_or_default(),
            controller: None,
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    };
    let lifetime = backup.timeout + MARGIN;
    access::issue(&context.client, &cluster, metadata, lifetime, now).await?;
    Ok(())
}

async fn delete(
    context: &Context,
    backup: &ValidatedBackup,
    job: &str,
    uid: &str,
) -> Result<(), BackupError> {
    let api: Api<Job> = Api::namespaced(context.client.clone(), &backup.namespace);
    let exactly = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(job, &exactly).await {
        Ok(_) => Ok(()),
        // Gone, or another of its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(source) => Err(BackupError::Write {
            what: format!("Job {job}"),
            source,
        }),
    }
}

/// Writes the status as a whole, against the very version of the object that was looked at.
pub(super) async fn write_status(
    context: &Context,
    object: &EtcdBackup,
) -> Result<(), BackupError> {
    context.guard()?;
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<EtcdBackup> = Api::namespaced(context.client.clone(), &namespace);
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    api.replace_status(&name, &parameters, object)
        .await
        .map_err(|source| BackupError::Write {
            what: format!("the status of {name}"),
            source,
        })?;
    Ok(())
}

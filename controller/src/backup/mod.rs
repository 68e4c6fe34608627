//! The pipeline of an EtcdBackup: observe → plan → act → status. Runs are Jobs of the agent's; what they say is the only thing that is
//! believed of a backup.

mod act;
pub mod jobs;
mod observe;
pub mod observed;
pub mod plan;
pub mod times;

use std::{sync::Arc, time::Duration};

use etcd_operator_api::{
    Policy, ValidatedBackup,
    v1beta2::{
        BackupSummary, EtcdBackup, EtcdBackupStatus, EtcdCluster,
        condition::{READY, RECONCILING, STALLED},
    },
};
use etcd_operator_process::{Drain, one_line};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        Config, Controller,
        controller::{self, Action},
        events::{Event, EventType, Recorder},
        reflector::ObjectRef,
        watcher,
    },
};

use crate::{
    agents::BadOrder,
    cluster::{CertificateError, memory::named},
    lease::Leadership,
    metrics::Metrics,
    turns::Failures,
};
use jobs::BACKUP;
use plan::{Plan, Telling};

/// What a reconcile needs beside the resource.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) policy: Policy,
    pub(crate) leadership: Leadership,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) agent_image: String,
    pub(crate) failures: Failures,
}

impl Context {
    fn guard(&self) -> Result<(), BackupError> {
        if self.leadership.held() {
            Ok(())
        } else {
            Err(BackupError::NotLeader)
        }
    }

    async fn cluster(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<EtcdCluster>, BackupError> {
        let api: Api<EtcdCluster> = Api::namespaced(self.client.clone(), namespace);
        api.get_opt(name).await.map_err(|source| BackupError::Read {
            what: format!("EtcdCluster {name}"),
            source,
        })
    }
}

/// What can go wrong in one reconcile, each with its stable reason.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{what} could not be read")]
    Read { what: String, source: kube::Error },
    #[error("{what} could not be written")]
    Write { what: String, source: kube::Error },
    #[error("Job {name} exists and belongs to something else: rename or delete it")]
    NameTaken { name: String },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Order(#[from] BadOrder),
    #[error("the lease is not held: another controller may act")]
    NotLeader,
}

impl BackupError {
    fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } | Self::Write { .. } => "KubernetesError",
            Self::NameTaken { .. } => "NameTaken",
            Self::Certificate(_) => "CertificateError",
            Self::Order(_) => "OrderInvalid",
            Self::NotLeader => "NotLeader",
        }
    }

    fn code(&self) -> Option<u16> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => match source {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// Somebody else wrote in between: no fault, the next look sees it.
    fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The resource is gone, or its namespace is going.
    fn is_the_end(&self) -> bool {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => {
                crate::cluster::is_the_end(source)
                    || matches!((self, self.code()), (Self::Write { .. }, Some(404)))
            }
            Self::Certificate(error) => error.is_the_end(),
            _ => false,
        }
    }
}

/// Looks after the backups of one namespace, or of all.
pub(crate) async fn look_after(
    context: Arc<Context>,
    backups: Api<EtcdBackup>,
    jobs: Api<Job>,
    pods: Api<Pod>,
    drain: Drain,
) {
    let ours = || watcher::Config::default().labels(BACKUP);
    Controller::new(backups, watcher::Config::default())
        .owns(jobs, ours())
        .watches(pods, ours(), |pod: Pod| {
            let backup = pod.labels().get(BACKUP).cloned();
            backup.map(|name| {
                ObjectRef::<EtcdBackup>::new(&name).within(&pod.namespace().unwrap_or_default())
            })
        })
        .with_config(Config::default().concurrency(4))
        .graceful_shutdown_on(async move { drain.started().await })
        .run(reconcile, after_error, Arc::clone(&context))
        .for_each(|outcome| {
            match outcome {
                Err(controller::Error::ObjectNotFound(gone)) => {
                    let key = named(gone.namespace.as_deref(), &gone.name);
                    context.failures.forget(&key);
                    context.metrics.forget_backup(&key);
                }
                Err(error) => tracing::debug!(%error, "a pass over a backup ended early"),
                Ok(_) => {}
            }
            std::future::ready(())
        })
        .await;
}

fn key(object: &EtcdBackup) -> String {
    named(object.metadata.namespace.as_deref(), &object.name_any())
}

async fn reconcile(object: Arc<EtcdBackup>, context: Arc<Context>) -> Result<Action, BackupError> {
    let outcome = Box::pin(pass(&object, &context)).await;
    if outcome.is_ok() {
        context.failures.forget(&key(&object));
    }
    outcome
}

/// One pass: look, decide, do it, say how it stands.
async fn pass(object: &EtcdBackup, context: &Context) -> Result<Action, BackupError> {
    if object.metadata.deletion_timestamp.is_some() {
        // Jobs carry an owner reference: Kubernetes collects them. What is in the store stays.
        return Ok(Action::await_change());
    }
    // The same rules as at admission: what slipped past the webhook is held, never obeyed blindly.
    let backup = match ValidatedBackup::new(object, &context.policy) {
        Ok(backup) => backup,
        Err(violations) => {
            let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
            let status = held(object, "InvalidSpec", &words.join("; "), Timestamp::now());
            publish(context, object, status, &[]).await?;
            return Ok(Action::await_change());
        }
    };
    let seen = observe::observe(context, object, &backup).await?;
    let Plan {
        steps,
        status,
        tellings,
        look_again,
    } = plan::plan(&backup, &seen);
    for step in &steps {
        if let Err(error) = act::perform(context, &backup, &seen, step).await {
            if !error.is_the_end() && !error.is_conflict() {
                let status = hindered(object, &error, seen.now);
                publish(context, object, status, &[]).await?;
            }
            return Err(error);
        }
    }
    publish(context, object, status, &tellings).await?;
    Ok(look_again.map_or_else(Action::await_change, Action::requeue))
}

/// The status of a resource whose spec is not sound: what was last seen stays.
fn held(object: &EtcdBackup, reason: &str, message: &str, now: Timestamp) -> EtcdBackupStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    status.observed_generation = generation;
    status.summary = Some(BackupSummary::Stalled);
    status.next_run = None;
    for (type_, value) in [(READY, false), (RECONCILING, false), (STALLED, true)] {
        plan::set(
            &mut status.conditions,
            plan::condition(type_, value, reason, message, generation, now),
        );
    }
    status
}

/// A step was tried and did not happen: it is tried again.
fn hindered(object: &EtcdBackup, error: &BackupError, now: Timestamp) -> EtcdBackupStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let (reason, message) = (error.reason(), one_line(error));
    let generation = object.metadata.generation;
    plan::set(
        &mut status.conditions,
        plan::condition(RECONCILING, true, reason, &message, generation, now),
    );
    status
}

/// Writes the status if it says something new, and tells what happened.
async fn publish(
    context: &Context,
    object: &EtcdBackup,
    status: EtcdBackupStatus,
    tellings: &[Telling],
) -> Result<(), BackupError> {
    if status.next_run.is_some() {
        context.metrics.backup(
            &key(object),
            object.metadata.namespace.as_deref().unwrap_or_default(),
            &object.name_any(),
            status.last_success_date.as_ref().map(|at| at.0),
        );
    }
    if object.status.as_ref() != Some(&status) {
        let mut updated = object.clone();
        updated.status = Some(status);
        act::write_status(context, &updated).await?;
    }
    for telling in tellings {
        let type_ = if telling.warning {
            EventType::Warning
        } else {
            EventType::Normal
        };
        context.metrics.backup_told(telling.reason);
        tracing::info!(
            backup = object.name_any(),
            namespace = object.namespace(),
            reason = telling.reason,
            "{}",
            telling.note
        );
        let event = Event {
            type_,
            reason: telling.reason.to_owned(),
            note: Some(telling.note.clone()),
            action: "Backup".to_owned(),
            secondary: None,
        };
        if let Err(error) = context
            .recorder
            .publish(&event, &object.object_ref(&()))
            .await
        {
            tracing::debug!(%error, "an event was not written");
        }
    }
    Ok(())
}

#[allow(clippy::needless_pass_by_value)] // The runtime hands over what it has.
fn after_error(object: Arc<EtcdBackup>, error: &BackupError, context: Arc<Context>) -> Action {
    if error.is_conflict() {
        return Action::requeue(AFTER_CONFLICT);
    }
    let wait = context.failures.one_more(&key(&object));
    if error.is_the_end() {
        return Action::requeue(wait);
    }
    tracing::warn!(
        backup = object.name_any(),
        namespace = object.namespace(),
        reason = error.reason(),
        error = one_line(error),
        "trying again"
    );
    Action::requeue(wait)
}

/// Somebody else's write in between is no failure; the watch has most likely brought it already.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

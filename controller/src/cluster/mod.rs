//! The pipeline of an EtcdCluster: observe → plan → act → status.

mod act;
mod authorities;
mod certificates;
pub mod children;
#[cfg(test)]
mod fixtures;
mod keep;
#[cfg(test)]
mod kstatus_tests;
mod names;
mod observe;
pub mod observed;
pub mod plan;
mod status;
#[cfg(test)]
mod status_tests;
pub mod step;
#[cfg(test)]
mod stores_tests;

use std::{sync::Arc, time::Duration};

use etcd_operator_api::{
    Policy, ValidatedCluster,
    v1beta2::{
        BootstrapRecord, EtcdCluster, EtcdClusterStatus,
        condition::{READY, STALLED},
    },
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Client, Resource,
    runtime::{
        controller::Action,
        events::{Event, EventType, Recorder},
        reflector::{Store, store::WriterDropped},
    },
};
use tokio::sync::OnceCell;

pub use act::ActError;
pub use certificates::CertificateError;
use etcd_operator_process::one_line;
use step::{Outlook, Plan, Reason};

use crate::{lease::Leadership, metrics::Metrics};

/// What a reconcile needs beside the resource.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) policy: Policy,
    pub(crate) stores: Stores,
    pub(crate) leadership: Leadership,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
}

/// The watch caches: children that carry our label, and nothing else.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) pods: Store<Pod>,
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) services: Store<Service>,
    pub(crate) config_maps: Store<ConfigMap>,
    pub(crate) budgets: Store<PodDisruptionBudget>,
    pub(crate) filled: Arc<OnceCell<()>>,
}

impl Stores {
    /// Returns when every cache has been filled once.
    ///
    /// One waits for all: a store wakes only the last of those that wait for it, and every other cluster that a new leader finds would
    /// be looked at never.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), WriterDropped> {
        let all = || async {
            futures::try_join!(
                self.pods.wait_until_ready(),
                self.claims.wait_until_ready(),
                self.services.wait_until_ready(),
                self.config_maps.wait_until_ready(),
                self.budgets.wait_until_ready(),
            )?;
            Ok(())
        };
        self.filled.get_or_try_init(all).await.copied()
    }
}

/// What can go wrong in one reconcile, each with its stable reason.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Act(#[from] ActError),
    #[error(transparent)]
    Observe(#[from] CertificateError),
    #[error("a watch has ended")]
    WatchEnded(#[from] WriterDropped),
}

impl ReconcileError {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Act(error) => error.reason().as_str(),
            Self::Observe(_) => Reason::CertificateError.as_str(),
            Self::WatchEnded(_) => "WatchEnded",
        }
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Act(error) if error.is_conflict())
    }
}

/// One pass: look, decide, do at most one thing, say how it stands.
pub(crate) async fn reconcile(
    object: Arc<EtcdCluster>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    if object.metadata.deletion_timestamp.is_some() {
        // Children carry an owner reference: Kubernetes collects them, in any order.
        return Ok(Action::await_change());
    }
    // The same rules as at admission: what slipped past the webhook is held, never obeyed blindly.
    let cluster = match ValidatedCluster::new(&object, &context.policy) {
        Ok(cluster) => cluster,
        Err(violations) => {
            let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
            return hold(&context, &object, Reason::InvalidSpec, &words.join("; ")).await;
        }
    };
    let seen = match observe::observe(&context, &object, &cluster).await {
        Ok(seen) => seen,
        Err(error) if error.needs_a_person() => {
            return hold(&context, &object, Reason::SecretUnusable, &one_line(&error)).await;
        }
        Err(error) => return Err(error.into()),
    };
    let mut plan = plan::plan(&cluster, &seen);
    let mut record = None;
    let mut failure = None;
    match take(&context, &object, &cluster, &seen, &plan).await {
        Ok(written) => record = written,
        Err(error) => {
            plan = plan.hindered_by(error.reason(), &one_line(&error), error.needs_a_person());
            failure = (!error.is_patience()).then_some(error);
        }
    }
    let mut status = status::status(&object, &cluster, &seen, &plan);
    if record.is_some() {
        status.bootstrap = record;
    }
    publish(&context, &object, status, &plan).await?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(Action::requeue(plan.look_again)),
    }
}

/// Keeps the fixed children, then takes the one step and tells of it.
async fn take(
    context: &Context,
    object: &EtcdCluster,
    cluster: &ValidatedCluster,
    seen: &observed::Observed,
    plan: &Plan,
) -> Result<Option<BootstrapRecord>, ActError> {
    let mut surroundings = Ok(());
    if !cluster.paused && !plan.is_waiting_for_names() {
        keep::starts(context, cluster, seen).await?;
        // A Service that cannot be written must not keep a member from being healed: that is said after the step.
        surroundings = keep::surroundings(context, cluster, seen).await;
    }
    let Some(step) = &plan.step else {
        return surroundings.map(|()| None);
    };
    let record = Box::pin(act::perform(context, cluster, seen, step)).await?;
    tracing::info!(
        cluster = cluster.name,
        namespace = cluster.namespace,
        reason = step.reason(),
        "{step}"
    );
    context.metrics.step(step.reason());
    for telling in step.story() {
        let about = telling
            .member
            .map(|name| status::pod_reference(cluster, &name));
        let event = event(EventType::Normal, step.reason(), &telling.note);
        tell(
            context,
            object,
            Event {
                secondary: about,
                ..event
            },
        )
        .await;
    }
    // A record is written whatever else failed: without it nothing goes on.
    if record.is_none() {
        surroundings?;
    }
    Ok(record)
}

/// Holds a resource: says why, and touches nothing.
async fn hold(
    context: &Context,
    object: &EtcdCluster,
    reason: Reason,
    message: &str,
) -> Result<Action, ReconcileError> {
    let plan = Plan::stalled(reason, message);
    publish(
        context,
        object,
        status::held(object, Timestamp::now(), reason, message),
        &plan,
    )
    .await?;
    Ok(Action::requeue(plan.look_again))
}

/// Writes the status if it says something new, and tells of the turns a person wants to know.
async fn publish(
    context: &Context,
    object: &EtcdCluster,
    status: EtcdClusterStatus,
    plan: &Plan,
) -> Result<(), ActError> {
    if !status::worth_writing(object.status.as_ref(), &status) {
        return Ok(());
    }
    let turn = match &plan.outlook {
        Outlook::Settled if !status::holds(object, READY) => Some(event(
            EventType::Normal,
            "Ready",
            "what the spec asks for is what runs",
        )),
        Outlook::Stalled { reason, message } if !status::holds(object, STALLED) => {
            Some(event(EventType::Warning, reason.as_str(), message))
        }
        Outlook::Working {
            reason, message, ..
        } if reason.is_a_failure() => Some(event(EventType::Warning, reason.as_str(), message)),
        _ => None,
    };
    let mut updated = object.clone();
    updated.status = Some(status);
    act::write_status(context, &updated).await?;
    if let Some(turn) = turn {
        tell(context, object, turn).await;
    }
    Ok(())
}

fn event(type_: EventType, reason: &str, note: &str) -> Event {
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note.to_owned()),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

/// Writes an Event. One that cannot be written is no reason to stop.
async fn tell(context: &Context, object: &EtcdCluster, event: Event) {
    if let Err(error) = context
        .recorder
        .publish(&event, &object.object_ref(&()))
        .await
    {
        tracing::debug!(%error, reason = event.reason, "an event was not written");
    }
}

/// Somebody else's write in between is no failure; the watch has most likely brought it already.
pub(crate) const AFTER_CONFLICT: Duration = Duration::from_millis(50);

/// How long a resource is left alone after so many failures in a row: from half a second to a minute.
pub(crate) fn back_off(failures: u32) -> Duration {
    Duration::from_millis(500) * 2_u32.pow(failures.min(7))
}

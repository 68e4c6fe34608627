//! The pipeline of an EtcdCluster: observe → plan → act → status.

mod act;
mod certificates;
pub mod children;
mod names;
mod observe;
pub mod observed;
pub mod plan;
mod status;
pub mod step;

use std::{sync::Arc, time::Duration};

use etcd_operator_api::{Policy, ValidatedCluster, v1beta2::EtcdCluster};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Client, ResourceExt,
    runtime::{
        controller::Action,
        events::{Event, EventType, Recorder},
        reflector::{Store, store::WriterDropped},
    },
};

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
}

impl Stores {
    /// Returns when every cache has been filled once.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), WriterDropped> {
        futures::try_join!(
            self.pods.wait_until_ready(),
            self.claims.wait_until_ready(),
            self.services.wait_until_ready(),
            self.config_maps.wait_until_ready(),
            self.budgets.wait_until_ready(),
        )?;
        Ok(())
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
            Self::Act(error) => error.reason(),
            Self::Observe(_) => "CertificateError",
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
            let held = status::held(&object, Timestamp::now(), &words.join("; "));
            publish(
                &context,
                &object,
                held,
                &Plan::stalled(Reason::InvalidSpec, words.join("; ")),
            )
            .await?;
            return Ok(Action::await_change());
        }
    };
    let seen = observe::observe(&context, &object, &cluster).await?;
    let plan = plan::plan(&cluster, &seen);
    let frozen = cluster.paused || plan.is_stalled_by_name();
    if !frozen && let Err(error) = act::keep_children(&context, &cluster, &seen).await {
        return fail(&context, &object, &cluster, &seen, error).await;
    }
    let mut record = None;
    if let Some(step) = &plan.step {
        tracing::info!(
            cluster = object.name_any(),
            namespace = cluster.namespace,
            reason = step.reason(),
            "{step}"
        );
        match Box::pin(act::perform(&context, &cluster, &seen, step)).await {
            Ok(written) => record = written,
            Err(error) => return fail(&context, &object, &cluster, &seen, error).await,
        }
        context.metrics.step(step.reason());
        if step.is_told() {
            tell(
                &context,
                &object,
                EventType::Normal,
                step.reason(),
                &step.to_string(),
            )
            .await;
        }
    }
    let mut status = status::status(&object, &cluster, &seen, &plan);
    if record.is_some() {
        status.bootstrap = record;
    }
    publish(&context, &object, status, &plan).await?;
    Ok(Action::requeue(plan.look_again))
}

/// Writes the status if it says something new, and tells of the turns a person wants to know.
async fn publish(
    context: &Context,
    object: &EtcdCluster,
    status: etcd_operator_api::v1beta2::EtcdClusterStatus,
    plan: &Plan,
) -> Result<(), ActError> {
    if !status::worth_writing(object.status.as_ref(), &status) {
        return Ok(());
    }
    let was = |type_: &str| {
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        conditions
            .into_iter()
            .any(|known| known.type_ == type_ && known.status == "True")
    };
    let (was_ready, was_stalled) = (was("Ready"), was("Stalled"));
    let mut updated = object.clone();
    updated.status = Some(status);
    act::write_status(context, &updated).await?;
    match &plan.outlook {
        Outlook::Settled if !was_ready => {
            tell(
                context,
                object,
                EventType::Normal,
                "Ready",
                "what the spec asks for is what runs",
            )
            .await;
        }
        Outlook::Stalled { reason, message } if !was_stalled => {
            tell(
                context,
                object,
                EventType::Warning,
                reason.as_str(),
                message,
            )
            .await;
        }
        _ => {}
    }
    Ok(())
}

/// A step that failed is part of the story: the condition and an Event carry the step's own reason.
async fn fail(
    context: &Context,
    object: &EtcdCluster,
    cluster: &ValidatedCluster,
    seen: &observed::Observed,
    error: ActError,
) -> Result<Action, ReconcileError> {
    if !error.is_conflict() && !matches!(error, ActError::NotLeader) {
        tell(
            context,
            object,
            EventType::Warning,
            error.reason(),
            &one_line(&error),
        )
        .await;
        if let ActError::NameTaken { what } = &error {
            let message = format!(
                "{what} exists and belongs to something else: rename or delete it, or give this cluster another name"
            );
            let plan = Plan::stalled(Reason::NameTaken, message);
            publish(
                context,
                object,
                status::status(object, cluster, seen, &plan),
                &plan,
            )
            .await?;
        }
    }
    Err(error.into())
}

/// An Event. One that cannot be written is no reason to stop.
async fn tell(context: &Context, object: &EtcdCluster, type_: EventType, reason: &str, note: &str) {
    let event = Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note.to_owned()),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    if let Err(error) = context
        .recorder
        .publish(&event, &status::reference(object))
        .await
    {
        tracing::debug!(%error, reason, "an event was not written");
    }
}

/// Somebody else's write in between is no failure; the watch has most likely brought it already.
pub(crate) const AFTER_CONFLICT: Duration = Duration::from_millis(50);

/// How long a resource is left alone after so many failures in a row: from half a second to a minute.
pub(crate) fn back_off(failures: u32) -> Duration {
    Duration::from_millis(500) * 2_u32.pow(failures.min(7))
}

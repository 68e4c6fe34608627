//! The pipeline of an EtcdCluster: observe → plan → act → status.

pub(crate) mod access;
pub(crate) mod act;
mod authorities;
mod cache;
mod certificates;
pub mod children;
mod coreos;
#[cfg(test)]
pub(crate) mod fixtures;
mod held;
mod keep;
#[cfg(test)]
mod kstatus_tests;
pub(crate) mod memory;
pub(crate) mod names;
mod observe;
pub mod observed;
pub mod plan;
pub mod reliance;
mod status;
#[cfg(test)]
mod status_tests;
pub mod step;
#[cfg(test)]
mod stores_tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use etcd_operator_api::{
    Policy, ValidatedCluster,
    v1beta2::{
        BootstrapRecord, EtcdCluster, EtcdClusterStatus,
        condition::{READY, STALLED},
    },
};
use jiff::Timestamp;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

pub use act::ActError;
pub(crate) use act::is_the_end;
pub use cache::WatchEnded;
pub(crate) use cache::watch_children;
use cache::{Cache, Text};
pub use certificates::CertificateError;
use etcd_operator_process::one_line;
use memory::Memory;
pub(crate) use observe::set_aside;
use observed::{ClaimFacts, PodFacts};
use status::Definition;
use step::{Outlook, Plan, Reason};

use crate::{lease::Leadership, metrics::Metrics};

/// What a reconcile needs beside the resource.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) policy: Policy,
    pub(crate) stores: Stores,
    pub(crate) leadership: Leadership,
    pub(crate) reporter: Reporter,
    /// Folds what is said again within minutes into one Event, and remembers it for that.
    pub(crate) warnings: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) memory: Memory,
    /// Where the agent is: the operator's own image.
    pub(crate) agent_image: String,
    /// The last status that was written came back without what was accepted.
    pub(crate) drops_accepted: AtomicBool,
}

impl Context {
    fn definition(&self) -> Definition {
        if self.drops_accepted.load(Ordering::Relaxed) {
            Definition::BeforeAccepted
        } else {
            Definition::Whole
        }
    }
}

/// The watch caches: children that carry our label, and nothing else.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) pods: Cache<PodFacts>,
    pub(crate) claims: Cache<ClaimFacts>,
    pub(crate) services: Cache<Text>,
    pub(crate) config_maps: Cache<Text>,
    pub(crate) budgets: Cache<Text>,
}

impl Stores {
    /// Returns when every cache has been filled once.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), WatchEnded> {
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
    #[error(transparent)]
    WatchEnded(#[from] WatchEnded),
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

    /// Its namespace is being deleted, or it is gone itself: nothing can be written any more, and nothing is wrong.
    pub(crate) fn is_the_end(&self) -> bool {
        match self {
            Self::Act(error) => error.is_the_end(),
            Self::Observe(error) => error.is_the_end(),
            Self::WatchEnded(_) => false,
        }
    }
}

/// When a cluster is looked at next, unless something happens to it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Not at all.
    Change,
    After(Duration),
    /// There was nothing to do; so many others may come first.
    AtRest(Duration),
}

/// One pass: look, decide, do at most one thing, say how it stands.
pub(crate) async fn reconcile(
    object: Arc<EtcdCluster>,
    context: Arc<Context>,
) -> Result<Next, ReconcileError> {
    if object.metadata.deletion_timestamp.is_some() {
        // Children carry an owner reference: Kubernetes collects them, in any order.
        return Ok(Next::Change);
    }
    let found = coreos::look(&context, &object).await?;
    let object = coreos::knowing_its_origin(object, found.as_ref());
    // The same rules as at admission: what slipped past the webhook is held, never obeyed blindly.
    let cluster = match ValidatedCluster::new(&object, &context.policy) {
        Ok(cluster) => cluster,
        Err(violations) => {
            let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
            return hold(&context, &object, Reason::InvalidSpec, &words.join("; ")).await;
        }
    };
    let (look, mut plan) = match look(&context, &object, &cluster, found.as_ref()).await {
        Ok(looked) => looked,
        Err(error) if error.needs_a_person() => {
            return hold(&context, &object, Reason::SecretUnusable, &one_line(&error)).await;
        }
        Err(error) => return Err(error.into()),
    };
    let seen = &look.seen;
    if seen.is_anothers()
        && plan.step.is_none()
        && let Outlook::Stalled { reason, message } = &plan.outlook
    {
        // What its operator wrote stays: it may come back, and reads it.
        let served = Some(seen.quorum.is_some());
        let status = status::held(&object, seen.now, served, *reason, message);
        publish(&context, &object, status, &plan).await?;
        return Ok(Next::After(plan.look_again));
    }
    let mut record = None;
    let mut failure = None;
    match take(&context, &object, &cluster, seen, &plan).await {
        Ok(written) => record = written,
        Err(error) if error.is_the_end() => return Err(error.into()),
        Err(error) => {
            plan = plan.hindered_by(error.reason(), &one_line(&error), error.needs_a_person());
            failure = (!error.is_patience()).then_some(error);
        }
    }
    let mut status = status::status(&object, &cluster, seen, &plan);
    if record.is_some() {
        status.bootstrap = record;
    }
    publish(&context, &object, status, &plan).await?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    if !plan.is_rest() {
        return Ok(Next::After(plan.look_again));
    }
    if !look.from_memory {
        context
            .memory
            .remember(&object, &look.members, look.secrets);
    }
    Ok(Next::AtRest(plan.look_again))
}

/// Looks, and decides. Secrets are read unless they were a while ago and there is nothing to do.
async fn look(
    context: &Context,
    object: &EtcdCluster,
    cluster: &ValidatedCluster,
    found: Option<&coreos::Found>,
) -> Result<(observe::Look, Plan), CertificateError> {
    let recall = |members: &[String]| context.memory.recall(object, members);
    let look = observe::observe(context, object, cluster, found, recall).await?;
    let plan = plan::plan(cluster, &look.seen);
    if plan.is_rest() || !look.from_memory {
        return Ok((look, plan));
    }
    context.memory.forget(&memory::key(object));
    let look = observe::observe(context, object, cluster, found, |_| None).await?;
    let plan = plan::plan(cluster, &look.seen);
    Ok((look, plan))
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
    if !cluster.paused && !plan.is_waiting_for_names() && !seen.is_anothers() {
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

/// Holds a resource: says why and whether it serves, and touches nothing.
async fn hold(
    context: &Context,
    object: &EtcdCluster,
    reason: Reason,
    message: &str,
) -> Result<Next, ReconcileError> {
    let plan = Plan::stalled(reason, message);
    let available = Box::pin(held::available(context, object)).await;
    let status = status::held(object, Timestamp::now(), available, reason, message);
    publish(context, object, status, &plan).await?;
    Ok(Next::After(plan.look_again))
}

/// Writes the status if it says something new, and tells of the turns a person wants to know.
async fn publish(
    context: &Context,
    object: &EtcdCluster,
    status: EtcdClusterStatus,
    plan: &Plan,
) -> Result<(), ActError> {
    context.metrics.stands(memory::key(object), &plan.outlook);
    if !status::worth_writing(object.status.as_ref(), &status, context.definition()) {
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
    let sent = status.accepted.is_some();
    updated.status = Some(status);
    let stored = act::write_status(context, &updated).await?;
    if sent {
        let kept = stored
            .status
            .is_some_and(|status| status.accepted.is_some());
        context.drops_accepted.store(!kept, Ordering::Relaxed);
    }
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
    // Every step is said once: what a thousand of them said would be remembered for nothing.
    let told_once;
    let recorder = match event.type_ {
        EventType::Warning => &context.warnings,
        EventType::Normal => {
            told_once = Recorder::new(context.client.clone(), context.reporter.clone());
            &told_once
        }
    };
    if let Err(error) = recorder.publish(&event, &object.object_ref(&())).await {
        tracing::debug!(%error, reason = event.reason, "an event was not written");
    }
}

/// Somebody else's write in between is no failure; the watch has most likely brought it already.
pub(crate) const AFTER_CONFLICT: Duration = Duration::from_millis(50);

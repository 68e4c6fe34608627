//! The pipeline of an EtcdRestore: observe → plan → act → status.

mod act;
mod fits;
mod observe;
mod plan;
mod status;

use std::{sync::Arc, time::Duration};

use etcd_operator_api::{Policy, ValidatedRestore, v1beta2::EtcdRestore};
use etcd_operator_process::{Drain, one_line};
use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        Config, Controller,
        controller::Action,
        events::{Event, EventType, Recorder, Reporter},
        watcher,
    },
};

use crate::lease::Leadership;
use act::ActError;
use plan::{Outlook, Plan, hindrance};

/// What a reconcile needs beside the resource.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) policy: Policy,
    pub(crate) leadership: Leadership,
    pub(crate) reporter: Reporter,
    pub(crate) agent_image: String,
}

/// So many at once; each takes a few requests.
const AT_ONCE: u16 = 4;
/// After something went wrong with Kubernetes.
const AFTER_ERROR: Duration = Duration::from_secs(5);

/// On an EtcdRestore in place: it does not go before its cluster was put back.
pub(crate) const FINALIZER: &str = "etcd.database.coreos.com/put-back";

/// One controller over the EtcdRestores that this reads.
pub(crate) async fn look_after(restores: Api<EtcdRestore>, context: Context, drain: Drain) {
    Controller::new(restores, watcher::Config::default())
        .with_config(Config::default().concurrency(AT_ONCE))
        .graceful_shutdown_on(async move { drain.started().await })
        .run(reconcile, after_error, Arc::new(context))
        .for_each(|outcome| {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a look at a restore ended early");
            }
            std::future::ready(())
        })
        .await;
}

/// One pass: look, decide, do at most one thing, say how it stands.
async fn reconcile(object: Arc<EtcdRestore>, context: Arc<Context>) -> Result<Action, ActError> {
    let restore = match ValidatedRestore::new(&object, &context.policy) {
        Ok(restore) => restore,
        Err(violations) => {
            let words: Vec<String> = violations.iter().map(ToString::to_string).collect();
            let why = hindrance("InvalidSpec", words.join("; "));
            let plan = Plan {
                step: None,
                phase: object.status.as_ref().and_then(|status| status.phase),
                outlook: Outlook::Stalled(why),
                facts: None,
                look_again: None,
            };
            publish(&context, &object, None, &plan, Timestamp::now()).await?;
            return Ok(Action::await_change());
        }
    };
    let seen = observe::observe(&context, &object, &restore).await?;
    let mut plan = plan::plan(&restore, &seen, &context.policy);
    if let Some(step) = &plan.step {
        match act::perform(&context, &object, &restore, &seen, step).await {
            Ok(()) => tracing::info!(
                restore = restore.name,
                namespace = restore.namespace,
                "{step}"
            ),
            Err(error) if error.is_refusal() => {
                let why = hindrance("Refused", one_line(&error));
                plan = Plan::stalled(seen.status.phase, why);
            }
            Err(error) => return Err(error),
        }
    }
    if !seen.deleted {
        publish(&context, &object, Some(&restore), &plan, seen.now).await?;
    }
    Ok(plan
        .look_again
        .map_or_else(Action::await_change, Action::requeue))
}

/// Writes the status if it says something new, and tells of the end.
async fn publish(
    context: &Context,
    object: &EtcdRestore,
    restore: Option<&ValidatedRestore>,
    plan: &Plan,
    now: Timestamp,
) -> Result<(), ActError> {
    let status = status::status(object, restore, plan, now);
    if object.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let before = object.status.as_ref().and_then(|status| status.phase);
    act::write_status(context, object, status).await?;
    let turn = match &plan.outlook {
        Outlook::Succeeded if before != plan.phase => Some((
            EventType::Normal,
            "Restored",
            "the data are back".to_owned(),
        )),
        Outlook::Failed(why) if before != plan.phase => {
            Some((EventType::Warning, why.reason, why.message.clone()))
        }
        _ => None,
    };
    if let Some((type_, reason, note)) = turn {
        let recorder = Recorder::new(context.client.clone(), context.reporter.clone());
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Restore".to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &object.object_ref(&())).await {
            tracing::debug!(%error, reason, "an event was not written");
        }
    }
    Ok(())
}

#[allow(clippy::needless_pass_by_value)] // The runtime hands over what it has.
fn after_error(object: Arc<EtcdRestore>, error: &ActError, _: Arc<Context>) -> Action {
    if error.is_conflict() {
        return Action::requeue(crate::cluster::AFTER_CONFLICT);
    }
    tracing::warn!(
        restore = object.name_any(),
        namespace = object.namespace(),
        error = one_line(error),
        "trying again"
    );
    Action::requeue(AFTER_ERROR)
}

//! What is printed when a scenario fails: enough to understand it without the cluster at hand.

use std::fmt::Write;

use k8s_openapi::api::core::v1::{ContainerStatus, Event, PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};
use serde::Serialize;
use serde_json::Value;

use crate::{Context, OPERATOR_NAMESPACE};

const LOG_LINES: i64 = 30;
const OPERATOR_LOG_LINES: i64 = 60;

/// The state of the scenario's namespace and of the operator. Never fails: what cannot be read is said so.
pub(crate) async fn describe(context: &Context) -> String {
    let mut text = format!("---- namespace {}\n", context.namespace());
    resources(context, &mut text).await;
    claims(context, &mut text).await;
    pods(&context.api(), LOG_LINES, &mut text).await;
    events(context, &mut text).await;
    text.push_str("---- operator\n");
    pods(
        &Api::namespaced(context.client(), OPERATOR_NAMESPACE),
        OPERATOR_LOG_LINES,
        &mut text,
    )
    .await;
    text
}

/// YAML without what only the API server's own bookkeeping needs.
pub(crate) fn yaml<K: Serialize>(object: &K) -> String {
    let mut value = match serde_json::to_value(object) {
        Ok(value) => value,
        Err(error) => return format!("(cannot be shown: {error})\n"),
    };
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    serde_yaml_ng::to_string(&value).unwrap_or_else(|error| format!("(cannot be shown: {error})\n"))
}

async fn resources(context: &Context, text: &mut String) {
    match context.clusters().list(&ListParams::default()).await {
        Ok(clusters) => {
            for cluster in clusters {
                let _ = writeln!(
                    text,
                    "---- EtcdCluster {}\n{}",
                    cluster.name_any(),
                    yaml(&cluster)
                );
            }
        }
        Err(error) => unreadable(text, "EtcdClusters", &error),
    }
}

async fn claims(context: &Context, text: &mut String) {
    match context
        .api::<PersistentVolumeClaim>()
        .list(&ListParams::default())
        .await
    {
        Ok(claims) => {
            for claim in claims {
                let phase = claim
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.clone())
                    .unwrap_or_default();
                let _ = writeln!(text, "claim {}: {phase}", claim.name_any());
            }
        }
        Err(error) => unreadable(text, "claims", &error),
    }
}

async fn events(context: &Context, text: &mut String) {
    match context.api::<Event>().list(&ListParams::default()).await {
        Ok(events) => {
            let mut lines: Vec<(Option<_>, String)> = events
                .items
                .into_iter()
                .map(|event| {
                    let at = event
                        .last_timestamp
                        .as_ref()
                        .map(|time| time.0)
                        .or(event.event_time.as_ref().map(|time| time.0))
                        .or(event
                            .metadata
                            .creation_timestamp
                            .as_ref()
                            .map(|time| time.0));
                    let kind = event.involved_object.kind.unwrap_or_default();
                    let name = event.involved_object.name.unwrap_or_default();
                    let reason = event.reason.unwrap_or_default();
                    let message = event.message.unwrap_or_default();
                    (at, format!("event {kind} {name}: {reason}: {message}"))
                })
                .collect();
            lines.sort();
            for (at, line) in lines {
                let _ = writeln!(
                    text,
                    "{} {line}",
                    at.map(|at| at.to_string()).unwrap_or_default()
                );
            }
        }
        Err(error) => unreadable(text, "events", &error),
    }
}

async fn pods(pods: &Api<Pod>, log_lines: i64, text: &mut String) {
    let list = match pods.list(&ListParams::default()).await {
        Ok(list) => list,
        Err(error) => return unreadable(text, "pods", &error),
    };
    for pod in list {
        let name = pod.name_any();
        let status = pod.status.clone().unwrap_or_default();
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "pod {name} on [{node}]: {}",
            status.phase.unwrap_or_default()
        );
        for container in status.container_statuses.unwrap_or_default() {
            let _ = writeln!(text, "  {}", container_line(&container));
            let restarted = container.restart_count > 0;
            for previous in if restarted {
                vec![true, false]
            } else {
                vec![false]
            } {
                let parameters = LogParams {
                    container: Some(container.name.clone()),
                    previous,
                    tail_lines: Some(log_lines),
                    ..LogParams::default()
                };
                match pods.logs(&name, &parameters).await {
                    Ok(log) => log.lines().for_each(|line| {
                        let _ = writeln!(
                            text,
                            "  {}| {line}",
                            if previous { "previous " } else { "" }
                        );
                    }),
                    Err(error) => unreadable(text, "  its log", &error),
                }
            }
        }
    }
}

fn container_line(container: &ContainerStatus) -> String {
    let state = container.state.clone().unwrap_or_default();
    let state = if let Some(waiting) = state.waiting {
        format!(
            "waiting: {} {}",
            waiting.reason.unwrap_or_default(),
            waiting.message.unwrap_or_default()
        )
    } else if let Some(ended) = state.terminated {
        format!(
            "ended with {}: {}",
            ended.exit_code,
            ended.reason.unwrap_or_default()
        )
    } else {
        "running".to_owned()
    };
    let ready = if container.ready {
        "ready"
    } else {
        "not ready"
    };
    format!(
        "{}: {state}, {ready}, {} restarts",
        container.name, container.restart_count
    )
}

fn unreadable(text: &mut String, what: &str, error: &kube::Error) {
    let reason = match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    let _ = writeln!(text, "({what} cannot be read: {reason})");
}

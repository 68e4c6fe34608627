//! What is read of an agent's pod: its report when it has ended, and why it does not start.

use etcd_operator_api::orders::Report;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::CONTAINER;

/// The agent's report; none while it runs, and none where it was killed before it could write one.
pub fn report(pod: &Pod) -> Option<Report> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let agent = statuses.iter().find(|one| one.name == CONTAINER)?;
    let message = agent
        .state
        .as_ref()?
        .terminated
        .as_ref()?
        .message
        .as_deref()?;
    // Where the message is the log's end, the report is its last line.
    let last = message.lines().rev().find(|line| !line.trim().is_empty())?;
    serde_json::from_str(last)
        .or_else(|_| serde_json::from_str(message))
        .ok()
}

/// Why a pod does not run, or how it ended without a report: `ImagePullBackOff: …`, `Unschedulable: …`, `OOMKilled: …`. The
/// normal stages of a start are no trouble.
pub fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = || {
        status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses)
            .flatten()
    };
    containers()
        .find_map(waiting)
        .or_else(|| containers().find_map(ended))
        .or_else(|| unschedulable(pod))
        .or_else(|| {
            let reason = status.reason.as_deref()?;
            Some(with_message(reason, status.message.as_deref()))
        })
}

fn waiting(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"))?;
    Some(with_message(reason, waiting.message.as_deref()))
}

fn ended(container: &ContainerStatus) -> Option<String> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    if ended.exit_code == 0 {
        return None;
    }
    let reason = ended.reason.as_deref().unwrap_or("Error");
    let message = ended
        .message
        .as_deref()
        .and_then(|text| text.lines().rev().find(|line| !line.trim().is_empty()));
    Some(with_message(
        &format!(
            "{reason}, {} ended with {}",
            container.name, ended.exit_code
        ),
        message,
    ))
}

fn unschedulable(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    let reason = scheduled.reason.as_deref().unwrap_or("Unscheduled");
    Some(with_message(reason, scheduled.message.as_deref()))
}

fn with_message(reason: &str, message: Option<&str>) -> String {
    message.map_or_else(
        || reason.to_owned(),
        |message| format!("{reason}: {message}"),
    )
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::orders::FailureReason;
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    fn ended_with(code: i32, message: &str) -> Pod {
        pod(&json!({"containerStatuses": [{
            "name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "reason": "Error", "message": message}},
        }]}))
    }

    #[test]
    fn a_report_is_the_message_or_its_last_line() {
        let failed = Report::Failed {
            reason: FailureReason::NoQuorum,
            message: "two of three members do not answer".to_owned(),
        };
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(report(&ended_with(1, &text)), Some(failed.clone()));
        let log = format!("asking\nstill asking\n{text}\n");
        assert_eq!(report(&ended_with(1, &log)), Some(failed));
        for message in ["", "killed", "{\"report\":\"saved\"}"] {
            assert_eq!(report(&ended_with(137, message)), None, "{message}");
        }
        assert_eq!(report(&pod(&json!({}))), None);
    }

    #[test]
    fn a_pod_that_does_not_start_says_why() {
        let waiting = |reason: &str| {
            pod(&json!({"containerStatuses": [{
                "name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "no such image"}},
            }]}))
        };
        assert_eq!(
            trouble(&waiting("ErrImagePull")).as_deref(),
            Some("ErrImagePull: no such image")
        );
        assert_eq!(trouble(&waiting("ContainerCreating")), None);
        let unscheduled = pod(&json!({"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "persistentvolumeclaim \"p\" not found",
        }]}));
        assert_eq!(
            trouble(&unscheduled).as_deref(),
            Some("Unschedulable: persistentvolumeclaim \"p\" not found")
        );
        assert_eq!(
            trouble(&ended_with(137, "working\n")).as_deref(),
            Some("Error, agent ended with 137: working")
        );
        let evicted = pod(&json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}));
        assert_eq!(trouble(&evicted).as_deref(), Some("Evicted: disk"));
    }
}

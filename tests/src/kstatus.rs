//! How Flux, and whoever else uses kstatus, reads an object of a kind it does not know: the rules of
//! `sigs.k8s.io/cli-utils/pkg/kstatus/status` v0.37.2, in their order. Pure. The controller's own tests read them too.

use serde_json::Value;

/// In kstatus's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Current,
    InProgress,
    Failed,
    Terminating,
}

/// What kstatus makes of the object as the API server returns it.
pub fn verdict(object: &Value) -> Verdict {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    if metadata["deletionTimestamp"].is_string() {
        return Verdict::Terminating;
    }
    if let (Some(generation), Some(observed)) = (
        metadata["generation"].as_i64(),
        status["observedGeneration"].as_i64(),
    ) && generation != observed
    {
        return Verdict::InProgress;
    }
    let conditions = || status["conditions"].as_array().into_iter().flatten();
    // The first of the two that is true decides.
    let standard = conditions().find_map(|condition| {
        let holds = condition["status"] == "True";
        match condition["type"].as_str() {
            Some("Reconciling") if holds => Some(Verdict::InProgress),
            Some("Stalled") if holds => Some(Verdict::Failed),
            _ => None,
        }
    });
    let ready = || {
        conditions()
            .filter(|condition| condition["type"] == "Ready")
            .find_map(|condition| match condition["status"].as_str() {
                Some("True") => Some(Verdict::Current),
                Some("False" | "Unknown") => Some(Verdict::InProgress),
                _ => None,
            })
    };
    // An object that says nothing is taken for good: hence the CRD's `observedGeneration: -1`.
    standard.or_else(ready).unwrap_or(Verdict::Current)
}

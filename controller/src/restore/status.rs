//! What is published of a restore. Pure.

use etcd_operator_api::{
    ValidatedRestore,
    quantity::display_bytes,
    v1beta2::{
        EtcdRestore, EtcdRestoreStatus, RestorePhase,
        condition::{READY, RECONCILING, STALLED},
    },
    validated::Target,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};

use super::plan::{Outlook, Plan};

pub(super) fn status(
    object: &EtcdRestore,
    restore: Option<&ValidatedRestore>,
    plan: &Plan,
    now: Timestamp,
) -> EtcdRestoreStatus {
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let ended = matches!(
        plan.phase,
        Some(RestorePhase::Succeeded | RestorePhase::Failed)
    );
    let already_ended = matches!(
        before.phase,
        Some(RestorePhase::Succeeded | RestorePhase::Failed)
    );
    let mut status = EtcdRestoreStatus {
        observed_generation: generation,
        phase: plan.phase,
        cluster_name: restore
            .map(|restore| match &restore.target {
                Target::InPlace { name, .. } | Target::New { name, .. } => name.clone(),
            })
            .or_else(|| before.cluster_name.clone()),
        started: before
            .started
            .clone()
            .or_else(|| plan.phase.map(|_| Time(now))),
        finished: before
            .finished
            .clone()
            .or_else(|| ended.then_some(Time(now))),
        ..before
    };
    if already_ended {
        // What was said at the end stands.
        return status;
    }
    let (ready, reconciling, stalled, reason, message) = match &plan.outlook {
        Outlook::Working(why) => (false, true, false, why.reason, why.message.as_str()),
        Outlook::Stalled(why) | Outlook::Failed(why) => {
            (false, false, true, why.reason, why.message.as_str())
        }
        Outlook::Succeeded => (true, false, false, "Restored", "the data are back"),
    };
    for (type_, value) in [
        (READY, ready),
        (RECONCILING, reconciling),
        (STALLED, stalled),
    ] {
        let new = Condition {
            type_: type_.to_owned(),
            status: if value { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: generation,
            last_transition_time: Time(now),
        };
        match status
            .conditions
            .iter_mut()
            .find(|known| known.type_ == type_)
        {
            Some(known) => {
                let since = known.last_transition_time.clone();
                let same = known.status == new.status;
                *known = new;
                if same {
                    known.last_transition_time = since;
                }
            }
            None => status.conditions.push(new),
        }
    }
    status.succeeded = ended.then_some(ready);
    status.reason = match &plan.outlook {
        Outlook::Failed(why) => Some(format!("{}: {}", why.reason, why.message)),
        _ => None,
    };
    if let Some(facts) = &plan.facts {
        status.snapshot = Some(facts.snapshot.clone());
        status.size = Some(Quantity(display_bytes(facts.size)));
        status.hash = Some(facts.hash.clone());
        status.sha256 = Some(facts.sha256.clone());
        status.etcd_version.clone_from(&facts.etcd_version);
        status.etcd_revision = Some(facts.revision);
    }
    status
}

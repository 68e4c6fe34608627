//! The one bootstrap: record the founders, then their claims, then start them all at once.
//!
//! Each line is durable before the next is taken, so a crash anywhere continues where it was, and a founder is never
//! started on a claim other than the one recorded for it: an empty volume would vote in an election it knows nothing of.

use etcd_operator_api::{
    ValidatedCluster,
    v1beta2::{BootstrapMember, BootstrapRecord},
};

use crate::cluster::{
    children::labels,
    names,
    observed::{Observed, is_ephemeral},
    step::{Activity, Plan, Reason, Step, Why},
};

pub(super) fn plan(cluster: &ValidatedCluster, seen: &Observed) -> Plan {
    let creating = |step, message: String| {
        Plan::step(step, Activity::Creating, Reason::Bootstrapping, message)
    };
    let Some(record) = &seen.bootstrap else {
        if !seen.retained.is_empty() && !seen.start_afresh {
            return Plan::stalled(
                Reason::ClaimsRetained,
                format!(
                    "a former cluster of this name has left its data in the claims {}: nothing is started. Delete them, or \
                     give this resource the annotation {} to start empty and leave them alone",
                    seen.retained.join(", "),
                    labels::START_AFRESH
                ),
            );
        }
        let seed = match &seen.planted {
            None => None,
            Some(Ok(seed)) => Some(Box::new(seed.clone())),
            // It was meant to start from something: then it does not start empty.
            Some(Err(error)) => {
                return Plan::stalled(
                    Reason::SeedInvalid,
                    format!(
                        "the annotation {} {error}: nothing is started. Delete this resource, and make it again with an EtcdRestore, or \
                         without the annotation to start empty",
                        etcd_operator_api::v1beta2::SEED
                    ),
                );
            }
        };
        let members = names::founders(cluster);
        return creating(
            Step::RecordBootstrap {
                token: names::token(cluster),
                members: members.clone(),
                seed,
            },
            format!("creating {} members", members.len()),
        );
    };
    if seen.planted.is_some() && record.seed.is_none() {
        // A definition of an older release drops what it does not know: without its seed the cluster would start empty.
        return Plan::stalled(
            Reason::SeedInvalid,
            "the cluster is to start from a snapshot, and its record does not say so: nothing is started. Bring the \
             CustomResourceDefinitions to this release, delete this resource, and restore again",
        );
    }
    let size = record.members.len();
    if let Some(lost) = lost_founder(cluster, seen, record) {
        return Plan::stalled(
            Reason::FounderLost,
            format!(
                "the volume of {lost} was lost before the operator saw the cluster answer: what the others hold cannot be \
                 known, and nothing is touched. {}",
                begin_again(cluster, record)
            ),
        );
    }
    let unprepared: Vec<String> = record
        .members
        .iter()
        .map(|founder| &founder.name)
        .filter(|name| !prepared(cluster, seen, name))
        .cloned()
        .collect();
    if !unprepared.is_empty() {
        return creating(
            Step::Prepare {
                members: unprepared,
            },
            format!("creating {size} members"),
        );
    }
    if !is_ephemeral(cluster)
        && record
            .members
            .iter()
            .any(|founder| founder.claim_uid.is_none())
    {
        let members = record
            .members
            .iter()
            .map(|founder| BootstrapMember {
                name: founder.name.clone(),
                claim_uid: claim_uid(seen, &founder.name),
            })
            .collect();
        return creating(
            Step::RecordClaims { members },
            format!("creating {size} members"),
        );
    }
    let missing: Vec<String> = record
        .members
        .iter()
        .map(|founder| founder.name.clone())
        .filter(|name| {
            seen.members
                .get(name)
                .is_none_or(|member| member.pod.is_none())
        })
        .collect();
    if !missing.is_empty() {
        return creating(
            Step::Start {
                members: missing,
                why: Why::Bootstrap,
            },
            format!("starting {size} members"),
        );
    }
    if let Some(plan) = super::restart::stuck_on_an_old_spec(cluster, seen) {
        return plan;
    }
    let answering = record
        .members
        .iter()
        .filter(|founder| {
            seen.members
                .get(&founder.name)
                .is_some_and(|member| member.answer.is_some())
        })
        .count();
    Plan::waiting(
        Activity::Creating,
        Reason::Bootstrapping,
        format!(
            "{answering} of {size} members answer{}",
            super::restart::troubles(seen)
        ),
    )
}

fn claim_uid(seen: &Observed, name: &str) -> Option<String> {
    Some(seen.members.get(name)?.claim.as_ref()?.uid.clone())
}

/// A member's claim, TLS Secrets and start entry are there.
pub(super) fn prepared(cluster: &ValidatedCluster, seen: &Observed, name: &str) -> bool {
    equipped(cluster, seen, name) && seen.starts.contains_key(name)
}

/// A member's claim and TLS Secrets are there.
pub(super) fn equipped(cluster: &ValidatedCluster, seen: &Observed, name: &str) -> bool {
    let claimed = is_ephemeral(cluster)
        || seen
            .members
            .get(name)
            .is_some_and(|member| member.claim.is_some());
    claimed && seen.certified(name)
}

/// What to do about founders that will not do. Where former members are kept, the resource is what keeps them: deleted, it would take
/// their volumes along.
fn begin_again(cluster: &ValidatedCluster, record: &BootstrapRecord) -> String {
    match &record.seed {
        Some(seed) if record.former.is_some() => format!(
            "The former members' volumes are kept; do not delete this resource, which would take them along. To go back to them: \
             kubectl -n {} delete etcdrestore {}; then restore again",
            cluster.namespace, seed.restore
        ),
        Some(_) => "Delete this resource, and restore it again from the same backup".to_owned(),
        None => {
            "If nobody has written to it yet, delete this resource and create it again".to_owned()
        }
    }
}

fn lost_founder<'a>(
    cluster: &ValidatedCluster,
    seen: &Observed,
    record: &'a BootstrapRecord,
) -> Option<&'a str> {
    if is_ephemeral(cluster) {
        return None;
    }
    record
        .members
        .iter()
        .find(|founder| {
            founder.claim_uid.is_some() && claim_uid(seen, &founder.name) != founder.claim_uid
        })
        .map(|founder| founder.name.as_str())
}

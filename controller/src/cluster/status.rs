//! What is published of a cluster: a pure function of what was seen and what was planned. No I/O.

use etcd_operator_api::{
    Minor, ValidatedCluster, Version,
    policy::way_to_supported,
    quantity::display_bytes,
    v1beta2::{
        Accepted, EtcdCluster, EtcdClusterStatus, MemberNames, MemberRole, MemberStatus, Phase,
        Summary,
        condition::{
            AVAILABLE, BACKUP_HEALTHY, READY, RECONCILING, RECOVERING, SCALING, STALLED, UPGRADING,
        },
    },
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, Time},
    },
};

use super::{
    children::{labels, services::CLIENT_PORT},
    names,
    observed::{Member, Observed, is_ephemeral},
    plan::rollout,
    reliance,
    step::{Activity, Outlook, Plan, Reason, Step},
};

/// The status after a look and a plan.
pub(crate) fn status(
    object: &EtcdCluster,
    cluster: &ValidatedCluster,
    seen: &Observed,
    plan: &Plan,
) -> EtcdClusterStatus {
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let (ready, unready): (Vec<_>, Vec<_>) = seen
        .members
        .iter()
        .filter(|(_, member)| counts(seen, member))
        .partition(|(_, member)| member.pod_ready() && member.healthy());
    let names_of = |members: &[(&String, &Member)]| {
        members
            .iter()
            .map(|(name, _)| (*name).clone())
            .collect::<Vec<_>>()
    };
    let ready_members = i32::try_from(ready.len()).unwrap_or(i32::MAX);
    let size = i32::try_from(cluster.size.members()).unwrap_or(i32::MAX);
    let running = running_version(seen);
    // While members that were set aside run, a quorum may still be theirs, and what was not begun here is this resource's only from the
    // moment it is taken over.
    let stopped = seen.aside.values().all(|member| member.pod.is_none());
    let ours = !seen.is_anothers() || matches!(plan.step, Some(Step::Adopt { .. }));
    let cluster_id = before.cluster_id.clone().or_else(|| {
        let quorum = seen.quorum.as_ref().filter(|_| stopped && ours);
        quorum.map(|quorum| format!("{:x}", quorum.cluster_id))
    });
    let available = seen.quorum.is_some();
    let formed = cluster_id.is_some();
    let selector = labels::selector(cluster)
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",");
    let scheme = cluster.client_tls.scheme();
    let client_host = format!(
        "{}.{}.svc",
        names::client_service(cluster),
        cluster.namespace
    );
    let mut conditions = conditions(
        &before.conditions,
        generation,
        seen,
        plan,
        available,
        (ready_members, size, cluster.version),
    );
    backup_health(&mut conditions, generation, cluster, seen);
    EtcdClusterStatus {
        observed_generation: generation,
        conditions,
        phase: Some(phase(plan, available, formed)),
        summary: Some(summary(plan, available, formed)),
        size: Some(i32::try_from(ready.len() + unready.len()).unwrap_or(i32::MAX)),
        ready_members: Some(ready_members),
        ready: Some(format!("{ready_members}/{size}")),
        current_version: running
            .map(|version| version.to_string())
            .or(before.current_version),
        target_version: running
            .filter(|running| *running != cluster.version)
            .map(|_| cluster.version.to_string()),
        upgrade_path: running.map_or(before.upgrade_path, |version| {
            let way = way_to_supported(version);
            way.iter().map(ToString::to_string).collect()
        }),
        cluster_id,
        leader: seen.leader().cloned(),
        service_name: Some(names::client_service(cluster)),
        client_port: Some(CLIENT_PORT),
        client_endpoint: Some(format!("{scheme}://{client_host}:{CLIENT_PORT}")),
        db_size: seen
            .members
            .values()
            .filter_map(|member| member.answer.as_ref())
            .map(|answer| answer.db_size)
            .max()
            .map(bytes),
        volume_size: seen
            .members
            .values()
            .filter_map(|member| member.claim.as_ref()?.requested)
            .max()
            .map(|bytes| Quantity(display_bytes(bytes))),
        selector: Some(selector),
        members: Some(MemberNames {
            ready: names_of(&ready),
            unready: names_of(&unready),
        }),
        member_status: seen
            .members
            .iter()
            .filter(|(_, member)| counts(seen, member))
            .map(|(name, member)| MemberStatus {
                defragmented: defragmented(name, member, seen, plan),
                ..member_status(name, member, seen, &before.member_status)
            })
            .collect(),
        compacted: match plan.step {
            Some(Step::Compact { .. }) => Some(Time(seen.now)),
            _ => seen.compacted.map(Time),
        },
        recovery: match &plan.step {
            Some(Step::RecordRecovery { recovery }) => Some((**recovery).clone()),
            Some(Step::ForgetRecovery) => None,
            _ => before.recovery,
        },
        log_readable_by: log_readable_by(seen, plan).map(|minor| minor.to_string()),
        bootstrap: before.bootstrap,
        accepted: Some(accepted(cluster, seen)),
        origin: before.origin,
    }
}

/// What was acted on. Claims that members are still to move onto may be chosen otherwise, or not at all, until the last one has moved.
fn accepted(cluster: &ValidatedCluster, seen: &Observed) -> Accepted {
    let mut members = seen.members.values();
    let unmoved =
        !is_ephemeral(cluster) && members.any(|member| counts(seen, member) && member.on_scratch());
    if !unmoved {
        return cluster.accepted.clone();
    }
    Accepted {
        ephemeral: Some(true),
        size: None,
        class_name: None,
        persistent_volume_claim_spec: None,
        ..cluster.accepted.clone()
    }
}

/// Stands once it was made sure of, until a member runs that logs what newer ones cannot read.
fn log_readable_by(seen: &Observed, plan: &Plan) -> Option<Minor> {
    if let Some(Step::LogIsReadable { by }) = &plan.step {
        return Some(*by);
    }
    let by = seen.log_readable_by?;
    if plan.step == Some(Step::ForgetReadableLog) {
        return None;
    }
    let logs_newly = seen
        .running()
        .is_none_or(|running| running.lowest().minor() >= rollout::logs_newly_from());
    logs_newly.then_some(by)
}

/// The status of a resource that is held because its spec is not sound: what was last seen stays, nothing is touched. Whether a
/// quorum serves is asked of etcd also then, where that can be.
pub(crate) fn held(
    object: &EtcdCluster,
    now: Timestamp,
    available: Option<bool>,
    reason: Reason,
    message: &str,
) -> EtcdClusterStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    status.observed_generation = generation;
    status.summary = Some(Summary::Stalled);
    let reason = reason.as_str();
    for (type_, value) in [(READY, "False"), (RECONCILING, "False"), (STALLED, "True")] {
        set(
            &mut status.conditions,
            condition(type_, value, reason, message, generation, now),
        );
    }
    let (value, reason, message) = match available {
        Some(true) => ("True", SERVES.0, SERVES.1),
        Some(false) => ("False", NO_QUORUM.0, NO_QUORUM.1),
        None => ("Unknown", reason, "etcd cannot be asked while this is so"),
    };
    set(
        &mut status.conditions,
        condition(AVAILABLE, value, reason, message, generation, now),
    );
    status
}

/// The reason and the message of `Available`.
const SERVES: (&str, &str) = ("QuorumServes", "a quorum serves linearizable reads");
const NO_QUORUM: (&str, &str) = ("NoQuorum", "no quorum serves linearizable reads");

/// Whether a member is part of the cluster: listed by etcd, or, while nobody can say, anything that may be.
fn counts(seen: &Observed, member: &Member) -> bool {
    seen.quorum.is_none() || member.listed.is_some()
}

/// The version the cluster runs: while members differ, the oldest.
fn running_version(seen: &Observed) -> Option<Version> {
    seen.members
        .values()
        .filter_map(|member| member.answer.as_ref()?.version.parse().ok())
        .min()
}

/// In the units quotas are given in, rounded to what a person reads.
fn bytes(size: i64) -> Quantity {
    const MIB: i64 = 1 << 20;
    Quantity(if size < MIB {
        format!("{}Ki", size >> 10)
    } else {
        format!("{}Mi", size / MIB)
    })
}

fn member_status(
    name: &str,
    member: &Member,
    seen: &Observed,
    before: &[MemberStatus],
) -> MemberStatus {
    let healthy = member.healthy();
    let role = member.listed.as_ref().map(|listed| {
        if listed.learner {
            MemberRole::Learner
        } else if seen.leader().is_some_and(|leader| leader == name) {
            MemberRole::Leader
        } else {
            MemberRole::Follower
        }
    });
    let known = before.iter().find(|known| known.name == name);
    let since = known
        .filter(|known| known.healthy == healthy)
        .and_then(|known| known.since.clone())
        .unwrap_or(Time(seen.now));
    let answer = member.answer.as_ref();
    MemberStatus {
        name: name.to_owned(),
        id: member
            .listed
            .as_ref()
            .map(|listed| format!("{:x}", listed.id)),
        role,
        version: answer.map(|answer| answer.version.clone()),
        healthy,
        db_size: answer.map(|answer| bytes(answer.db_size)),
        db_size_in_use: answer.map(|answer| bytes(answer.db_size_in_use)),
        raft_index: answer.and_then(|answer| i64::try_from(answer.raft_index).ok()),
        node: member.pod.as_ref().and_then(|pod| pod.node.clone()),
        since: Some(since),
        defragmented: None,
    }
}

/// Now, if that was this pass's step; a step that failed is no longer part of the plan.
fn defragmented(name: &str, member: &Member, seen: &Observed, plan: &Plan) -> Option<Time> {
    let just_now = matches!(&plan.step, Some(Step::Defragment { name: done }) if done == name);
    just_now
        .then_some(seen.now)
        .or(member.defragmented)
        .map(Time)
}

fn phase(plan: &Plan, available: bool, formed: bool) -> Phase {
    match (&plan.outlook, available, formed) {
        (Outlook::Stalled { .. }, false, _) => Phase::Failed,
        (_, _, false) => Phase::Creating,
        _ => Phase::Running,
    }
}

fn summary(plan: &Plan, available: bool, formed: bool) -> Summary {
    match &plan.outlook {
        Outlook::Working {
            reason: Reason::Paused,
            ..
        } => Summary::Paused,
        Outlook::Working {
            activity: Activity::Creating,
            ..
        } => Summary::Creating,
        Outlook::Stalled { .. } => Summary::Stalled,
        _ if formed && !available => Summary::Unavailable,
        Outlook::Settled => Summary::Healthy,
        Outlook::Working { activity, .. } => match activity {
            Activity::Creating => Summary::Creating,
            Activity::Scaling => Summary::Scaling,
            Activity::Upgrading => Summary::Upgrading,
            Activity::Configuring => Summary::Updating,
            Activity::Recovering => Summary::Recovering,
        },
    }
}

fn conditions(
    before: &[Condition],
    generation: Option<i64>,
    seen: &Observed,
    plan: &Plan,
    available: bool,
    (ready, size, version): (i32, i32, Version),
) -> Vec<Condition> {
    let mut conditions = before.to_vec();
    let mut put = |type_: &str, value: bool, reason: &str, message: &str| {
        let value = if value { "True" } else { "False" };
        set(
            &mut conditions,
            condition(type_, value, reason, message, generation, seen.now),
        );
    };
    let members = format!("{ready} of {size} members ready on {version}");
    match &plan.outlook {
        Outlook::Settled => {
            put(READY, true, "AsSpecified", &members);
            put(RECONCILING, false, "AsSpecified", "nothing left to do");
            put(STALLED, false, "AsSpecified", "nothing in the way");
        }
        Outlook::Working {
            reason, message, ..
        } => {
            put(READY, false, reason.as_str(), message);
            put(
                RECONCILING,
                *reason != Reason::Paused,
                reason.as_str(),
                message,
            );
            put(STALLED, false, reason.as_str(), "nothing in the way");
        }
        Outlook::Stalled { reason, message } => {
            put(READY, false, reason.as_str(), message);
            put(
                RECONCILING,
                false,
                reason.as_str(),
                "a person must act first",
            );
            put(STALLED, true, reason.as_str(), message);
        }
    }
    let (reason, message) = if available { SERVES } else { NO_QUORUM };
    put(AVAILABLE, available, reason, message);
    for (type_, activity, quiet) in [
        (SCALING, Activity::Scaling, "no change of size under way"),
        (
            UPGRADING,
            Activity::Upgrading,
            "no change of version under way",
        ),
        (RECOVERING, Activity::Recovering, "no member to bring back"),
    ] {
        match &plan.outlook {
            Outlook::Working {
                activity: under_way,
                reason,
                message,
            } if *under_way == activity => {
                put(type_, true, reason.as_str(), message);
            }
            _ => put(type_, false, "NotNeeded", quiet),
        }
    }
    conditions
}

/// Only where a backup is relied on; where it cannot be read, what was last known stands.
fn backup_health(
    conditions: &mut Vec<Condition>,
    generation: Option<i64>,
    cluster: &ValidatedCluster,
    seen: &Observed,
) {
    let Some(relied_on) = &cluster.backup else {
        conditions.retain(|known| known.type_ != BACKUP_HEALTHY);
        return;
    };
    if let Some((healthy, reason, message)) = reliance::health(relied_on, &seen.relied, seen.now) {
        let value = if healthy { "True" } else { "False" };
        let new = condition(
            BACKUP_HEALTHY,
            value,
            reason,
            &message,
            generation,
            seen.now,
        );
        set(conditions, new);
    }
}

fn condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    }
}

/// Puts a condition in its place; the time changes only when the status does.
fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    if let Some(known) = conditions.iter_mut().find(|known| known.type_ == new.type_) {
        if known.status == new.status {
            new.last_transition_time = known.last_transition_time.clone();
        }
        *known = new;
    } else {
        conditions.push(new);
    }
}

/// Which fields the installed definition of EtcdCluster has: it may be older than this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Definition {
    Whole,
    /// `status.accepted` is dropped on its way into the API server.
    BeforeAccepted,
}

/// Whether a status says something new. Raft indexes and sizes move with every client's write: alone they are not worth one
/// of ours, or a busy etcd would keep the API server busy too. Nor is what the API server would drop again.
pub(crate) fn worth_writing(
    before: Option<&EtcdClusterStatus>,
    after: &EtcdClusterStatus,
    definition: Definition,
) -> bool {
    let quiet = |status: &EtcdClusterStatus| {
        let mut status = status.clone();
        if definition == Definition::BeforeAccepted {
            status.accepted = None;
        }
        for member in &mut status.member_status {
            member.raft_index = None;
            member.db_size_in_use = None;
            member.db_size = None;
        }
        status
    };
    before.is_none_or(|before| quiet(before) != quiet(after))
}

/// Whether the last status says this condition is true.
pub(crate) fn holds(object: &EtcdCluster, type_: &str) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|known| known.type_ == type_ && known.status == "True")
}

/// A member's pod, for an Event that is about it.
pub(crate) fn pod_reference(cluster: &ValidatedCluster, member: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(member.to_owned()),
        namespace: Some(cluster.namespace.clone()),
        ..ObjectReference::default()
    }
}

//! Gathers one `Observed`: the children from the watch caches, the TLS Secrets by name, and then what etcd itself says.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use etcd_operator_api::{
    ValidatedCluster, Version,
    quantity::Amount,
    v1beta2::{EtcdCluster, EtcdClusterStatus, SEED, Seed, Summary, condition::AVAILABLE},
    validated::ClientTls,
};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{
            ConfigMap, ContainerState, ContainerStatus, PersistentVolumeClaim, Pod, PodStatus,
            Service,
        },
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::ResourceExt;

use super::{
    Context,
    cache::{Cache, Child, Kept},
    certificates::{self, CertificateError},
    children::{labels, pod::is_forced, seeding, services::CLIENT_PORT, starts},
    coreos,
    memory::Secrets,
    names,
    observed::{Awaits, ClaimFacts, Coreos, Listed, Member, Observed, PodFacts, Quorum},
    reliance,
};
use crate::etcd::{self, Answer, Endpoint};

/// What was seen, and what its Secrets were taken to hold.
pub(crate) struct Look {
    pub(crate) seen: Observed,
    pub(crate) members: Vec<String>,
    pub(crate) secrets: Secrets,
    /// The Secrets were not read for this look.
    pub(crate) from_memory: bool,
}

/// Looks at one cluster from every side.
pub(crate) async fn observe(
    context: &Context,
    object: &EtcdCluster,
    cluster: &ValidatedCluster,
    found: Option<&coreos::Found>,
    remembered: impl FnOnce(&[String]) -> Option<Secrets>,
) -> Result<Look, CertificateError> {
    let mut members: BTreeMap<String, Member> = BTreeMap::new();
    for claim in found.iter().flat_map(|found| &found.claims) {
        members.entry(claim.name_any()).or_default().claim = Some(claim_facts(claim));
    }
    for pod in found.iter().flat_map(|found| &found.pods) {
        members.entry(pod.name_any()).or_default().pod = Some(pod_facts(pod));
    }
    for claim in ours(&context.stores.claims, cluster) {
        members.entry(claim.name.clone()).or_default().claim = Some(claim.facts.clone());
    }
    for pod in ours(&context.stores.pods, cluster) {
        members.entry(pod.name.clone()).or_default().pod = Some(pod.facts.clone());
    }
    let status = object.status.clone().unwrap_or_default();
    let kept = set_aside(&status);
    let (aside, mut members): (BTreeMap<_, _>, BTreeMap<_, _>) = members
        .into_iter()
        .partition(|(name, _)| kept.contains(name));
    let starts = ours(&context.stores.config_maps, cluster)
        .find(|map| map.name == cluster.name)
        .and_then(|map| map.facts.read())
        .map(|map| starts::read(&map))
        .unwrap_or_default();
    let founders = status
        .bootstrap
        .iter()
        .flat_map(|record| &record.members)
        .map(|founder| founder.name.clone());
    let known: Vec<String> = members.keys().cloned().chain(founders).collect();
    let rotation_request = object.annotations().get(labels::ROTATE_CA).cloned();
    let remembered = remembered(&known);
    let from_memory = remembered.is_some();
    let mut secrets = match remembered {
        Some(secrets) => secrets,
        None => Secrets {
            certificates: certificates::known(context, cluster, &known, rotation_request.as_ref())
                .await?,
            identity: None,
        },
    };

    // etcd is asked last: what it lists is then at least as new as the children above.
    let (answers, locked_out) = ask_everyone(context, cluster, &members, &mut secrets).await?;
    let cluster_id = status
        .cluster_id
        .as_deref()
        .and_then(|id| u64::from_str_radix(id, 16).ok());
    let quorum = understand(cluster, &mut members, of_one_cluster(answers, cluster_id));
    for known in &status.member_status {
        if let Some(member) = members.get_mut(&known.name) {
            let since = known.since.as_ref().filter(|_| !known.healthy);
            member.unwell_since = since.map(|since| since.0);
            member.defragmented = known.defragmented.as_ref().map(|at| at.0);
        }
    }
    let saved = match (&quorum, cluster_id) {
        (None, Some(_)) => reliance::saved(&context.client, cluster).await,
        _ => None,
    };
    let available = status
        .conditions
        .iter()
        .find(|known| known.type_ == AVAILABLE && known.status == "True");

    let seen = Observed {
        now: Timestamp::now(),
        seed: RandomState::new().hash_one(0_u8),
        cluster_id,
        compacted: status.compacted.as_ref().map(|at| at.0),
        last_ran: status
            .current_version
            .as_deref()
            .and_then(|version| version.parse().ok()),
        log_readable_by: status
            .log_readable_by
            .as_deref()
            .and_then(|minor| format!("{minor}.0").parse().ok())
            .map(Version::minor),
        locked_out,
        available_since: available.map(|known| known.last_transition_time.0),
        was_ready: status
            .summary
            .is_some_and(|summary| summary != Summary::Creating),
        bootstrap: status.bootstrap,
        members,
        quorum,
        aside,
        planted: object.annotations().get(SEED).map(|text| Seed::read(text)),
        recovery_request: object
            .annotations()
            .get(labels::RECOVER_FROM_SURVIVOR)
            .cloned(),
        recovery: status.recovery,
        coreos: found.map(|found| Coreos {
            in_charge: found.in_charge.clone(),
            misfits: found
                .pods
                .iter()
                .filter_map(|pod| coreos::misfit(cluster, pod))
                .collect(),
        }),
        foreign: foreign(context, cluster),
        retained: retained(context, cluster),
        start_afresh: object.annotations().contains_key(labels::START_AFRESH),
        starts,
        certificates: secrets.certificates.clone(),
        rotation_request,
        relied: reliance::look(&context.client, cluster).await,
        saved,
    };
    Ok(Look {
        seen,
        members: known,
        secrets,
        from_memory,
    })
}

/// Members that are no part of the cluster for now, although their claims are kept.
pub(crate) fn set_aside(status: &EtcdClusterStatus) -> BTreeSet<String> {
    let former = status
        .bootstrap
        .iter()
        .filter_map(|record| record.former.as_ref())
        .flat_map(|former| &former.members);
    let others = status
        .recovery
        .iter()
        .filter(|recovery| recovery.finished.is_none())
        .flat_map(|recovery| &recovery.others);
    former.chain(others).cloned().collect()
}

/// Whether a quorum serves, by its own word; nothing else is looked at.
pub(crate) async fn is_served(
    context: &Context,
    object: &EtcdCluster,
    cluster: &ValidatedCluster,
) -> Result<bool, CertificateError> {
    let mut members: BTreeMap<String, Member> = BTreeMap::new();
    for pod in ours(&context.stores.pods, cluster) {
        members.entry(pod.name.clone()).or_default().pod = Some(pod.facts.clone());
    }
    let (answers, _) = ask_everyone(context, cluster, &members, &mut Secrets::default()).await?;
    let recorded = object.status.as_ref().and_then(|status| {
        let id = status.cluster_id.as_deref()?;
        u64::from_str_radix(id, 16).ok()
    });
    let quorum = understand(cluster, &mut members, of_one_cluster(answers, recorded));
    Ok(quorum.is_some_and(|quorum| recorded.is_none_or(|id| id == quorum.cluster_id)))
}

/// Children of this very resource: a namesake's, deleted and re-created, are not.
fn ours<Facts>(
    cache: &Cache<Facts>,
    cluster: &ValidatedCluster,
) -> impl Iterator<Item = Arc<Kept<Facts>>> {
    let mut children = cache.of(cluster);
    children.retain(|child| child.belongs(cluster));
    children.into_iter()
}

/// Fixed names that belong to somebody else, most often a namesake whose children are still being collected.
fn foreign(context: &Context, cluster: &ValidatedCluster) -> Vec<String> {
    let mut taken = Vec::new();
    taken.extend(taken_in::<Service>(&context.stores.services, cluster));
    taken.extend(taken_in::<PodDisruptionBudget>(
        &context.stores.budgets,
        cluster,
    ));
    taken.extend(taken_in::<ConfigMap>(&context.stores.config_maps, cluster));
    taken
}

/// Claims without an owner that say they were another's of this name.
fn retained(context: &Context, cluster: &ValidatedCluster) -> Vec<String> {
    let mut names: Vec<String> = context
        .stores
        .claims
        .of(cluster)
        .into_iter()
        .filter(|claim| !claim.belongs(cluster) && claim.said.is_some() && !claim.terminating)
        .map(|claim| claim.name.clone())
        .collect();
    names.sort();
    names
}

fn taken_in<K: Child>(cache: &Cache<K::Facts>, cluster: &ValidatedCluster) -> Vec<String> {
    cache
        .of(cluster)
        .into_iter()
        .filter(|child| !child.belongs(cluster))
        .filter(|child| child.name == cluster.name || child.name == names::client_service(cluster))
        .map(|child| format!("{} {}", K::kind(&()), child.name))
        .collect()
}

/// What each member answers, and whether some of them let us in nowhere.
async fn ask_everyone(
    context: &Context,
    cluster: &ValidatedCluster,
    members: &BTreeMap<String, Member>,
    secrets: &mut Secrets,
) -> Result<(Vec<(String, Answer)>, bool), CertificateError> {
    let reachable: Vec<(&String, &String)> = members
        .iter()
        .filter_map(|(name, member)| {
            let pod = member.pod.as_ref().filter(|pod| !pod.finished)?;
            Some((name, pod.ip.as_ref()?))
        })
        .collect();
    if reachable.is_empty() {
        return Ok((Vec::new(), false));
    }
    let identity = match secrets.identity.clone() {
        None => certificates::operator_identity(context, cluster).await?,
        remembered => remembered,
    };
    if matches!(cluster.client_tls, ClientTls::Auto { .. }) {
        secrets.identity.clone_from(&identity);
    }
    let asked = reachable.into_iter().map(|(name, ip)| {
        let endpoint = endpoint(cluster, name, ip, identity.as_ref());
        async move { (name, Box::pin(etcd::ask(&endpoint)).await) }
    });
    let (mut answers, mut locked_out) = (Vec::new(), false);
    for (name, answer) in join_all(asked).await {
        match answer {
            Ok(answer) => {
                locked_out |= answer.locked_out;
                answers.push((name.clone(), answer));
            }
            Err(error) => {
                locked_out |= error.is_locked_out();
                tracing::debug!(member = name, %error, "no answer");
            }
        }
    }
    Ok((answers, locked_out))
}

/// Where a member is asked: at its pod's address, under its own name.
pub(crate) fn endpoint(
    cluster: &ValidatedCluster,
    member: &str,
    ip: &str,
    identity: Option<&certificates::OperatorIdentity>,
) -> Endpoint {
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    let scheme = if identity.is_some() { "https" } else { "http" };
    Endpoint {
        url: format!("{scheme}://{host}:{CLIENT_PORT}"),
        tls: identity.map(|identity| etcd::ClientIdentity {
            trusted_ca: identity.trusted_ca.clone(),
            server_name: names::address(cluster, member),
            certificate: identity.certificate.clone(),
        }),
    }
}

/// An address can be taken over by a pod of another etcd: where some answer for this cluster, the others are not heard.
fn of_one_cluster(
    answers: Vec<(String, Answer)>,
    cluster_id: Option<u64>,
) -> Vec<(String, Answer)> {
    let ours = |answer: &Answer| Some(answer.cluster_id) == cluster_id;
    let some_are_ours = answers.iter().any(|(_, answer)| ours(answer));
    answers
        .into_iter()
        .filter(|(_, answer)| !some_are_ours || ours(answer))
        .collect()
}

/// Puts the answers together. Of several linearizable lists, the one from the member furthest along is taken.
fn understand(
    cluster: &ValidatedCluster,
    members: &mut BTreeMap<String, Member>,
    answers: Vec<(String, Answer)>,
) -> Option<Quorum> {
    let vouched = answers
        .iter()
        .filter(|(_, answer)| answer.membership.is_some())
        .max_by_key(|(_, answer)| answer.raft_index)
        .map(|(_, answer)| answer.clone());
    for (name, answer) in answers {
        members.entry(name).or_default().answer = Some(answer);
    }
    let vouched = vouched?;
    let mut strangers = Vec::new();
    for line in vouched.membership.iter().flatten() {
        // By its address; failing that by its own word, for somebody may have changed the address by hand.
        let by_address = line
            .peer_urls
            .iter()
            .find_map(|url| names::member_of_peer_url(cluster, url));
        let by_word = || {
            let says = |member: &Member| {
                member
                    .answer
                    .as_ref()
                    .is_some_and(|answer| answer.member_id == line.id)
            };
            let mut known = members.iter();
            let found = known.find(|(name, member)| **name == line.name || says(member));
            found.map(|(name, _)| name.clone())
        };
        match by_address.or_else(by_word) {
            Some(name) => {
                members.entry(name).or_default().listed = Some(Listed {
                    id: line.id,
                    learner: line.learner,
                    started: line.started,
                });
            }
            None => strangers.push(line.id),
        }
    }
    Some(Quorum {
        cluster_id: vouched.cluster_id,
        leader_id: vouched.leader_id,
        strangers,
    })
}

pub(crate) fn claim_facts(claim: &PersistentVolumeClaim) -> ClaimFacts {
    let storage = |amounts: Option<&BTreeMap<String, Quantity>>| {
        Amount::parse(amounts?.get("storage")?).ok()?.bytes()
    };
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let version = |annotation: &str| claim.annotations().get(annotation)?.parse().ok();
    ClaimFacts {
        uid: claim.uid().unwrap_or_default(),
        terminating: claim.metadata.deletion_timestamp.is_some(),
        requested: storage(spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref())),
        capacity: storage(status.and_then(|status| status.capacity.as_ref())),
        retained: claim.owner_references().is_empty(),
        version: version(labels::CLAIM_VERSION),
        taken_back_from: version(labels::TAKEN_BACK_FROM),
        lost: status.and_then(|status| status.phase.as_deref()) == Some("Lost"),
    }
}

pub(crate) fn pod_facts(pod: &Pod) -> PodFacts {
    let status = pod.status.clone().unwrap_or_default();
    let created = pod
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let container = status
        .container_statuses
        .iter()
        .flatten()
        .find(|container| container.name == "etcd");
    let annotations = pod.metadata.annotations.as_ref();
    PodFacts {
        uid: pod.uid().unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        ip: status.pod_ip.clone().filter(|ip| !ip.is_empty()),
        ready: ready.is_some_and(|condition| condition.status == "True"),
        since: ready
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map_or(created, |time| time.0),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        starting: is_initializing(&status)
            || container.is_some_and(|container| {
                container.started == Some(false)
                    && container
                        .state
                        .as_ref()
                        .is_some_and(|state| state.running.is_some())
            }),
        ran: container.is_some_and(has_run),
        finished: matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")),
        version: pod
            .labels()
            .get(labels::VERSION)
            .and_then(|version| version.parse::<Version>().ok()),
        config: annotations
            .and_then(|annotations| annotations.get(labels::CONFIG))
            .cloned()
            .unwrap_or_default(),
        in_place: annotations
            .and_then(|annotations| serde_json::from_str(annotations.get(labels::IN_PLACE)?).ok())
            .unwrap_or_default(),
        does_not_fit: status.conditions.iter().flatten().any(|condition| {
            condition.type_ == "PodResizePending"
                && condition.status == "True"
                && condition.reason.as_deref() == Some("Infeasible")
        }),
        loads: annotations
            .and_then(|annotations| annotations.get(labels::LOADS))
            .cloned(),
        scratch: is_on_scratch(pod),
        adopted: is_adopted(pod),
        forced: is_forced(pod),
        restarts: container.map_or(0, |container| container.restart_count),
        awaits: annotations
            .filter(|annotations| annotations.contains_key(labels::NEWCOMER))
            .and_then(|_| awaits(container)),
        trouble: container
            .and_then(waiting)
            .or_else(|| seeding::trouble(pod))
            .or_else(|| unschedulable(pod)),
    }
}

/// Whether its data go with it. CoreOS called the volume otherwise.
fn is_on_scratch(pod: &Pod) -> bool {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let mut data = volumes.filter(|volume| volume.name == "data" || volume.name == "etcd-data");
    data.any(|volume| volume.empty_dir.is_some())
}

/// Whether CoreOS's operator made it. No pod of ours is started only once.
pub(crate) fn is_adopted(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| spec.restart_policy.as_deref() == Some("Never"))
}

/// Its volume is being filled, which takes as long as it takes.
fn is_initializing(status: &PodStatus) -> bool {
    let mut first = status.init_container_statuses.iter().flatten();
    first.any(|container| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    })
}

fn has_run(container: &ContainerStatus) -> bool {
    let ended = |state: &ContainerState| state.terminated.is_some();
    let state = container.state.as_ref();
    container.restart_count > 0
        || state.is_some_and(|state| state.running.is_some() || ended(state))
        || container.last_state.as_ref().is_some_and(ended)
}

/// What a pod whose etcd has never been started waits for. The kubelet asks how to start it last of all.
fn awaits(container: Option<&ContainerStatus>) -> Option<Awaits> {
    let Some(container) = container else {
        return Some(Awaits::Place);
    };
    if has_run(container) {
        return None;
    }
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    Some(match waiting.reason.as_deref() {
        Some("CreateContainerConfigError") => Awaits::Word,
        _ => Awaits::Place,
    })
}

/// `CrashLoopBackOff: back-off …`, `ImagePullBackOff: …`; the normal stages of a start are no trouble.
fn waiting(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"))?;
    Some(waiting.message.as_ref().map_or_else(
        || reason.to_owned(),
        |message| format!("{reason}: {message}"),
    ))
}

fn unschedulable(pod: &Pod) -> Option<String> {
    let scheduled = pod
        .status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == "PodScheduled")?;
    (scheduled.status == "False").then(|| {
        format!(
            "{}: {}",
            scheduled.reason.as_deref().unwrap_or("Unscheduled"),
            scheduled.message.as_deref().unwrap_or("")
        )
    })
}

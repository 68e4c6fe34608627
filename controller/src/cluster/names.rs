//! Names: members, children, addresses. One place, so that two builders never disagree.

use std::collections::BTreeSet;

use etcd_operator_api::ValidatedCluster;
use sha2::{Digest, Sha256};

use super::observed::Observed;

/// Letters that spell no word and are not mistaken for one another.
const ALPHABET: &[u8] = b"bcdfghjkmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// The founders' names. They follow from the resource's UID, so a crash before they are recorded changes nothing, and a
/// re-created resource of the same name has other members.
pub(super) fn founders(cluster: &ValidatedCluster) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut counter = 0_u64;
    while names.len() < cluster.size.members() {
        let name = member(cluster, counter);
        if !names.contains(&name) {
            names.push(name);
        }
        counter += 1;
    }
    names
}

/// Founders of a further incarnation of the same resource: named after its token, and like nobody who is known.
pub(crate) fn founders_of(
    cluster: &ValidatedCluster,
    token: &str,
    taken: &BTreeSet<String>,
) -> Vec<String> {
    let digest = Sha256::digest(token);
    let mut counter = digest
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let mut names: Vec<String> = Vec::new();
    while names.len() < cluster.size.members() {
        let name = member(cluster, counter);
        if !names.contains(&name) && !taken.contains(&name) {
            names.push(name);
        }
        counter = counter.wrapping_add(1);
    }
    names
}

/// A name for one more member, never used before.
pub(super) fn newcomer(cluster: &ValidatedCluster, seen: &Observed) -> String {
    let taken = |name: &String| {
        seen.members.contains_key(name)
            || seen
                .bootstrap
                .iter()
                .flat_map(|record| &record.members)
                .any(|founder| founder.name == *name)
    };
    let mut counter = seen.seed;
    loop {
        let name = member(cluster, counter);
        if !taken(&name) {
            return name;
        }
        counter = counter.wrapping_add(1);
    }
}

/// etcd's `initial-cluster-token`: unique per resource, so that members of different clusters never talk to one another.
pub(super) fn token(cluster: &ValidatedCluster) -> String {
    cluster.uid.clone()
}

fn member(cluster: &ValidatedCluster, counter: u64) -> String {
    let digest = Sha256::new()
        .chain_update(&cluster.uid)
        .chain_update(counter.to_be_bytes())
        .finalize();
    let suffix: String = digest
        .iter()
        .take(SUFFIX_LENGTH)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect();
    format!("{}-{suffix}", cluster.name)
}

/// The headless Service, the ConfigMap and the PodDisruptionBudget are called like the cluster.
pub(super) fn headless_service(cluster: &ValidatedCluster) -> &str {
    &cluster.name
}

pub(super) fn client_service(cluster: &ValidatedCluster) -> String {
    format!("{}-client", cluster.name)
}

/// `<member>.<cluster>.<namespace>.svc`.
pub(super) fn address(cluster: &ValidatedCluster, member: &str) -> String {
    format!("{member}.{}.{}.svc", cluster.name, cluster.namespace)
}

/// The cluster's DNS domain. Members are addressed without it, so it matters only to certificates.
pub(super) fn domain(cluster: &ValidatedCluster) -> &str {
    cluster.cluster_domain.as_deref().unwrap_or("cluster.local")
}

pub(super) fn peer_url(cluster: &ValidatedCluster, member: &str) -> String {
    format!(
        "{}://{}:2380",
        cluster.peer_tls.scheme(),
        address(cluster, member)
    )
}

pub(super) fn client_url(cluster: &ValidatedCluster, member: &str) -> String {
    format!(
        "{}://{}:2379",
        cluster.client_tls.scheme(),
        address(cluster, member)
    )
}

/// Which member a peer URL belongs to, if it can be one of ours. The scheme is not looked at: a change of TLS mode changes it.
pub(super) fn member_of_peer_url(cluster: &ValidatedCluster, url: &str) -> Option<String> {
    let host = url.split_once("://")?.1.rsplit_once(':')?.0;
    let member = host.strip_suffix(&format!(".{}.{}.svc", cluster.name, cluster.namespace))?;
    member
        .starts_with(&format!("{}-", cluster.name))
        .then(|| member.to_owned())
}

/// `initial-cluster` for these members.
pub(super) fn initial_cluster<'a>(
    cluster: &ValidatedCluster,
    members: impl IntoIterator<Item = &'a String>,
) -> String {
    members
        .into_iter()
        .map(|member| format!("{member}={}", peer_url(cluster, member)))
        .collect::<Vec<_>>()
        .join(",")
}

/// The Secret that holds the CA of a cluster's peer certificates.
pub(super) fn peer_ca_secret(cluster: &ValidatedCluster) -> String {
    format!("{}-peer-ca", cluster.name)
}

/// The Secret that holds one member's peer certificate.
pub(super) fn peer_secret(member: &str) -> String {
    format!("{member}-peer")
}

pub(super) fn client_ca_secret(cluster: &ValidatedCluster) -> String {
    format!("{}-client-ca", cluster.name)
}

/// The Secret that holds one member's server certificate for clients.
pub(super) fn server_secret(member: &str) -> String {
    format!("{member}-server")
}

/// The Secret applications mount to be let in.
pub(super) fn client_secret(cluster: &ValidatedCluster) -> String {
    format!("{}-client-tls", cluster.name)
}

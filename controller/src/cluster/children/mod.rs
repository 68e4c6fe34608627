//! What a cluster consists of in Kubernetes, as pure builders: from a sound spec to the objects. No I/O.

pub mod budget;
pub mod claim;
mod flags;
pub mod labels;
pub mod pod;
pub mod services;
pub mod starts;
pub mod tls;

use etcd_operator_api::{ValidatedCluster, Version};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A fingerprint of what the spec asks of a member's pod. It is made from the user's wishes, not from the rendered pod, so
/// that an operator upgrade that renders pods a little differently does not restart every cluster it finds.
/// The version is not part of it: it has rules of its own.
pub(crate) fn fingerprint(cluster: &ValidatedCluster, member: &str) -> String {
    let secret_of = |mounted: Option<tls::Mounted>| mounted.map(|mounted| mounted.secret);
    let pod = &cluster.pod;
    let wishes = json!({
        "repository": cluster.repository,
        "flags": flags::from_options(cluster),
        "featureGates": cluster.feature_gates,
        "labels": pod.labels,
        "annotations": pod.annotations,
        "nodeSelector": pod.node_selector,
        "affinity": pod.affinity,
        "antiAffinity": pod.anti_affinity,
        "resources": pod.resources,
        "tolerations": pod.tolerations,
        "spread": pod.topology_spread_constraints,
        "environment": pod.environment,
        "securityContext": pod.security_context,
        "priorityClass": pod.priority_class_name,
        "serviceAccount": pod.service_account_name,
        "pullSecrets": pod.image_pull_secrets,
        "graceSeconds": pod.termination_grace_period.as_secs(),
        "peer": secret_of(tls::peer(cluster, member)),
        "server": secret_of(tls::server(cluster, member)),
        "clientAuth": cluster.client_tls.client_auth(),
    });
    let digest = Sha256::digest(wishes.to_string());
    let first = digest
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{first:016x}")
}

/// The same cluster at another version: for a member whose turn has not come yet.
pub(crate) fn at_version(cluster: &ValidatedCluster, version: Version) -> ValidatedCluster {
    ValidatedCluster {
        version,
        image: format!("{}:v{version}", cluster.repository),
        ..cluster.clone()
    }
}

/// Whether everything we want is there as we want it; what others added beside it is theirs.
pub(crate) fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| live.get(key).is_some_and(|found| contains(found, value))),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live
                    .iter()
                    .zip(wanted)
                    .all(|(live, wanted)| contains(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

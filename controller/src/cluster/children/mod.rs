//! What a cluster consists of in Kubernetes, as pure builders: from a sound spec to the objects. No I/O.

pub mod budget;
pub mod claim;
pub(crate) mod flags;
pub mod labels;
pub mod pod;
mod probes;
pub mod seeding;
pub mod services;
pub mod starts;
pub mod tls;

use std::collections::BTreeMap;

use etcd_operator_api::{ValidatedCluster, Version};
use k8s_openapi::api::core::v1::ResourceRequirements;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// A fingerprint of what the spec asks of a member's pod. It is made from the user's wishes, not from the rendered pod, so
/// that an operator upgrade that renders pods a little differently does not restart every cluster it finds.
/// The version is not part of it: it has rules of its own. Neither is what can be changed without a restart.
pub(crate) fn fingerprint(cluster: &ValidatedCluster, member: &str) -> String {
    let secret_of = |mounted: Option<tls::Mounted>| mounted.map(|mounted| mounted.secret);
    let pod = &cluster.pod;
    let wishes = json!({
        "repository": cluster.repository,
        "flags": flags::from_options(cluster),
        "featureGates": cluster.feature_gates,
        "nodeSelector": pod.node_selector,
        "affinity": pod.affinity,
        "antiAffinity": pod.anti_affinity,
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

/// What the spec asks of a member's pod that Kubernetes changes in place. Kept on the pod as it was last done, so that what the
/// spec no longer asks for can be told from what others have put there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InPlace {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

impl InPlace {
    pub(crate) fn of(cluster: &ValidatedCluster) -> Self {
        Self {
            labels: cluster.pod.labels.clone(),
            annotations: cluster.pod.annotations.clone(),
            resources: cluster.pod.resources.clone(),
        }
    }

    pub(crate) fn text(&self) -> String {
        json!(self).to_string()
    }

    /// The change of a pod's metadata from what was last done to this.
    pub(crate) fn metadata_since(&self, before: &Self) -> Value {
        let change = |before: &BTreeMap<String, String>, after: &BTreeMap<String, String>| {
            let gone = before.keys().filter(|key| !after.contains_key(*key));
            let gone = gone.map(|key| (key.clone(), Value::Null));
            let there = after
                .iter()
                .map(|(key, value)| (key.clone(), Value::from(value.as_str())));
            gone.chain(there).collect::<Map<String, Value>>()
        };
        let mut annotations = change(&before.annotations, &self.annotations);
        annotations.insert(labels::IN_PLACE.to_owned(), self.text().into());
        json!({"labels": change(&before.labels, &self.labels), "annotations": annotations})
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_labels_takes_back_what_the_spec_no_longer_says_and_nothing_else() {
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let before = InPlace {
            labels: one("team", "a"),
            annotations: one("note", "old"),
            resources: None,
        };
        let after = InPlace {
            labels: one("tier", "b"),
            annotations: one("note", "new"),
            resources: None,
        };
        let change = after.metadata_since(&before);
        assert_eq!(change["labels"], json!({"team": null, "tier": "b"}));
        assert_eq!(change["annotations"]["note"], "new");
        assert_eq!(change["annotations"][labels::IN_PLACE], after.text());
    }
}

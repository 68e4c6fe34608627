//! How the members' Pods are made. CoreOS's names, odd cases included, and a few more of the same kind.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, PersistentVolumeClaimSpec, PodSecurityContext,
    ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the members' Pods are made and where they run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodPolicy {
    /// Labels added to the Pods. The operator's own (`app`, `etcd_*`, `app.kubernetes.io/*`, `etcd.database.coreos.com/*`)
    /// are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,

    /// Annotations added to the Pods. `etcd.version` and `etcd.database.coreos.com/*` are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,

    /// Run only on nodes that carry all these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Scheduling constraints, as in a Pod. Default: members prefer different nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// No two members of this cluster on the same node. Only where `affinity` is not set. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<bool>,

    /// CPU and memory of the etcd container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Taints the Pods tolerate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,

    /// How the Pods spread over zones and nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,

    /// Environment variables of the etcd container. `ETCD_*` names set etcd's flags: what the operator owns is refused, what
    /// has a field in `options` is read as if it stood there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_env: Option<Vec<EnvVar>>,

    /// The members' volume claims in full. Prefer `storage`; not together with it. It may ask for more storage later;
    /// nothing else in it can be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_spec: Option<PersistentVolumeClaimSpec>,

    /// The security context of the whole Pod. Default: a non-root user that satisfies the restricted Pod Security Standard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,

    /// The PriorityClass of the Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// The service account of the Pods. Default: the namespace's default one, without its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// Secrets to pull the image with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,

    /// Seconds a member has to stop, 1 to 3600; it hands over leadership first, so less than 30 warns. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,

    /// No longer used: no Pod of this operator has a busybox container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busybox_image: Option<String>,

    /// No longer used: members wait for DNS by themselves.
    #[serde(
        rename = "DNSTimeoutInSecond",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub dns_timeout_in_second: Option<i64>,

    /// The DNS domain of the Kubernetes cluster, such as `cluster.local`. Default: members are addressed without it.
    #[serde(
        rename = "ClusterDomain",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_domain: Option<String>,
}

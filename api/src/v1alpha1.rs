//! The early form of EtcdCluster, served through conversion: `replicas`, `version`, `storage`, and the same status.
//!
//! What only `v1beta2` can say is kept in an annotation while an object is seen in this form (see `conversion`).

// Printer columns repeat their words; the lint takes that for a slip.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1beta2::EtcdClusterStatus;

/// `apiVersion` of this form.
pub const API_VERSION: &str = "etcd.database.coreos.com/v1alpha1";

/// What the etcd cluster should be. Prefer v1beta2, which can say more.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1alpha1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    singular = "etcdcluster",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    doc = "EtcdCluster is an etcd cluster that the operator creates, heals, scales and upgrades.",
    shortname = "etcd",
    shortname = "etcdclus",
    category = "etcd",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.readyMembers",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.summary"),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.currentVersion"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// How many members: 1, 3, 5 or 7. `size` in v1beta2. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// The etcd version, `X.Y.Z`. Default: the operator's default version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Size of each member's volume, such as `8Gi`. `storage.size` in v1beta2. Default: `8Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Quantity>,
}

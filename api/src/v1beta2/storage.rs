//! Where a member keeps its data.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where each member keeps its data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// Size of each member's volume, such as `8Gi`. It may grow, never shrink, and must be larger than
    /// `options.quotaBackend`. Default: `8Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,

    /// The StorageClass of the volumes. Cannot be changed later. Default: the Kubernetes cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,

    /// Keep the data in the Pod's own scratch space (emptyDir): a member that loses its Pod loses its data, and a cluster
    /// that loses most of its Pods at once is lost. Cannot be changed later. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<bool>,

    /// What happens to the volumes when this EtcdCluster is deleted: `Delete`, or `Retain` to keep them. Default: `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
}

/// What happens to the volumes when the cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reclaim {
    #[default]
    Delete,
    Retain,
}

//! The Services in front of the cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Services in front of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// The Service clients use, `<name>-client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientServiceSpec>,
}

/// The Service clients use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientServiceSpec {
    /// `ClusterIP`, `NodePort` or `LoadBalancer`. Default: `ClusterIP`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<ClientServiceType>,

    /// Annotations added to the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,

    /// Labels added to the Service; the operator's own are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// How the client Service is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientServiceType {
    #[default]
    ClusterIP,
    NodePort,
    LoadBalancer,
}

impl ClientServiceType {
    /// The word Kubernetes takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

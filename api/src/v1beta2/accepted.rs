//! What was last acted on, of that which may not change freely afterwards.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::security::TlsMode;
use super::status::known_or_none;

/// What of the spec the operator last acted on, of that which may not change freely afterwards. A change that nobody refused is
/// judged against it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// Size of each member's volume.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub size: Option<Quantity>,

    /// The StorageClass of the volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,

    /// Whether the data are in the Pods' scratch space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<bool>,

    /// `pod.persistentVolumeClaimSpec` without the size it asks for.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub persistent_volume_claim_spec: Option<Box<PersistentVolumeClaimSpec>>,

    /// How members talk to each other.
    #[serde(
        rename = "peerTLS",
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub peer_tls: Option<TlsMode>,

    /// How clients talk to the members.
    #[serde(
        rename = "clientTLS",
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub client_tls: Option<TlsMode>,
}

impl Accepted {
    /// Whether the data are in the Pods' scratch space.
    pub fn is_ephemeral(&self) -> bool {
        self.ephemeral == Some(true)
    }
}

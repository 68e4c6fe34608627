//! TLS: the operator's own words (`security`) and CoreOS's (`TLS`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS between members and towards clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecuritySpec {
    /// TLS between the members.
    #[serde(rename = "peerTLS", default, skip_serializing_if = "Option::is_none")]
    pub peer_tls: Option<PeerTlsSpec>,

    /// TLS between clients and the members.
    #[serde(rename = "clientTLS", default, skip_serializing_if = "Option::is_none")]
    pub client_tls: Option<ClientTlsSpec>,
}

/// Where certificates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsMode {
    Auto,
    Secret,
    Off,
}

impl TlsMode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "Auto",
            Self::Secret => "Secret",
            Self::Off => "Off",
        }
    }
}

/// TLS between the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerTlsSpec {
    /// `Auto`: the operator runs a certificate authority for this cluster and gives each member its own certificate.
    /// `Secret`: certificates from `secretName`. `Off`: plain text. Cannot be changed once the cluster runs. Default: `Auto`,
    /// or `Secret` where `secretName` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TlsMode>,

    /// With mode `Secret`: a Secret in the same namespace with the keys `tls.crt`, `tls.key` and `ca.crt`. The certificate
    /// needs the usages server and client authentication and must name every member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
}

/// TLS between clients and the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientTlsSpec {
    /// `Auto`: the operator runs a certificate authority for this cluster and issues server and client certificates.
    /// `Secret`: certificates from `secretName`. `Off`: plain text. Cannot be changed once the cluster runs.
    /// Default: `Off`, or `Secret` where `secretName` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<TlsMode>,

    /// With mode `Secret`: a Secret in the same namespace with the keys `tls.crt`, `tls.key` and `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,

    /// Whether clients must show a certificate signed by the same authority. Only with mode `Auto` or `Secret`.
    /// Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_auth: Option<bool>,
}

/// TLS as the CoreOS operator read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsPolicy {
    /// Certificates from Secrets.
    #[serde(rename = "static", default, skip_serializing_if = "Option::is_none")]
    pub static_: Option<StaticTls>,
}

/// Certificates from Secrets, in CoreOS's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticTls {
    /// The members' Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberSecrets>,

    /// Secret with the operator's own client certificate: keys `etcd-client.crt`, `etcd-client.key`, `etcd-client-ca.crt`.
    /// Required exactly where `member.serverSecret` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_secret: Option<String>,
}

/// The members' Secrets, in CoreOS's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberSecrets {
    /// Secret for TLS between members: keys `peer.crt`, `peer.key`, `peer-ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_secret: Option<String>,

    /// Secret for TLS towards clients: keys `server.crt`, `server.key`, `server-ca.crt`. Clients must show a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_secret: Option<String>,
}

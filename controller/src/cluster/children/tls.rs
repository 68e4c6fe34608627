//! Which Secrets a member's pod mounts for TLS, and under which names its files appear.

use etcd_operator_api::{
    ValidatedCluster,
    validated::{ClientTls, PeerTls, SecretKeys},
};

use crate::cluster::names;

/// A Secret mounted into the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) volume: &'static str,
    pub(crate) secret: String,
    pub(crate) directory: &'static str,
    keys: SecretKeys,
}

impl Mounted {
    pub(crate) fn certificate_file(&self) -> String {
        format!("{}/{}", self.directory, self.keys.certificate)
    }

    pub(crate) fn key_file(&self) -> String {
        format!("{}/{}", self.directory, self.keys.key)
    }

    pub(crate) fn authority_file(&self) -> String {
        format!("{}/{}", self.directory, self.keys.authority)
    }
}

pub(crate) fn peer(cluster: &ValidatedCluster, member: &str) -> Option<Mounted> {
    let (secret, keys) = match &cluster.peer_tls {
        PeerTls::Off => return None,
        PeerTls::Auto => (names::peer_secret(member), SecretKeys::STANDARD),
        PeerTls::Secret(secret) => (secret.name.clone(), secret.keys),
    };
    Some(Mounted {
        volume: "peer-tls",
        secret,
        directory: "/etc/etcd/peer",
        keys,
    })
}

pub(crate) fn server(cluster: &ValidatedCluster, member: &str) -> Option<Mounted> {
    let (secret, keys) = match &cluster.client_tls {
        ClientTls::Off => return None,
        ClientTls::Auto { .. } => (names::server_secret(member), SecretKeys::STANDARD),
        ClientTls::Secret { server, .. } => (server.name.clone(), server.keys),
    };
    Some(Mounted {
        volume: "server-tls",
        secret,
        directory: "/etc/etcd/server",
        keys,
    })
}

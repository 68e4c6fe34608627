//! How an agent reaches a cluster's etcd: where, and with which certificate.

use std::time::Duration;

use etcd_operator_api::{
    ValidatedCluster,
    v1beta2::EtcdClusterStatus,
    validated::{CertificateSecret, ClientTls, SecretKeys},
};
use etcd_operator_certs::{LeafRequest, Name, Usage};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};

use super::{
    authorities::{self, Authority},
    certificates::{CertificateError, OPERATOR_USER},
    children::services::CLIENT_PORT,
    names,
};

/// Which certificate lets an agent in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// None is asked for.
    Plain,
    /// The operator issues one.
    Issued,
    /// The one the user gave the operator.
    Users(CertificateSecret),
}

pub(crate) fn admission(cluster: &ValidatedCluster) -> Admission {
    match &cluster.client_tls {
        ClientTls::Off => Admission::Plain,
        ClientTls::Auto { .. } => Admission::Issued,
        ClientTls::Secret { operator, .. } => Admission::Users(operator.clone()),
    }
}

/// Client URLs of every member that is known; the Service's where none is.
pub(crate) fn endpoints(cluster: &ValidatedCluster, status: &EtcdClusterStatus) -> Vec<String> {
    let members = status.member_status.iter().map(|member| &member.name);
    let mut urls: Vec<String> = members
        .map(|member| names::client_url(cluster, member))
        .collect();
    if urls.is_empty() {
        urls.push(format!(
            "{}://{}.{}.svc:{CLIENT_PORT}",
            cluster.client_tls.scheme(),
            names::client_service(cluster),
            cluster.namespace
        ));
    }
    urls
}

/// Issues a client certificate that etcd takes for `root`, into a Secret of the agent's own. Whoever can read it there can read the
/// authority's key beside it: it opens nothing that was closed.
pub(crate) async fn issue(
    client: &Client,
    cluster: &ValidatedCluster,
    metadata: ObjectMeta,
    lifetime: Duration,
    now: Timestamp,
) -> Result<(), CertificateError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &cluster.namespace);
    let authority = names::client_ca_secret(cluster);
    let Authority { set, .. } =
        authorities::read(&api, cluster, &authority)
            .await?
            .ok_or(CertificateError::Missing {
                secret: authority.clone(),
            })?;
    let request = LeafRequest {
        common_name: OPERATOR_USER.to_owned(),
        names: vec![Name::Dns("etcd-operator-agent".to_owned())],
        usage: Usage::Client,
        lifetime,
    };
    let leaf = set
        .signer()
        .issue(&request, now)
        .map_err(|source| CertificateError::Content {
            secret: authority,
            source,
        })?;
    let keys = SecretKeys::STANDARD;
    let data = [
        (keys.certificate, leaf.certificate_pem().to_owned()),
        (keys.key, leaf.key_pem().to_owned()),
        (keys.authority, set.bundle_pem()),
    ];
    let secret = metadata.name.clone().unwrap_or_default();
    let object = Secret {
        metadata,
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(
            data.into_iter()
                .map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())))
                .collect(),
        ),
        ..Secret::default()
    };
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        // Made before we died, for the same run.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(source) => Err(CertificateError::Api { secret, source }),
    }
}

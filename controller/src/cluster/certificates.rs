//! The TLS Secrets of a cluster: an authority per purpose, a leaf per member, one certificate for applications, and the
//! operator's own, which never leaves memory. Secrets are read by name; none is listed or watched.

use std::{collections::BTreeMap, time::Duration};

use etcd_operator_api::{
    ValidatedCluster,
    validated::{CertificateSecret, ClientTls, PeerTls, SecretKeys},
};
use etcd_operator_certs::{
    CertError, CertificateAuthority, Jitter, Leaf, LeafRequest, Name, Usage, renew_at,
};
use futures::future::{join_all, try_join_all};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};

use super::{
    Context,
    children::labels::{self, Labels},
    names,
};

/// An authority is for the life of the cluster.
const AUTHORITY_LIFETIME: Duration = Duration::from_hours(24 * 365 * 10);
/// Leaves are renewed in place at two thirds of their life.
const LEAF_LIFETIME: Duration = Duration::from_hours(24 * 90);
/// The operator's own is made anew at every look.
const OPERATOR_LIFETIME: Duration = Duration::from_hours(1);
/// etcd takes the common name of a client certificate as its user; `root` may do what the operator must.
const OPERATOR_USER: &str = "root";

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("Secret {secret} could not be read or written")]
    Api { secret: String, source: kube::Error },
    #[error("Secret {secret} cannot be used")]
    Content { secret: String, source: CertError },
    #[error(
        "Secret {secret} does not exist: put it back from a backup; without it no certificate can be renewed"
    )]
    Missing { secret: String },
    #[error(
        "Secret {secret} belongs to something else, most likely a former cluster of this name that is still being deleted"
    )]
    Foreign { secret: String },
    #[error("Secret {secret} has no key `{key}`")]
    MissingKey { secret: String, key: &'static str },
}

impl CertificateError {
    /// The Secret is not what it must be; only whoever made it can change that.
    pub(crate) fn needs_a_person(&self) -> bool {
        !matches!(self, Self::Api { .. } | Self::Foreign { .. })
    }
}

/// What the operator shows to etcd, and whom it believes.
#[derive(Clone, Debug)]
pub(crate) struct OperatorIdentity {
    pub(crate) trusted_ca: String,
    pub(crate) certificate: Option<(String, String)>,
}

/// One purpose for which the operator runs an authority of its own.
struct Purpose {
    authority_secret: String,
    subject: String,
    leaf_secret: fn(&str) -> String,
    usage: Usage,
    /// Names beside the member's own under which it is reached.
    shared_names: Vec<String>,
}

fn purposes(cluster: &ValidatedCluster) -> Vec<Purpose> {
    let mut purposes = Vec::new();
    if matches!(cluster.peer_tls, PeerTls::Auto) {
        purposes.push(Purpose {
            authority_secret: names::peer_ca_secret(cluster),
            subject: format!("etcd peers {}", cluster.uid),
            leaf_secret: names::peer_secret,
            usage: Usage::Peer,
            shared_names: Vec::new(),
        });
    }
    if matches!(cluster.client_tls, ClientTls::Auto { .. }) {
        let service = format!(
            "{}.{}.svc",
            names::client_service(cluster),
            cluster.namespace
        );
        purposes.push(Purpose {
            authority_secret: names::client_ca_secret(cluster),
            subject: format!("etcd clients {}", cluster.uid),
            leaf_secret: names::server_secret,
            // etcd's gateway calls its own server with the server's certificate.
            usage: Usage::Peer,
            shared_names: vec![
                names::client_service(cluster),
                format!("{}.{}", names::client_service(cluster), cluster.namespace),
                format!("{service}.{}", names::domain(cluster)),
                service,
                "localhost".to_owned(),
                "127.0.0.1".to_owned(),
            ],
        });
    }
    purposes
}

/// When each member's certificates are due for renewal; members that lack one are left out. `None` where we issue none.
pub(crate) async fn due(
    context: &Context,
    cluster: &ValidatedCluster,
    members: &[String],
) -> Result<Option<BTreeMap<String, Timestamp>>, CertificateError> {
    let purposes = purposes(cluster);
    if purposes.is_empty() {
        return Ok(None);
    }
    let api = secrets(context, cluster);
    let shared = match cluster.client_tls {
        ClientTls::Auto { .. } => vec![names::client_secret(cluster)],
        _ => Vec::new(),
    };
    let found = join_all(members.iter().map(|member| {
        let wanted: Vec<String> = purposes
            .iter()
            .map(|purpose| (purpose.leaf_secret)(member))
            .chain(shared.clone())
            .collect();
        let api = &api;
        async move {
            let leaves = try_join_all(wanted.iter().map(|secret| leaf_due(api, secret))).await?;
            Ok((member, leaves.into_iter().collect::<Option<Vec<_>>>()))
        }
    }))
    .await;
    let mut due = BTreeMap::new();
    for one in found {
        let (member, leaves) = one?;
        if let Some(first) = leaves.and_then(|leaves| leaves.into_iter().min()) {
            due.insert(member.clone(), first);
        }
    }
    Ok(Some(due))
}

/// When a leaf is due; none where there is no leaf that works.
async fn leaf_due(api: &Api<Secret>, secret: &str) -> Result<Option<Timestamp>, CertificateError> {
    let Some(found) = get(api, secret).await? else {
        return Ok(None);
    };
    let leaf =
        text(&found, SecretKeys::STANDARD.certificate).zip(text(&found, SecretKeys::STANDARD.key));
    Ok(leaf
        .and_then(|(certificate, key)| Leaf::from_pem(&certificate, &key).ok())
        .map(|leaf| renew_at(leaf.validity(), Jitter::NONE)))
}

/// Issues what these members lack or what is due, and the applications' certificate with it.
///
/// The authority is made only while the cluster is: members trust the one they loaded when they started, so a new one in
/// its place would part them from one another.
pub(crate) async fn issue(
    context: &Context,
    cluster: &ValidatedCluster,
    members: &[String],
    now: Timestamp,
    founding: bool,
) -> Result<(), CertificateError> {
    let api = secrets(context, cluster);
    for purpose in purposes(cluster) {
        let authority = authority(&api, cluster, &purpose, now, founding).await?;
        try_join_all(members.iter().map(|member| {
            let address = names::address(cluster, member);
            let mut san = vec![format!("{address}.{}", names::domain(cluster)), address];
            san.extend(purpose.shared_names.iter().cloned());
            let request = Wanted {
                secret: (purpose.leaf_secret)(member),
                labels: labels::of_member(cluster, member),
                common_name: member.clone(),
                names: san,
                usage: purpose.usage,
            };
            ensure_leaf(&api, cluster, &authority, request, now)
        }))
        .await?;
        if purpose.authority_secret == names::client_ca_secret(cluster) {
            let request = Wanted {
                secret: names::client_secret(cluster),
                labels: labels::of_cluster(cluster),
                common_name: format!("{}-client", cluster.name),
                names: vec![names::client_service(cluster)],
                usage: Usage::Client,
            };
            ensure_leaf(&api, cluster, &authority, request, now).await?;
        }
    }
    Ok(())
}

/// Removes the Secrets of a member that is gone.
pub(crate) async fn forget(
    context: &Context,
    cluster: &ValidatedCluster,
    member: &str,
) -> Result<(), CertificateError> {
    let api = secrets(context, cluster);
    for secret in [names::peer_secret(member), names::server_secret(member)] {
        let Some(found) = get(&api, &secret).await? else {
            continue;
        };
        if !found
            .owner_references()
            .iter()
            .any(|owner| owner.uid == cluster.uid)
        {
            continue;
        }
        let exactly = DeleteParams::default().preconditions(kube::api::Preconditions {
            uid: found.uid(),
            resource_version: None,
        });
        match api.delete(&secret, &exactly).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(source) => return Err(CertificateError::Api { secret, source }),
        }
    }
    Ok(())
}

/// What the operator uses to talk to this cluster's members; none on plain HTTP.
pub(crate) async fn operator_identity(
    context: &Context,
    cluster: &ValidatedCluster,
) -> Result<Option<OperatorIdentity>, CertificateError> {
    let api = secrets(context, cluster);
    match &cluster.client_tls {
        ClientTls::Off => Ok(None),
        ClientTls::Auto { .. } => {
            let secret = names::client_ca_secret(cluster);
            let now = Timestamp::now();
            let authority =
                read_authority(&api, cluster, &secret)
                    .await?
                    .ok_or(CertificateError::Missing {
                        secret: secret.clone(),
                    })?;
            let request = LeafRequest {
                common_name: OPERATOR_USER.to_owned(),
                names: vec![Name::Dns("etcd-operator".to_owned())],
                usage: Usage::Client,
                lifetime: OPERATOR_LIFETIME,
            };
            let leaf = authority
                .issue(&request, now)
                .map_err(|source| CertificateError::Content { secret, source })?;
            Ok(Some(OperatorIdentity {
                trusted_ca: authority.certificate_pem().to_owned(),
                certificate: Some((leaf.certificate_pem().to_owned(), leaf.key_pem().to_owned())),
            }))
        }
        ClientTls::Secret { operator, .. } => users(&api, operator).await.map(Some),
    }
}

/// The user's own Secret.
async fn users(
    api: &Api<Secret>,
    secret: &CertificateSecret,
) -> Result<OperatorIdentity, CertificateError> {
    let CertificateSecret { name, keys } = secret;
    let found = get(api, name)
        .await?
        .ok_or_else(|| CertificateError::Missing {
            secret: name.clone(),
        })?;
    let read = |key: &'static str| {
        text(&found, key).ok_or_else(|| CertificateError::MissingKey {
            secret: name.clone(),
            key,
        })
    };
    Ok(OperatorIdentity {
        trusted_ca: read(keys.authority)?,
        certificate: Some((read(keys.certificate)?, read(keys.key)?)),
    })
}

/// The authority, made if there is none yet. Whoever comes second uses the first one's.
async fn authority(
    api: &Api<Secret>,
    cluster: &ValidatedCluster,
    purpose: &Purpose,
    now: Timestamp,
    founding: bool,
) -> Result<CertificateAuthority, CertificateError> {
    let secret = &purpose.authority_secret;
    if let Some(authority) = read_authority(api, cluster, secret).await? {
        return Ok(authority);
    }
    if !founding {
        return Err(CertificateError::Missing {
            secret: secret.clone(),
        });
    }
    let authority = CertificateAuthority::generate(&purpose.subject, now, AUTHORITY_LIFETIME)
        .map_err(|source| CertificateError::Content {
            secret: secret.clone(),
            source,
        })?;
    let data = [
        (
            SecretKeys::STANDARD.certificate,
            authority.certificate_pem().to_owned(),
        ),
        (SecretKeys::STANDARD.key, authority.key_pem()),
    ];
    let object = tls_secret(cluster, secret, labels::of_cluster(cluster), data);
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(authority),
        Err(kube::Error::Api(status)) if status.code == 409 => read_authority(api, cluster, secret)
            .await?
            .ok_or_else(|| CertificateError::Missing {
                secret: secret.clone(),
            }),
        Err(source) => Err(CertificateError::Api {
            secret: secret.clone(),
            source,
        }),
    }
}

async fn read_authority(
    api: &Api<Secret>,
    cluster: &ValidatedCluster,
    secret: &str,
) -> Result<Option<CertificateAuthority>, CertificateError> {
    let Some(found) = get(api, secret).await? else {
        return Ok(None);
    };
    ours(cluster, &found)?;
    let read = |key: &'static str| {
        text(&found, key).ok_or_else(|| CertificateError::MissingKey {
            secret: secret.to_owned(),
            key,
        })
    };
    CertificateAuthority::from_pem(
        &read(SecretKeys::STANDARD.certificate)?,
        &read(SecretKeys::STANDARD.key)?,
    )
    .map(Some)
    .map_err(|source| CertificateError::Content {
        secret: secret.to_owned(),
        source,
    })
}

/// A namesake's Secret is about to be collected: nothing may be built on it.
fn ours(cluster: &ValidatedCluster, found: &Secret) -> Result<(), CertificateError> {
    if found
        .owner_references()
        .iter()
        .any(|owner| owner.uid == cluster.uid)
    {
        return Ok(());
    }
    Err(CertificateError::Foreign {
        secret: found.name_any(),
    })
}

struct Wanted {
    secret: String,
    labels: Labels,
    common_name: String,
    names: Vec<String>,
    usage: Usage,
}

async fn ensure_leaf(
    api: &Api<Secret>,
    cluster: &ValidatedCluster,
    authority: &CertificateAuthority,
    wanted: Wanted,
    now: Timestamp,
) -> Result<(), CertificateError> {
    let secret = wanted.secret;
    let content = |source| CertificateError::Content {
        secret: secret.clone(),
        source,
    };
    let found = get(api, &secret).await?;
    if let Some(found) = &found {
        ours(cluster, found)?;
    }
    if found.is_some() && leaf_due(api, &secret).await?.is_some_and(|due| due > now) {
        return Ok(());
    }
    let names: Result<Vec<Name>, CertError> =
        wanted.names.iter().map(|name| name.parse()).collect();
    let request = LeafRequest {
        common_name: wanted.common_name,
        names: names.map_err(content)?,
        usage: wanted.usage,
        lifetime: LEAF_LIFETIME,
    };
    let leaf = authority.issue(&request, now).map_err(content)?;
    let data = [
        (
            SecretKeys::STANDARD.certificate,
            leaf.certificate_pem().to_owned(),
        ),
        (SecretKeys::STANDARD.key, leaf.key_pem().to_owned()),
        (
            SecretKeys::STANDARD.authority,
            authority.certificate_pem().to_owned(),
        ),
    ];
    let mut object = tls_secret(cluster, &secret, wanted.labels, data);
    let written = if let Some(found) = found {
        // Replaces exactly what was read: a change in between is a conflict, and we look again.
        object.metadata.resource_version = found.resource_version();
        object.metadata.uid = found.uid();
        api.replace(&secret, &PostParams::default(), &object).await
    } else {
        api.create(&PostParams::default(), &object).await
    };
    match written {
        Ok(_) => Ok(()),
        Err(source) => Err(CertificateError::Api { secret, source }),
    }
}

fn tls_secret<const N: usize>(
    cluster: &ValidatedCluster,
    name: &str,
    labels: Labels,
    data: [(&'static str, String); N],
) -> Secret {
    Secret {
        metadata: labels::metadata(cluster, name, labels),
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(
            data.into_iter()
                .map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())))
                .collect(),
        ),
        ..Secret::default()
    }
}

fn secrets(context: &Context, cluster: &ValidatedCluster) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &cluster.namespace)
}

async fn get(api: &Api<Secret>, secret: &str) -> Result<Option<Secret>, CertificateError> {
    api.get_opt(secret)
        .await
        .map_err(|source| CertificateError::Api {
            secret: secret.to_owned(),
            source,
        })
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

//! The TLS Secrets of a cluster: an authority per purpose, a leaf per member, one certificate for applications, and the
//! operator's own, which never leaves memory. Secrets are read by name; none is listed or watched.

use std::{collections::BTreeMap, time::Duration};

use etcd_operator_api::{
    ValidatedCluster,
    validated::{CertificateSecret, ClientTls, PeerTls, SecretKeys},
};
use etcd_operator_certs::{
    AuthoritySet, CertError, Jitter, Leaf, LeafRequest, Name, Usage, renew_at,
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
    act::is_the_end,
    authorities::{self, Authority, Loaded},
    children::labels::{self, Labels},
    names,
    observed::{AuthorityFacts, Certificates, MemberCertificates},
};

/// Leaves are renewed in place at two thirds of their life.
const LEAF_LIFETIME: Duration = Duration::from_hours(24 * 90);
/// The operator's own is made anew at every look.
const OPERATOR_LIFETIME: Duration = Duration::from_hours(1);
/// etcd takes the common name of a client certificate as its user; `root` may do what the operator must.
pub(super) const OPERATOR_USER: &str = "root";

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

    /// Nothing of this cluster can be written any more, and nothing is wrong.
    pub(crate) fn is_the_end(&self) -> bool {
        matches!(self, Self::Api { source, .. } if is_the_end(source))
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

/// What is known of the certificates we issue; `None` where we issue none. Members that lack one are left out.
pub(crate) async fn known(
    context: &Context,
    cluster: &ValidatedCluster,
    members: &[String],
    request: Option<&String>,
) -> Result<Option<Certificates>, CertificateError> {
    let purposes = purposes(cluster);
    if purposes.is_empty() {
        return Ok(None);
    }
    let api = secrets(context, cluster);
    let authorities: Vec<Option<Authority>> = try_join_all(
        purposes
            .iter()
            .map(|purpose| authorities::read(&api, cluster, &purpose.authority_secret)),
    )
    .await?;
    let domains: Vec<(&Purpose, Option<Loaded>)> = purposes
        .iter()
        .zip(&authorities)
        .map(|(purpose, authority)| (purpose, authority.as_ref().and_then(Authority::wanted)))
        .collect();
    let mut shared = Vec::new();
    for (purpose, wanted) in &domains {
        if purpose.authority_secret == names::client_ca_secret(cluster) {
            shared.push(leaf(&api, &names::client_secret(cluster), wanted.as_ref()).await?);
        }
    }
    let found = join_all(members.iter().map(|member| {
        let (api, domains) = (&api, &domains);
        async move {
            let leaves = domains.iter().map(|(purpose, wanted)| async move {
                leaf(api, &(purpose.leaf_secret)(member), wanted.as_ref()).await
            });
            Ok((member, try_join_all(leaves).await?))
        }
    }))
    .await;
    let mut known = BTreeMap::new();
    for one in found {
        let (member, leaves) = one?;
        let all: Option<Vec<LeafFacts>> = leaves.into_iter().chain(shared.clone()).collect();
        let Some(all) = all else { continue };
        let Some(due) = all.iter().map(|leaf| leaf.due).min() else {
            continue;
        };
        let own: Vec<Loaded> = all
            .into_iter()
            .take(domains.len())
            .map(|leaf| leaf.loaded)
            .collect();
        let loads = Loaded::fingerprint(&own);
        known.insert(member.clone(), MemberCertificates { due, loads });
    }
    Ok(Some(Certificates {
        members: known,
        authorities: authorities
            .iter()
            .flatten()
            .map(|authority| authority.facts(request))
            .collect(),
    }))
}

#[derive(Clone)]
struct LeafFacts {
    due: Timestamp,
    loaded: Loaded,
}

/// What a leaf is; none where there is none that works. One signed by another authority than `wanted`, or beside another
/// bundle, is due at once.
async fn leaf(
    api: &Api<Secret>,
    secret: &str,
    wanted: Option<&Loaded>,
) -> Result<Option<LeafFacts>, CertificateError> {
    let found = get(api, secret).await?;
    Ok(found.and_then(|found| leaf_in(&found, wanted)))
}

fn leaf_in(secret: &Secret, wanted: Option<&Loaded>) -> Option<LeafFacts> {
    let certificate = text(secret, SecretKeys::STANDARD.certificate)?;
    let leaf = Leaf::from_pem(&certificate, &text(secret, SecretKeys::STANDARD.key)?).ok()?;
    let loaded = Loaded::from_leaf(&certificate, &text(secret, SecretKeys::STANDARD.authority)?)?;
    let due = if wanted.is_none_or(|wanted| *wanted == loaded) {
        renew_at(leaf.validity(), Jitter::NONE)
    } else {
        Timestamp::MIN
    };
    Some(LeafFacts { due, loaded })
}

/// Takes every authority that is due one stage on.
pub(crate) async fn rotate(
    context: &Context,
    cluster: &ValidatedCluster,
    due: &[AuthorityFacts],
    request: Option<&String>,
    now: Timestamp,
) -> Result<bool, CertificateError> {
    let api = secrets(context, cluster);
    let mut all = true;
    for purpose in purposes(cluster) {
        let Some(seen) = due
            .iter()
            .find(|facts| facts.secret == purpose.authority_secret)
        else {
            continue;
        };
        // A name of its own: verifiers find an issuer by its name.
        let subject = format!("{} {}", purpose.subject, now.as_second());
        all &= authorities::advance(&api, cluster, seen, &subject, request, now).await?;
    }
    Ok(all)
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
        let Authority { set, .. } = authority(&api, cluster, &purpose, now, founding).await?;
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
            ensure_leaf(&api, cluster, &set, request, now)
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
            ensure_leaf(&api, cluster, &set, request, now).await?;
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
            let Authority { set, .. } = authorities::read(&api, cluster, &secret).await?.ok_or(
                CertificateError::Missing {
                    secret: secret.clone(),
                },
            )?;
            let request = LeafRequest {
                common_name: OPERATOR_USER.to_owned(),
                names: vec![Name::Dns("etcd-operator".to_owned())],
                usage: Usage::Client,
                lifetime: OPERATOR_LIFETIME,
            };
            let leaf = set
                .signer()
                .issue(&request, now)
                .map_err(|source| CertificateError::Content { secret, source })?;
            Ok(Some(OperatorIdentity {
                trusted_ca: set.bundle_pem(),
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

/// The authority, made if there is none yet and the cluster is only being made.
async fn authority(
    api: &Api<Secret>,
    cluster: &ValidatedCluster,
    purpose: &Purpose,
    now: Timestamp,
    founding: bool,
) -> Result<Authority, CertificateError> {
    let secret = &purpose.authority_secret;
    if let Some(authority) = authorities::read(api, cluster, secret).await? {
        return Ok(authority);
    }
    if !founding {
        return Err(CertificateError::Missing {
            secret: secret.clone(),
        });
    }
    authorities::create(api, cluster, secret, &purpose.subject, now).await
}

/// A namesake's Secret is about to be collected: nothing may be built on it.
pub(super) fn ours(cluster: &ValidatedCluster, found: &Secret) -> Result<(), CertificateError> {
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
    authorities: &AuthoritySet,
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
        let (signer, bundle) = (authorities.signer(), authorities.bundle_pem());
        let right = Loaded::of_authority(signer.certificate_pem(), &bundle);
        if leaf_in(found, right.as_ref()).is_some_and(|leaf| leaf.due > now) {
            return Ok(());
        }
    }
    let names: Result<Vec<Name>, CertError> =
        wanted.names.iter().map(|name| name.parse()).collect();
    let request = LeafRequest {
        common_name: wanted.common_name,
        names: names.map_err(content)?,
        usage: wanted.usage,
        lifetime: LEAF_LIFETIME,
    };
    let leaf = authorities.signer().issue(&request, now).map_err(content)?;
    let data = [
        (
            SecretKeys::STANDARD.certificate,
            leaf.certificate_pem().to_owned(),
        ),
        (SecretKeys::STANDARD.key, leaf.key_pem().to_owned()),
        (SecretKeys::STANDARD.authority, authorities.bundle_pem()),
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

pub(super) fn tls_secret(
    cluster: &ValidatedCluster,
    name: &str,
    labels: Labels,
    data: impl IntoIterator<Item = (&'static str, String)>,
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

pub(super) async fn get(
    api: &Api<Secret>,
    secret: &str,
) -> Result<Option<Secret>, CertificateError> {
    api.get_opt(secret)
        .await
        .map_err(|source| CertificateError::Api {
            secret: secret.to_owned(),
            source,
        })
}

pub(super) fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

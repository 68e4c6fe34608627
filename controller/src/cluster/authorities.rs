//! The authorities of a cluster, one per purpose, each in a Secret of its own, and how trust moves from one to the next.
//!
//! etcd reads whom it trusts only when it starts. So the next authority is announced beside the current and every member is
//! restarted; then it signs, and every member is restarted on its new certificate; then the old one is dropped, and every member
//! is restarted a last time. How far that has come is in the Secret, and what a pod was started with in its annotation: nothing
//! is remembered elsewhere.

use std::time::Duration;

use etcd_operator_api::{ValidatedCluster, validated::SecretKeys};
use etcd_operator_certs::{
    AuthoritySet, CertificateAuthority, Jitter, RotationPolicy, RotationStep, certificates_in,
    inspect, renew_at,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::PostParams};
use sha2::{Digest, Sha256};

use super::{
    certificates::{CertificateError, get, ours, text, tls_secret},
    children::labels,
    observed::{AuthorityFacts, Stage},
};

/// An authority is replaced at two thirds of its life.
const LIFETIME: Duration = Duration::from_hours(24 * 365 * 10);
/// How long applications have to take up a new authority before a member shows its certificates, and an old one before it is
/// trusted no more; not where somebody asked for the change now.
const OVERLAP: Duration = Duration::from_hours(24);

const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const PREVIOUS_CERTIFICATE: &str = "previous.crt";
/// Annotations of an authority's Secret: when it began to sign, what was last asked for, and why the change under way began.
const SWITCHED_AT: &str = "etcd.database.coreos.com/switched-at";
const ROTATED_FOR: &str = "etcd.database.coreos.com/rotated-for";
const ROTATION: &str = "etcd.database.coreos.com/rotation";
const ON_REQUEST: &str = "on-request";
const ON_SCHEDULE: &str = "on-schedule";

/// An authority as its Secret holds it.
pub(super) struct Authority {
    pub(super) set: AuthoritySet,
    secret: Secret,
}

impl Authority {
    pub(super) fn facts(&self, request: Option<&String>) -> AuthorityFacts {
        let said = self.secret.annotations();
        let policy = policy(said.get(ROTATION).map(String::as_str) == Some(ON_REQUEST));
        let stage = stage(&self.set);
        let asked = stage == Stage::Settled
            && request.is_some_and(|request| said.get(ROTATED_FOR) != Some(request));
        // Whether everybody has taken up the last stage is the plan's question; this one is the clock's.
        let due = match &self.set {
            _ if asked => Timestamp::MIN,
            AuthoritySet::Settled { current } => renew_at(current.validity(), Jitter::NONE),
            AuthoritySet::Announced { next, .. } => later(next.made_at(), policy.announce_for),
            AuthoritySet::Switched { switched_at, .. } => later(*switched_at, policy.retain_for),
        };
        AuthorityFacts {
            secret: self.secret.name_any(),
            stage,
            due,
        }
    }

    /// What a member that was started on this Secret has loaded: who signed its certificate, and whom it trusts.
    pub(super) fn wanted(&self) -> Option<Loaded> {
        Loaded::of_authority(self.set.signer().certificate_pem(), &self.set.bundle_pem())
    }
}

fn stage(set: &AuthoritySet) -> Stage {
    match set {
        AuthoritySet::Settled { .. } => Stage::Settled,
        AuthoritySet::Announced { .. } => Stage::Announced,
        AuthoritySet::Switched { .. } => Stage::Switched,
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn policy(on_request: bool) -> RotationPolicy {
    let overlap = if on_request { Duration::ZERO } else { OVERLAP };
    RotationPolicy {
        authority_lifetime: LIFETIME,
        announce_for: overlap,
        retain_for: overlap,
    }
}

/// Who signed a certificate, and whom its holder trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    issuer: String,
    /// In no particular order, or a change of who signs would look like a change of trust.
    trusted: std::collections::BTreeSet<Vec<u8>>,
}

impl Loaded {
    /// From a leaf and the bundle beside it.
    pub(super) fn from_leaf(certificate: &str, bundle: &str) -> Option<Self> {
        Self::read(certificate, bundle, |inspected| inspected.issuer)
    }

    /// What a leaf of this authority, beside this bundle, must come to.
    pub(super) fn of_authority(certificate: &str, bundle: &str) -> Option<Self> {
        Self::read(certificate, bundle, |inspected| inspected.subject)
    }

    fn read(
        certificate: &str,
        bundle: &str,
        issuer: impl Fn(etcd_operator_certs::Inspected) -> String,
    ) -> Option<Self> {
        let first = certificates_in(certificate.as_bytes()).ok()?;
        let inspected = inspect(first.first()?).ok()?;
        let trusted = certificates_in(bundle.as_bytes()).ok()?;
        Some(Self {
            issuer: issuer(inspected),
            trusted: trusted
                .into_iter()
                .map(|certificate| certificate.to_vec())
                .collect(),
        })
    }

    /// Short enough for an annotation, and the same for the same content.
    pub(super) fn fingerprint(all: &[Self]) -> String {
        let mut digest = Sha256::new();
        for one in all {
            digest.update(one.issuer.as_bytes());
            for trusted in &one.trusted {
                digest.update(Sha256::digest(trusted));
            }
        }
        let first = digest
            .finalize()
            .iter()
            .take(8)
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        format!("{first:016x}")
    }
}

/// Reads an authority; none where there is no Secret.
pub(super) async fn read(
    api: &Api<Secret>,
    cluster: &ValidatedCluster,
    name: &str,
) -> Result<Option<Authority>, CertificateError> {
    let Some(secret) = get(api, name).await? else {
        return Ok(None);
    };
    ours(cluster, &secret)?;
    let set = decode(&secret, name)?;
    Ok(Some(Authority { set, secret }))
}

fn decode(secret: &Secret, name: &str) -> Result<AuthoritySet, CertificateError> {
    let needed = |key: &'static str| {
        text(secret, key).ok_or_else(|| CertificateError::MissingKey {
            secret: name.to_owned(),
            key,
        })
    };
    let sound = |certificate: &str, key: &str| {
        CertificateAuthority::from_pem(certificate, key).map_err(|source| {
            CertificateError::Content {
                secret: name.to_owned(),
                source,
            }
        })
    };
    let current = sound(
        &needed(SecretKeys::STANDARD.certificate)?,
        &needed(SecretKeys::STANDARD.key)?,
    )?;
    if let (Some(next), Some(key)) = (text(secret, NEXT_CERTIFICATE), text(secret, NEXT_KEY)) {
        let next = Box::new(sound(&next, &key)?);
        return Ok(AuthoritySet::Announced { current, next });
    }
    let switched_at = secret
        .annotations()
        .get(SWITCHED_AT)
        .and_then(|at| at.parse().ok());
    if let Some(previous_pem) = text(secret, PREVIOUS_CERTIFICATE) {
        return Ok(AuthoritySet::Switched {
            previous_pem,
            // A date that cannot be read only makes the old one stay for the whole overlap again.
            switched_at: switched_at.unwrap_or_else(|| current.made_at()),
            current,
        });
    }
    Ok(AuthoritySet::Settled { current })
}

/// The Secret of a set.
fn encode(cluster: &ValidatedCluster, name: &str, set: &AuthoritySet) -> Secret {
    let mut data = vec![
        (
            SecretKeys::STANDARD.certificate,
            set.signer().certificate_pem().to_owned(),
        ),
        (SecretKeys::STANDARD.key, set.signer().key_pem()),
    ];
    let mut secret_annotations = labels::Labels::new();
    match set {
        AuthoritySet::Settled { .. } => {}
        AuthoritySet::Announced { next, .. } => {
            data.push((NEXT_CERTIFICATE, next.certificate_pem().to_owned()));
            data.push((NEXT_KEY, next.key_pem()));
        }
        AuthoritySet::Switched {
            previous_pem,
            switched_at,
            ..
        } => {
            data.push((PREVIOUS_CERTIFICATE, previous_pem.clone()));
            secret_annotations.insert(SWITCHED_AT.to_owned(), switched_at.to_string());
        }
    }
    let mut secret = tls_secret(cluster, name, labels::of_cluster(cluster), data);
    secret.metadata.annotations = Some(secret_annotations);
    secret
}

/// Makes the first authority. Whoever comes second uses the first one's.
pub(super) async fn create(
    api: &Api<Secret>,
    cluster: &ValidatedCluster,
    name: &str,
    subject: &str,
    now: Timestamp,
) -> Result<Authority, CertificateError> {
    let made = CertificateAuthority::generate(subject, now, LIFETIME).map_err(|source| {
        CertificateError::Content {
            secret: name.to_owned(),
            source,
        }
    })?;
    let set = AuthoritySet::new(made);
    match api
        .create(&PostParams::default(), &encode(cluster, name, &set))
        .await
    {
        Ok(secret) => Ok(Authority { set, secret }),
        Err(kube::Error::Api(status)) if status.code == 409 => read(api, cluster, name)
            .await?
            .ok_or_else(|| CertificateError::Missing {
                secret: name.to_owned(),
            }),
        Err(source) => Err(CertificateError::Api {
            secret: name.to_owned(),
            source,
        }),
    }
}

/// Takes the next stage, from exactly the one that was seen: `false` where it is another by now.
pub(super) async fn advance(
    api: &Api<Secret>,
    cluster: &ValidatedCluster,
    seen: &AuthorityFacts,
    subject: &str,
    request: Option<&String>,
    now: Timestamp,
) -> Result<bool, CertificateError> {
    let name = &seen.secret;
    let Some(Authority { set, secret }) = read(api, cluster, name).await? else {
        return Ok(false);
    };
    if stage(&set) != seen.stage {
        return Ok(false);
    }
    let step = match seen.stage {
        Stage::Settled => RotationStep::Announce,
        Stage::Announced => RotationStep::Switch,
        Stage::Switched => RotationStep::DropPrevious,
    };
    let before = secret.annotations();
    let asked = request.filter(|request| before.get(ROTATED_FOR) != Some(request));
    let set = set
        .take(step, subject, now, &policy(false))
        .map_err(|source| CertificateError::Content {
            secret: name.clone(),
            source,
        })?;
    let mut after = encode(cluster, name, &set);
    let annotations = after.metadata.annotations.get_or_insert_default();
    for kept in [ROTATED_FOR, ROTATION] {
        if let Some(value) = before.get(kept) {
            annotations.insert(kept.to_owned(), value.clone());
        }
    }
    if seen.stage == Stage::Settled {
        let why = if let Some(request) = asked {
            annotations.insert(ROTATED_FOR.to_owned(), request.clone());
            ON_REQUEST
        } else {
            ON_SCHEDULE
        };
        annotations.insert(ROTATION.to_owned(), why.to_owned());
    }
    // Replaces exactly what was read: a change in between is a conflict, and we look again.
    after.metadata.resource_version = secret.resource_version();
    after.metadata.uid = secret.uid();
    api.replace(name, &PostParams::default(), &after)
        .await
        .map_err(|source| CertificateError::Api {
            secret: name.clone(),
            source,
        })?;
    Ok(true)
}

//! The Secret that holds the authority: what its keys mean, and race-free creation and change by several replicas at once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::FIELD_MANAGER;
use crate::{AuthoritySet, CertError, CertificateAuthority};

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const PREVIOUS_CERTIFICATE: &str = "previous.crt";
const SWITCHED_AT: &str = "switched-at";
const OURS: [&str; 6] = [
    CERTIFICATE,
    KEY,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    PREVIOUS_CERTIFICATE,
    SWITCHED_AT,
];

/// Why the authority cannot be had from its Secret.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {verb} Secret {name}")]
    Api {
        verb: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error(
        "Secret {name} holds data that is not this operator's ({keys}); delete it, or name another with --ca-secret"
    )]
    Foreign { name: String, keys: String },
    #[error(
        "Secret {name}, key `{key}`: restore it, or delete the Secret to have a new authority made"
    )]
    Broken {
        name: String,
        key: &'static str,
        #[source]
        source: CertError,
    },
    #[error("Secret {name} kept changing while it was read")]
    Unsettled { name: String },
}

/// What a Secret's data amounts to.
#[derive(Debug)]
pub enum SecretContent {
    Empty,
    Sound(Box<AuthoritySet>),
    /// The certificate is good but its key is lost: nothing more can be signed, yet what was signed still verifies, so a new authority
    /// can take over with the old one still published.
    KeyLost {
        certificate_pem: String,
    },
}

/// Reads a Secret's data. Pure.
pub(super) fn decode(
    data: &BTreeMap<String, ByteString>,
    name: &str,
) -> Result<SecretContent, StoreError> {
    if data.is_empty() {
        return Ok(SecretContent::Empty);
    }
    if !OURS.iter().any(|key| data.contains_key(*key)) {
        return Err(StoreError::Foreign {
            name: name.to_owned(),
            keys: data.keys().cloned().collect::<Vec<_>>().join(", "),
        });
    }
    let text = |key: &'static str| {
        data.get(key)
            .map(|value| String::from_utf8_lossy(&value.0).into_owned())
            .filter(|text| !text.trim().is_empty())
    };
    let broken = |key, source| StoreError::Broken {
        name: name.to_owned(),
        key,
        source,
    };
    let certificate =
        text(CERTIFICATE).ok_or_else(|| broken(CERTIFICATE, CertError::EmptyBundle))?;
    let current = match CertificateAuthority::from_pem(&certificate, &text(KEY).unwrap_or_default())
    {
        Ok(current) => current,
        Err(CertError::KeyPem(_) | CertError::KeyMismatch) => {
            return Ok(SecretContent::KeyLost {
                certificate_pem: certificate,
            });
        }
        Err(error) => return Err(broken(CERTIFICATE, error)),
    };
    // A next or previous that cannot be read is not worth stopping for: without it the rotation only starts again.
    if let (Some(next), Some(key)) = (text(NEXT_CERTIFICATE), text(NEXT_KEY))
        && let Ok(next) = CertificateAuthority::from_pem(&next, &key)
    {
        return Ok(sound(AuthoritySet::Announced {
            current,
            next: Box::new(next),
        }));
    }
    if let (Some(previous_pem), Some(at)) = (text(PREVIOUS_CERTIFICATE), text(SWITCHED_AT))
        && let Ok(switched_at) = at.trim().parse::<Timestamp>()
        && crate::certificates_in(previous_pem.as_bytes()).is_ok_and(|found| !found.is_empty())
    {
        return Ok(sound(AuthoritySet::Switched {
            previous_pem,
            current,
            switched_at,
        }));
    }
    Ok(sound(AuthoritySet::Settled { current }))
}

fn sound(set: AuthoritySet) -> SecretContent {
    SecretContent::Sound(Box::new(set))
}

/// Writes a set as a Secret's data. Pure.
pub(super) fn encode(set: &AuthoritySet) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::new();
    let mut put = |key: &str, value: &str| {
        data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
    };
    put(CERTIFICATE, set.signer().certificate_pem());
    put(KEY, &set.signer().key_pem());
    match set {
        AuthoritySet::Settled { .. } => {}
        AuthoritySet::Announced { next, .. } => {
            put(NEXT_CERTIFICATE, next.certificate_pem());
            put(NEXT_KEY, &next.key_pem());
        }
        AuthoritySet::Switched {
            previous_pem,
            switched_at,
            ..
        } => {
            put(PREVIOUS_CERTIFICATE, previous_pem);
            put(SWITCHED_AT, &switched_at.to_string());
        }
    }
    data
}

/// The one Secret.
#[derive(Clone, Debug)]
pub(super) struct SecretStore {
    api: Api<Secret>,
    namespace: String,
    name: String,
}

impl SecretStore {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn api(&self) -> Api<Secret> {
        self.api.clone()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// For people: namespace and name.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn failed(&self, verb: &'static str) -> impl Fn(kube::Error) -> StoreError + use<> {
        let name = self.full_name();
        move |source| StoreError::Api {
            verb,
            name: name.clone(),
            source: Box::new(source),
        }
    }

    pub(super) async fn read(&self) -> Result<Option<Secret>, StoreError> {
        self.api
            .get_opt(&self.name)
            .await
            .map_err(self.failed("read"))
    }

    pub(super) fn content(&self, secret: &Secret) -> Result<SecretContent, StoreError> {
        let none = BTreeMap::new();
        decode(secret.data.as_ref().unwrap_or(&none), &self.full_name())
    }

    /// Creates the Secret with `set`; `None` when another replica was faster.
    pub(super) async fn create(&self, set: &AuthoritySet) -> Result<Option<Secret>, StoreError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(BTreeMap::from([(
                    "app.kubernetes.io/managed-by".to_owned(),
                    FIELD_MANAGER.to_owned(),
                )])),
                ..ObjectMeta::default()
            },
            data: Some(encode(set)),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        lost_race(self.api.create(&author(), &secret).await).map_err(self.failed("create"))
    }

    /// Puts `set` in place of what `before` holds; `None` when another replica has changed it meanwhile (its resourceVersion is the
    /// precondition). Keys that are not ours are left alone.
    pub(super) async fn replace(
        &self,
        before: &Secret,
        set: &AuthoritySet,
    ) -> Result<Option<Secret>, StoreError> {
        let mut after = before.clone();
        after.metadata.managed_fields = None;
        let mut data = after.data.take().unwrap_or_default();
        data.retain(|key, _| !OURS.contains(&key.as_str()));
        data.extend(encode(set));
        after.data = Some(data);
        lost_race(self.api.replace(&self.name, &author(), &after).await)
            .map_err(self.failed("update"))
    }
}

fn author() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// 409: it exists already or has changed. 404: it was deleted between read and write. Both mean: read again.
fn lost_race(answer: kube::Result<Secret>) -> kube::Result<Option<Secret>> {
    match answer {
        Ok(secret) => Ok(Some(secret)),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            // A namespace that is being deleted answers 403, one that is missing 404: neither can be waited out here.
            if status.code == 404 && !status.message.contains("secrets") {
                return Err(kube::Error::Api(status));
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RotationPolicy, RotationStep};
    use std::time::Duration;

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn settled() -> AuthoritySet {
        let life = Duration::from_hours(24);
        AuthoritySet::new(CertificateAuthority::generate("ca@0", now(), life).unwrap())
    }

    fn read_back(data: &BTreeMap<String, ByteString>) -> AuthoritySet {
        match decode(data, "ns/ca").unwrap() {
            SecretContent::Sound(set) => *set,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_phase_of_a_rotation_survives_being_written_and_read() {
        let policy = RotationPolicy::default();
        let mut set = settled();
        for step in [
            RotationStep::Announce,
            RotationStep::Switch,
            RotationStep::DropPrevious,
        ] {
            let read = read_back(&encode(&set));
            assert_eq!(read.bundle_pem(), set.bundle_pem());
            assert_eq!(read.signer().key_pem(), set.signer().key_pem());
            assert_eq!(std::mem::discriminant(&read), std::mem::discriminant(&set));
            set = set.take(step, "ca@1", now(), &policy).unwrap();
        }
        assert_eq!(read_back(&encode(&set)).bundle_pem(), set.bundle_pem());
    }

    #[test]
    fn the_old_key_is_gone_after_the_switch() {
        let policy = RotationPolicy::default();
        let set = settled()
            .take(RotationStep::Announce, "ca@1", now(), &policy)
            .unwrap();
        let old_key = set.signer().key_pem();
        let set = set.take(RotationStep::Switch, "-", now(), &policy).unwrap();
        for value in encode(&set).values() {
            assert_ne!(String::from_utf8_lossy(&value.0), old_key);
        }
    }

    #[test]
    fn an_empty_secret_may_be_filled_a_foreign_one_not() {
        assert!(matches!(
            decode(&BTreeMap::new(), "ns/ca"),
            Ok(SecretContent::Empty)
        ));
        let foreign = BTreeMap::from([("tls.crt".to_owned(), ByteString(vec![1]))]);
        let error = decode(&foreign, "ns/ca").unwrap_err().to_string();
        assert!(
            error.contains("tls.crt") && error.contains("--ca-secret"),
            "{error}"
        );
    }

    #[test]
    fn a_lost_key_is_told_apart_from_a_broken_certificate() {
        let mut data = encode(&settled());
        data.insert(KEY.to_owned(), ByteString(b"garbage".to_vec()));
        assert!(matches!(
            decode(&data, "ns/ca"),
            Ok(SecretContent::KeyLost { .. })
        ));
        data.remove(KEY);
        assert!(matches!(
            decode(&data, "ns/ca"),
            Ok(SecretContent::KeyLost { .. })
        ));
        let mut data = encode(&settled());
        data.insert(CERTIFICATE.to_owned(), ByteString(b"garbage".to_vec()));
        let error = decode(&data, "ns/ca").unwrap_err().to_string();
        assert!(
            error.contains("ns/ca") && error.contains("ca.crt"),
            "{error}"
        );
    }

    #[test]
    fn a_broken_next_only_starts_the_rotation_again() {
        let policy = RotationPolicy::default();
        let set = settled()
            .take(RotationStep::Announce, "ca@1", now(), &policy)
            .unwrap();
        let mut data = encode(&set);
        data.insert(NEXT_KEY.to_owned(), ByteString(b"garbage".to_vec()));
        assert!(matches!(read_back(&data), AuthoritySet::Settled { .. }));
    }
}

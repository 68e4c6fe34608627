//! How a replica comes to have the authority: by reading it, or by making it where there is none, whoever is first.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use super::error::KeeperError;
use super::keeper::Settings;
use super::secret::{SecretContent, SecretStore, StoreError};
use crate::{AuthoritySet, CertError, CertificateAuthority};

/// How often a Secret may change under our feet before that is a fault.
const RACES: usize = 8;

/// The authority of the Secret, made where there is none. `trusted` is one that is in use and stays published beside a new one.
pub(super) async fn obtain(
    store: &SecretStore,
    settings: &Settings,
    clock: &(impl Fn() -> Timestamp + ?Sized),
    trusted: Option<String>,
) -> Result<(Secret, AuthoritySet), KeeperError> {
    let make = |beside: Option<String>| -> Result<AuthoritySet, CertError> {
        let now = clock();
        let lifetime = settings.rotation.authority_lifetime;
        let current = CertificateAuthority::generate(&subject(now), now, lifetime)?;
        Ok(match beside {
            None => AuthoritySet::Settled { current },
            Some(previous_pem) => AuthoritySet::Switched {
                previous_pem,
                current,
                switched_at: now,
            },
        })
    };
    for _race in 0..RACES {
        let Some(secret) = store.read().await? else {
            let set = make(trusted.clone())?;
            if let Some(secret) = store.create(&set).await? {
                tracing::info!(secret = store.full_name(), "authority created");
                return Ok((secret, set));
            }
            continue;
        };
        let set = match store.content(&secret)? {
            SecretContent::Sound(set) => return Ok((secret, *set)),
            SecretContent::Empty => make(trusted.clone())?,
            SecretContent::KeyLost { certificate_pem } => {
                tracing::warn!(
                    secret = store.full_name(),
                    "its key is lost; a new authority takes over, the old stays trusted for a while"
                );
                make(Some(certificate_pem))?
            }
        };
        if let Some(secret) = store.replace(&secret, &set).await? {
            tracing::info!(secret = store.full_name(), "authority replaced");
            return Ok((secret, set));
        }
    }
    Err(StoreError::Unsettled {
        name: store.full_name(),
    }
    .into())
}

/// A name of its own for each authority, as verifiers find an issuer by its name.
pub(super) fn subject(now: Timestamp) -> String {
    format!("etcd-operator-webhook-ca@{}", now.as_second())
}

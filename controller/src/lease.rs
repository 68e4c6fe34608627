//! Leader election on a `coordination.k8s.io` Lease: one controller acts, the others wait.
//!
//! Guarantee: `Leadership::held` is true only while no other process can have taken the lease, judged by this machine's own
//! monotonic clock: we stop believing (`RENEW_DEADLINE`) well before others may take over (`LEASE_DURATION`), and others
//! start counting only when they *see* our last renewal, never earlier. Clocks of different machines are never compared.
//! Losing the lease ends the process: a half-dead leader is worse than none.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, timeout_at};

const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// How long one attempt may take: one answer that never comes leaves time for another try before the deadline.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Who asks for which lease.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub namespace: String,
    pub lease: String,
    pub identity: String,
}

/// The right to act, for as long as `held` says so.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    valid_until: Arc<Mutex<Instant>>,
}

impl Leadership {
    /// Whether this process may still write. Asked before every step.
    pub(crate) fn held(&self) -> bool {
        Instant::now() < self.ends()
    }

    fn extend_to(&self, until: Instant) {
        *self
            .valid_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn ends(&self) -> Instant {
        *self
            .valid_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("the lease {lease} could not be read or written")]
    Api { lease: String, source: kube::Error },
    #[error("the lease {lease} was lost to {holder}")]
    Taken { lease: String, holder: String },
    #[error("the lease {lease} could not be renewed in time")]
    Expired { lease: String },
}

/// What one look at the lease came to.
enum Attempt {
    Held,
    /// Someone else holds it: who, and a mark that changes whenever they renew.
    Other {
        holder: String,
        mark: String,
    },
    /// Another writer was faster; look again.
    Raced,
}

/// Waits until the lease is ours.
pub(crate) async fn acquire(
    client: &Client,
    candidate: &Candidate,
) -> Result<Leadership, LeaseError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), &candidate.namespace);
    // What we last saw of another holder, and when by our own clock.
    let mut seen: Option<(String, Instant)> = None;
    loop {
        let started = Instant::now();
        let expired = seen
            .as_ref()
            .is_some_and(|(_, since)| since.elapsed() > LEASE_DURATION);
        let attempt = match attempt(&api, candidate, expired).await {
            // Who only waits can wait for the API server, too.
            Err(LeaseError::Api { source, .. }) if may_pass(&source) => {
                tracing::warn!(error = %source, "the lease could not be read, trying again");
                tokio::time::sleep(RETRY).await;
                continue;
            }
            attempt => attempt?,
        };
        match attempt {
            Attempt::Held => {
                return Ok(Leadership {
                    valid_until: Arc::new(Mutex::new(started + RENEW_DEADLINE)),
                });
            }
            Attempt::Raced => {}
            Attempt::Other { holder, mark } => {
                if seen.as_ref().is_none_or(|(known, _)| *known != mark) {
                    tracing::info!(holder, "waiting: another controller holds the lease");
                    seen = Some((mark, Instant::now()));
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Trouble with the API server or on the way there, as opposed to: it says no.
fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        _ => true,
    }
}

/// Keeps the lease; returns only when it is lost.
pub(crate) async fn keep(
    client: &Client,
    candidate: &Candidate,
    leadership: &Leadership,
) -> LeaseError {
    let api: Api<Lease> = Api::namespaced(client.clone(), &candidate.namespace);
    loop {
        tokio::time::sleep(RETRY).await;
        let started = Instant::now();
        // An answer that comes after the end is of no use: the process must be gone by then.
        let patience = leadership.ends().min(started + ATTEMPT);
        match timeout_at(patience, attempt(&api, candidate, false)).await {
            Ok(Ok(Attempt::Held)) => leadership.extend_to(started + RENEW_DEADLINE),
            Ok(Ok(Attempt::Other { holder, .. })) => {
                leadership.extend_to(started);
                return LeaseError::Taken {
                    lease: candidate.lease.clone(),
                    holder,
                };
            }
            Ok(Ok(Attempt::Raced)) | Err(_) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease was not renewed, trying again"),
        }
        if !leadership.held() {
            return LeaseError::Expired {
                lease: candidate.lease.clone(),
            };
        }
    }
}

/// Gives the lease up on an orderly end, so that the next controller need not wait for it to run out.
pub(crate) async fn release(client: &Client, candidate: &Candidate) {
    let api: Api<Lease> = Api::namespaced(client.clone(), &candidate.namespace);
    let Ok(mut lease) = api.get(&candidate.lease).await else {
        return;
    };
    let spec = lease.spec.get_or_insert_default();
    if spec.holder_identity.as_deref() != Some(&candidate.identity) {
        return;
    }
    spec.holder_identity = None;
    // The resourceVersion read above makes this a no-op if someone else was faster.
    let _ = api
        .replace(&candidate.lease, &PostParams::default(), &lease)
        .await;
}

async fn attempt(
    api: &Api<Lease>,
    candidate: &Candidate,
    expired: bool,
) -> Result<Attempt, LeaseError> {
    let failed = |source| LeaseError::Api {
        lease: candidate.lease.clone(),
        source,
    };
    let now = MicroTime(jiff::Timestamp::now());
    let Some(mut lease) = api.get_opt(&candidate.lease).await.map_err(failed)? else {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(candidate.lease.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(candidate.identity.clone()),
                lease_duration_seconds: Some(15),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        return match api.create(&PostParams::default(), &lease).await {
            Ok(_) => Ok(Attempt::Held),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Raced),
            Err(error) => Err(failed(error)),
        };
    };
    let mark = lease.metadata.resource_version.clone().unwrap_or_default();
    let spec = lease.spec.get_or_insert_default();
    let holder = spec
        .holder_identity
        .clone()
        .filter(|holder| !holder.is_empty());
    let ours = holder.as_deref() == Some(&candidate.identity);
    if let Some(holder) = holder
        && !ours
        && !expired
    {
        return Ok(Attempt::Other { holder, mark });
    }
    if !ours {
        spec.acquire_time = Some(now.clone());
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default() + 1);
    }
    spec.holder_identity = Some(candidate.identity.clone());
    spec.lease_duration_seconds = Some(15);
    spec.renew_time = Some(now);
    match api
        .replace(&candidate.lease, &PostParams::default(), &lease)
        .await
    {
        Ok(_) => Ok(Attempt::Held),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Raced),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests;

//! How trust moves from one authority to the next without a gap: publish old and new together, see that everywhere, sign with the
//! new, and only then drop the old. Pure: the steps are decided here and taken elsewhere.

use std::time::Duration;

use jiff::Timestamp;

use crate::renewal::{Jitter, renew_at};
use crate::{CertError, CertificateAuthority};

/// The authorities of one trust domain, in one of the only three shapes a rotation passes through.
#[derive(Debug)]
pub enum AuthoritySet {
    /// One authority; nothing under way.
    Settled { current: CertificateAuthority },
    /// The next is published but signs nothing yet.
    Announced {
        current: CertificateAuthority,
        next: Box<CertificateAuthority>,
    },
    /// The new one signs; the certificate of the old is still published for leaves that it signed. Its key is gone.
    Switched {
        previous_pem: String,
        current: CertificateAuthority,
        switched_at: Timestamp,
    },
}

/// How long each phase lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationPolicy {
    pub authority_lifetime: Duration,
    /// How long the next authority is published everywhere before it signs: what a verifier's cache may lag behind.
    pub announce_for: Duration,
    /// How long the old authority stays published after the switch: longer than any replica takes to replace its leaf.
    pub retain_for: Duration,
}

impl Default for RotationPolicy {
    fn default() -> Self {
        Self {
            authority_lifetime: Duration::from_hours(24 * 365),
            announce_for: Duration::from_mins(5),
            retain_for: Duration::from_hours(1),
        }
    }
}

/// Whether every place that must trust us holds the whole current bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Everywhere,
    NotYet,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationStep {
    /// Nothing until then.
    Wait { until: Timestamp },
    /// Make the next authority and publish it beside the current.
    Announce,
    /// Sign with the next; keep publishing the old.
    Switch,
    /// Publish the current alone.
    DropPrevious,
    /// The current authority has expired: nothing it signed verifies, so there is nothing to overlap with.
    Replace,
}

/// How soon to look again when waiting for something other than time.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

impl AuthoritySet {
    pub fn new(current: CertificateAuthority) -> Self {
        Self::Settled { current }
    }

    /// The authority that signs.
    pub fn signer(&self) -> &CertificateAuthority {
        match self {
            Self::Settled { current }
            | Self::Announced { current, .. }
            | Self::Switched { current, .. } => current,
        }
    }

    /// What verifiers must hold: every authority a leaf in use may be signed by, now or after the next step. The signer comes
    /// first.
    pub fn bundle_pem(&self) -> String {
        let (first, second) = match self {
            Self::Settled { current } => (current.certificate_pem(), None),
            Self::Announced { current, next } => {
                (current.certificate_pem(), Some(next.certificate_pem()))
            }
            Self::Switched {
                previous_pem,
                current,
                ..
            } => (current.certificate_pem(), Some(previous_pem.as_str())),
        };
        let mut bundle = with_newline(first);
        if let Some(second) = second {
            bundle.push_str(&with_newline(second));
        }
        bundle
    }

    /// The one step due at `now`, decided by wall clock: a clock that jumps past several dates takes the steps one by one, each
    /// still waiting until the one before it has been seen everywhere.
    pub fn step(
        &self,
        now: Timestamp,
        seen: Seen,
        policy: &RotationPolicy,
        jitter: Jitter,
    ) -> RotationStep {
        match self {
            Self::Settled { current } => {
                let due = renew_at(current.validity(), jitter);
                if now >= current.validity().not_after {
                    RotationStep::Replace
                } else if now >= due {
                    RotationStep::Announce
                } else {
                    RotationStep::Wait { until: due }
                }
            }
            Self::Announced { current, next } => {
                let due = later(next.made_at(), policy.announce_for);
                if now >= current.validity().not_after {
                    // Waiting serves nobody: what the old one signed has just stopped verifying.
                    RotationStep::Switch
                } else if now < due {
                    RotationStep::Wait { until: due }
                } else if seen == Seen::Everywhere {
                    RotationStep::Switch
                } else {
                    RotationStep::Wait {
                        until: later(now, LOOK_AGAIN),
                    }
                }
            }
            Self::Switched { switched_at, .. } => {
                let due = later(*switched_at, policy.retain_for);
                // A switch that lies in the future is a clock that was set back: do not wait for it to catch up for ever.
                if now >= due || *switched_at > later(now, policy.retain_for) {
                    RotationStep::DropPrevious
                } else {
                    RotationStep::Wait { until: due }
                }
            }
        }
    }

    /// Takes a step; `Wait` changes nothing. `subject` names a new authority where one is made.
    pub fn take(
        self,
        step: RotationStep,
        subject: &str,
        now: Timestamp,
        policy: &RotationPolicy,
    ) -> Result<Self, CertError> {
        Ok(match (step, self) {
            (RotationStep::Announce, Self::Settled { current }) => Self::Announced {
                current,
                next: Box::new(CertificateAuthority::generate(
                    subject,
                    now,
                    policy.authority_lifetime,
                )?),
            },
            (RotationStep::Switch, Self::Announced { current, next }) => Self::Switched {
                previous_pem: current.certificate_pem().to_owned(),
                current: *next,
                switched_at: now,
            },
            (RotationStep::DropPrevious, Self::Switched { current, .. }) => {
                Self::Settled { current }
            }
            (RotationStep::Replace, _) => Self::Settled {
                current: CertificateAuthority::generate(subject, now, policy.authority_lifetime)?,
            },
            (_, unchanged) => unchanged,
        })
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn with_newline(pem: &str) -> String {
    let mut pem = pem.trim().to_owned();
    pem.push('\n');
    pem
}

//! One request from bytes to answer: parse, judge, look around where it helps, count, and leave one log line per decision.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use etcd_operator_api::v1beta2::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_api::{Policy, conversion};
use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use crate::endpoint::{Endpoint, Step};
use crate::metrics::Metrics;
use crate::object::Asked;
use crate::review::{self, AdmissionRequest, Operation, ReviewError, Subject, Verdict};
use crate::server::{Answer, Handler, TurnedAway};
use crate::surroundings::{self, Seen, Surroundings};
use crate::{convert, object, scale};

/// Answers the API server.
pub struct Admission {
    pub policy: Policy,
    /// Users whose scale requests are rounded up rather than refused.
    pub autoscalers: BTreeSet<String>,
    pub metrics: Metrics,
    /// Where to look around; none looks nowhere.
    pub surroundings: Option<Arc<dyn Surroundings>>,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("policy", &self.policy)
            .field("autoscalers", &self.autoscalers)
            .finish_non_exhaustive()
    }
}

impl Handler for Admission {
    async fn answer(&self, endpoint: Endpoint, body: Bytes) -> Answer {
        let started = Instant::now();
        let outcome = match endpoint {
            Endpoint::Convert => self.convert(&body),
            Endpoint::Admit(step) => self.review(step, &body, started).await,
        };
        let (answer, code) = match outcome {
            Ok(json) => (Answer::Review(json), 200),
            Err(error) => {
                let mut why = error.to_string();
                review::shorten(&mut why);
                tracing::warn!(%endpoint, error = why, "cannot be answered");
                (Answer::BadRequest(why), 400)
            }
        };
        self.metrics.answered(endpoint, code, started.elapsed());
        answer
    }

    fn began(&self, endpoint: Endpoint) {
        self.metrics.began(endpoint);
    }

    fn ended(&self, endpoint: Endpoint) {
        self.metrics.ended(endpoint);
    }

    fn turned_away(&self, why: TurnedAway) {
        self.metrics.turned_away(why);
    }
}

impl Admission {
    async fn review(
        &self,
        step: Step,
        body: &[u8],
        started: Instant,
    ) -> Result<Vec<u8>, ReviewError> {
        let request = AdmissionRequest::parse(body)?;
        let creates = request.operation == Operation::Create;
        let verdict = match step {
            Step::MutateCluster => object::mutate::<EtcdCluster>(&request, &self.policy)?,
            Step::MutateBackup => object::mutate::<EtcdBackup>(&request, &self.policy)?,
            Step::MutateRestore => object::mutate::<EtcdRestore>(&request, &self.policy)?,
            Step::MutateScale => scale::mutate(&request, &self.autoscalers)?,
            Step::ValidateScale => scale::validate(&request)?,
            Step::ValidateCluster => {
                let (verdict, asked) = object::validate::<EtcdCluster>(&request, &self.policy)?;
                match self.worth_a_look(&verdict, asked) {
                    Some((Asked { new, old }, around)) => {
                        let now = Timestamp::now();
                        seen(
                            verdict,
                            surroundings::look(&new, old.as_ref(), around, now).await,
                        )
                    }
                    None => verdict,
                }
            }
            Step::ValidateBackup => {
                let (verdict, asked) = object::validate::<EtcdBackup>(&request, &self.policy)?;
                match self.worth_a_look(&verdict, asked) {
                    Some((Asked { new, .. }, around)) if creates => {
                        let now = Timestamp::now();
                        seen(
                            verdict,
                            surroundings::look_for_backup(&new, around, now).await,
                        )
                    }
                    _ => verdict,
                }
            }
            Step::ValidateRestore => {
                let (verdict, asked) = object::validate::<EtcdRestore>(&request, &self.policy)?;
                match self.worth_a_look(&verdict, asked) {
                    Some((Asked { new, .. }, around)) if creates => {
                        let now = Timestamp::now();
                        seen(
                            verdict,
                            surroundings::look_for_restore(&new, around, now).await,
                        )
                    }
                    _ => verdict,
                }
            }
        }
        .bounded();
        self.record(Endpoint::Admit(step), &request, &verdict, started);
        let subject = Subject {
            kind: &request.kind,
            name: request.name.as_deref().unwrap_or_default(),
        };
        Ok(review::answer(&request.uid, &subject, &verdict)?)
    }

    /// Where to look around, for what is sound in itself: a refusal needs no further reads.
    fn worth_a_look<K>(
        &self,
        verdict: &Verdict,
        asked: Option<Asked<K>>,
    ) -> Option<(Asked<K>, &dyn Surroundings)> {
        let sound = matches!(verdict, Verdict::Allowed { .. });
        asked.filter(|_| sound).zip(self.surroundings.as_deref())
    }

    fn record(
        &self,
        endpoint: Endpoint,
        request: &AdmissionRequest<'_>,
        verdict: &Verdict,
        started: Instant,
    ) {
        let (word, reasons, warnings) = match verdict {
            Verdict::Allowed { patch, warnings } if patch.is_empty() => {
                ("allowed", String::new(), warnings)
            }
            Verdict::Allowed { patch, warnings } => {
                tracing::debug!(uid = request.uid, patch = %paths(patch), "filled in");
                ("patched", format!("{} operations", patch.len()), warnings)
            }
            Verdict::Refused { refusals, warnings } => {
                for refusal in refusals {
                    self.metrics.refused(endpoint, &refusal.reason);
                    tracing::debug!(
                        uid = request.uid,
                        field = refusal.field,
                        "{}",
                        refusal.message
                    );
                }
                let reasons: Vec<String> = refusals
                    .iter()
                    .map(|refusal| format!("{} {}", refusal.field, refusal.reason))
                    .collect();
                ("refused", reasons.join(", "), warnings)
            }
        };
        for warning in warnings {
            tracing::debug!(uid = request.uid, "warned: {warning}");
        }
        tracing::info!(
            webhook = endpoint.path(),
            user = request.user_info.username,
            operation = ?request.operation,
            kind = request.kind.kind,
            object = request.full_name(),
            dry_run = request.dry_run.unwrap_or(false),
            verdict = word,
            reasons,
            warnings = warnings.len(),
            micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            uid = request.uid,
            "admission"
        );
        tracing::trace!(?verdict, "admission in full");
    }

    fn convert(&self, body: &[u8]) -> Result<Vec<u8>, ReviewError> {
        let converted = convert::convert(body, conversion::convert)?;
        if let Some(failure) = &converted.failure {
            self.metrics.refused(Endpoint::Convert, "ConversionFailed");
            tracing::warn!(%failure, "conversion");
        } else {
            tracing::debug!(objects = converted.objects, "conversion");
        }
        Ok(converted.answer)
    }
}

/// The same verdict with what was seen beyond the object.
fn seen(verdict: Verdict, seen: Seen) -> Verdict {
    let (patch, mut warnings) = match verdict {
        Verdict::Allowed { patch, warnings } => (patch, warnings),
        refused @ Verdict::Refused { .. } => return refused,
    };
    warnings.extend(seen.warnings);
    if seen.refusals.is_empty() {
        Verdict::Allowed { patch, warnings }
    } else {
        Verdict::Refused {
            refusals: seen.refusals,
            warnings,
        }
    }
}

/// Which fields a patch touches; their values are nobody's business in a log.
fn paths(patch: &[Value]) -> String {
    let paths: Vec<&str> = patch
        .iter()
        .filter_map(|operation| operation.get("path")?.as_str())
        .collect();
    paths.join(" ")
}

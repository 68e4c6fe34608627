//! What Prometheus sees of the webhook, under controller-runtime's names where it has them. Touches nothing but memory.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use etcd_operator_process::metrics::WEBHOOK_SECONDS;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::endpoint::Endpoint;
use crate::server::TurnedAway;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Webhook {
    webhook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    webhook: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabel {
    webhook: &'static str,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TurnedAwayLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Certificate {
    certificate: &'static str,
}

/// All of the webhook's metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    latency: Family<Webhook, Histogram, fn() -> Histogram>,
    requests: Family<Request, Counter>,
    in_flight: Family<Webhook, Gauge>,
    turned_away: Family<TurnedAwayLabel, Counter>,
    refusals: Family<RefusalLabel, Counter>,
    expiry: Family<Certificate, Gauge<f64, AtomicU64>>,
}

fn latency_histogram() -> Histogram {
    Histogram::new(WEBHOOK_SECONDS)
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            latency: Family::new_with_constructor(latency_histogram as fn() -> Histogram),
            requests: Family::default(),
            in_flight: Family::default(),
            turned_away: Family::default(),
            refusals: Family::default(),
            expiry: Family::default(),
        };
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            metrics.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests",
            "Total number of admission requests by HTTP status code",
            metrics.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served",
            metrics.in_flight.clone(),
        );
        registry.register(
            "etcd_operator_webhook_turned_away",
            "Requests and connections ended because of a limit, by which",
            metrics.turned_away.clone(),
        );
        // There from the start: what never happened is 0, not absent.
        for why in TurnedAway::ALL {
            let reason = why.as_str();
            drop(
                metrics
                    .turned_away
                    .get_or_create(&TurnedAwayLabel { reason }),
            );
        }
        registry.register(
            "etcd_operator_admission_refusals",
            "Refused fields, by reason",
            metrics.refusals.clone(),
        );
        registry.register(
            "etcd_operator_certificate_expiry_timestamp_seconds",
            "When a certificate of the webhook expires",
            metrics.expiry.clone(),
        );
        metrics
    }

    pub(crate) fn answered(&self, endpoint: Endpoint, code: u16, took: Duration) {
        let webhook = endpoint.path();
        self.latency
            .get_or_create(&Webhook { webhook })
            .observe(took.as_secs_f64());
        self.requests
            .get_or_create(&Request { webhook, code })
            .inc();
    }

    pub(crate) fn began(&self, endpoint: Endpoint) {
        let webhook = endpoint.path();
        self.in_flight.get_or_create(&Webhook { webhook }).inc();
    }

    pub(crate) fn ended(&self, endpoint: Endpoint) {
        let webhook = endpoint.path();
        self.in_flight.get_or_create(&Webhook { webhook }).dec();
    }

    pub(crate) fn turned_away(&self, why: TurnedAway) {
        let reason = why.as_str();
        self.turned_away
            .get_or_create(&TurnedAwayLabel { reason })
            .inc();
    }

    /// `reason` is one of the rules' stable words, so there are few.
    pub(crate) fn refused(&self, endpoint: Endpoint, reason: &str) {
        self.refusals
            .get_or_create(&RefusalLabel {
                webhook: endpoint.path(),
                reason: reason.to_owned(),
            })
            .inc();
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "seconds since 1970 fit a double for ever"
    )]
    pub(crate) fn certificates_expire(
        &self,
        leaf: Option<Timestamp>,
        authority: Option<Timestamp>,
    ) {
        for (certificate, expires) in [("leaf", leaf), ("authority", authority)] {
            if let Some(expires) = expires {
                self.expiry
                    .get_or_create(&Certificate { certificate })
                    .set(expires.as_second() as f64);
            }
        }
    }
}

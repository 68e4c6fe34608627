//! The controller's metrics, under the names that dashboards of controllers already know.

use std::time::Duration;

use etcd_operator_process::metrics::RECONCILE_SECONDS;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

const CONTROLLER: &str = "etcdcluster";

/// Cheap to clone; clones count into the same place.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reconciles: Family<Outcome, Counter>,
    errors: Family<ByReason, Counter>,
    seconds: Histogram,
    steps: Family<ByReason, Counter>,
    leader: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    controller: &'static str,
    reason: &'static str,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            errors: Family::default(),
            seconds: Histogram::new(RECONCILE_SECONDS),
            steps: Family::default(),
            leader: Gauge::default(),
        };
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles by result",
            metrics.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Failed reconciles by reason",
            metrics.errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Time a reconcile takes",
            metrics.seconds.clone(),
        );
        registry.register(
            "etcd_operator_steps",
            "Steps taken, by what they did",
            metrics.steps.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 while this process holds the lease",
            metrics.leader.clone(),
        );
        metrics
    }

    pub(crate) fn step(&self, reason: &'static str) {
        self.steps
            .get_or_create(&ByReason {
                controller: CONTROLLER,
                reason,
            })
            .inc();
    }

    pub(crate) fn reconciled(&self, error: Option<&'static str>, took: Duration) {
        let result = if error.is_some() { "error" } else { "success" };
        self.reconciles
            .get_or_create(&Outcome {
                controller: CONTROLLER,
                result,
            })
            .inc();
        if let Some(reason) = error {
            self.errors
                .get_or_create(&ByReason {
                    controller: CONTROLLER,
                    reason,
                })
                .inc();
        }
        self.seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn leads(&self) {
        self.leader.set(1);
    }
}

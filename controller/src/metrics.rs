//! The controller's metrics, under the names that dashboards of controllers already know, and a few of our own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use etcd_operator_process::metrics::{RECONCILE_SECONDS, WORKQUEUE_SECONDS};
use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{cluster::step::Outlook, turns};

const CONTROLLER: &str = "etcdcluster";

/// Cheap to clone; clones count into the same place.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reconciles: Family<Outcome, Counter>,
    errors: Family<ByReason, Counter>,
    seconds: Family<OfController, Histogram>,
    working: Family<OfController, Gauge>,
    places: Family<OfController, Gauge>,
    waiting: Family<OfQueue, Gauge>,
    waited: Family<OfQueue, Histogram>,
    steps: Family<ByReason, Counter>,
    clusters: Family<Standing, Gauge>,
    standings: Arc<Mutex<HashMap<String, Standing>>>,
    saved: Family<OfBackup, Gauge>,
    backups: Arc<Mutex<HashMap<String, OfBackup>>>,
    leader: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfController {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    controller: &'static str,
    name: &'static str,
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

/// How a cluster stands: the condition that is true of it, and that condition's reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Standing {
    condition: &'static str,
    reason: &'static str,
}

impl From<&Outlook> for Standing {
    fn from(outlook: &Outlook) -> Self {
        let (condition, reason) = match outlook {
            Outlook::Settled => ("Ready", "Ready"),
            Outlook::Working { reason, .. } => ("Reconciling", reason.as_str()),
            Outlook::Stalled { reason, .. } => ("Stalled", reason.as_str()),
        };
        Self { condition, reason }
    }
}

/// One EtcdBackup. There are as many as people have made, and each has a row of its own: its age is what an alert watches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBackup {
    /// Not `namespace`: that is the controller's own, where Prometheus asks.
    backup_namespace: String,
    backup: String,
}

const OF_CONTROLLER: OfController = OfController {
    controller: CONTROLLER,
};
const OF_QUEUE: OfQueue = OfQueue {
    controller: CONTROLLER,
    name: CONTROLLER,
};

/// One more of something for as long as it lives, however it ends.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn one_more(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            errors: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(RECONCILE_SECONDS)),
            working: Family::default(),
            places: Family::default(),
            waiting: Family::default(),
            waited: Family::new_with_constructor(|| Histogram::new(WORKQUEUE_SECONDS)),
            steps: Family::default(),
            clusters: Family::default(),
            standings: Arc::default(),
            saved: Family::default(),
            backups: Arc::default(),
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
            "controller_runtime_active_workers",
            "Reconciles under way",
            metrics.working.clone(),
        );
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "How many reconciles may be under way, those of slow clusters aside",
            metrics.places.clone(),
        );
        registry.register(
            "workqueue_depth",
            "Clusters that wait for their turn",
            metrics.waiting.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time a cluster waits for its turn",
            metrics.waited.clone(),
        );
        registry.register(
            "etcd_operator_steps",
            "Steps taken, by what they did",
            metrics.steps.clone(),
        );
        registry.register(
            "etcd_operator_clusters",
            "EtcdClusters, by the condition that is true of them and its reason",
            metrics.clusters.clone(),
        );
        registry.register(
            "etcd_operator_backup_last_success_timestamp_seconds",
            "When the newest good snapshot of an EtcdBackup that repeats was taken; 0 where there is none",
            metrics.saved.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 while this process holds the lease",
            metrics.leader.clone(),
        );
        let places = i64::try_from(turns::PLACES).unwrap_or(i64::MAX);
        metrics.places.get_or_create(&OF_CONTROLLER).set(places);
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

    /// A cluster waits for its turn until what is returned is dropped.
    pub(crate) fn waits(&self) -> Counted {
        Counted::one_more(&self.waiting.get_or_create(&OF_QUEUE))
    }

    /// Its turn has come, and lasts until what is returned is dropped.
    pub(crate) fn works(&self, waited: Duration) -> Counted {
        self.waited
            .get_or_create(&OF_QUEUE)
            .observe(waited.as_secs_f64());
        Counted::one_more(&self.working.get_or_create(&OF_CONTROLLER))
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
        self.seconds
            .get_or_create(&OF_CONTROLLER)
            .observe(took.as_secs_f64());
    }

    /// How this cluster stands now.
    pub(crate) fn stands(&self, cluster: String, outlook: &Outlook) {
        let now = Standing::from(outlook);
        self.clusters.get_or_create(&now).inc();
        let before = self.standings().insert(cluster, now);
        self.leave(before);
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, cluster: &str) {
        let before = self.standings().remove(cluster);
        self.leave(before);
    }

    /// When the newest good snapshot of this backup was taken.
    pub(crate) fn backup(
        &self,
        key: &str,
        namespace: &str,
        backup: &str,
        newest: Option<Timestamp>,
    ) {
        let labels = OfBackup {
            backup_namespace: namespace.to_owned(),
            backup: backup.to_owned(),
        };
        let seconds = newest.map_or(0, Timestamp::as_second);
        self.saved.get_or_create(&labels).set(seconds);
        self.backups().insert(key.to_owned(), labels);
    }

    /// What happened to a backup's run.
    pub(crate) fn backup_told(&self, reason: &'static str) {
        self.steps
            .get_or_create(&ByReason {
                controller: "etcdbackup",
                reason,
            })
            .inc();
    }

    /// The backup is gone.
    pub(crate) fn forget_backup(&self, key: &str) {
        if let Some(labels) = self.backups().remove(key) {
            self.saved.remove(&labels);
        }
    }

    fn backups(&self) -> MutexGuard<'_, HashMap<String, OfBackup>> {
        self.backups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, standing: Option<Standing>) {
        if let Some(standing) = standing {
            self.clusters.get_or_create(&standing).dec();
        }
    }

    fn standings(&self) -> MutexGuard<'_, HashMap<String, Standing>> {
        self.standings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn leads(&self) {
        self.leader.set(1);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::cluster::step::Reason;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[track_caller]
    fn says(registry: &Registry, lines: &[&str]) {
        let text = text(registry);
        for line in lines {
            assert!(
                text.lines().any(|known| known == *line),
                "{line} is missing in\n{text}"
            );
        }
    }

    #[test]
    fn passes_are_counted_under_the_names_controller_runtime_uses() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let waits = metrics.waits();
        says(
            &registry,
            &["workqueue_depth{controller=\"etcdcluster\",name=\"etcdcluster\"} 1"],
        );
        drop(waits);
        let works = metrics.works(Duration::from_millis(1));
        metrics.reconciled(Some("EtcdError"), Duration::from_millis(1));
        says(
            &registry,
            &[
                "workqueue_depth{controller=\"etcdcluster\",name=\"etcdcluster\"} 0",
                "workqueue_queue_duration_seconds_count{controller=\"etcdcluster\",name=\"etcdcluster\"} 1",
                "controller_runtime_active_workers{controller=\"etcdcluster\"} 1",
                "controller_runtime_max_concurrent_reconciles{controller=\"etcdcluster\"} 16",
                "controller_runtime_reconcile_total{controller=\"etcdcluster\",result=\"error\"} 1",
                "controller_runtime_reconcile_errors_total{controller=\"etcdcluster\",reason=\"EtcdError\"} 1",
                "controller_runtime_reconcile_time_seconds_count{controller=\"etcdcluster\"} 1",
                "leader_election_master_status 0",
            ],
        );
        drop(works);
        metrics.leads();
        says(
            &registry,
            &[
                "controller_runtime_active_workers{controller=\"etcdcluster\"} 0",
                "leader_election_master_status 1",
            ],
        );
    }

    #[test]
    fn a_backup_says_when_it_was_last_good_until_it_is_gone() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let row = "etcd_operator_backup_last_success_timestamp_seconds{backup_namespace=\"n\",backup=\"b\"}";
        metrics.backup("n/b", "n", "b", None);
        says(&registry, &[&format!("{row} 0")]);
        metrics.backup("n/b", "n", "b", Timestamp::from_second(7).ok());
        says(&registry, &[&format!("{row} 7")]);
        metrics.forget_backup("n/b");
        assert!(!text(&registry).contains("backup=\"b\""));
    }

    #[test]
    fn a_cluster_is_counted_once_as_it_stands_and_no_more_when_it_is_gone() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let stalled = Outlook::Stalled {
            reason: Reason::QuorumLost,
            message: String::new(),
        };
        metrics.stands("n/a".to_owned(), &stalled);
        metrics.stands("n/b".to_owned(), &stalled);
        metrics.stands("n/b".to_owned(), &Outlook::Settled);
        metrics.stands("n/b".to_owned(), &Outlook::Settled);
        let of_stalled = "etcd_operator_clusters{condition=\"Stalled\",reason=\"QuorumLost\"}";
        let of_ready = "etcd_operator_clusters{condition=\"Ready\",reason=\"Ready\"}";
        says(
            &registry,
            &[&format!("{of_stalled} 1"), &format!("{of_ready} 1")],
        );
        metrics.forget("n/a");
        metrics.forget("n/b");
        says(
            &registry,
            &[&format!("{of_stalled} 0"), &format!("{of_ready} 0")],
        );
    }
}

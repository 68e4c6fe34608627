//! The machine around the pipeline: client, lease, watches, and an orderly end.

use std::{
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use etcd_operator_api::{Policy, policy::BadDefault, v1beta2::EtcdCluster};
use etcd_operator_process::{
    BindError, ConnectError, Drain, HealthServer, Readiness, connect, metrics::RestRequests,
    one_line,
};
use futures::{StreamExt, future::join_all};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service},
        policy::v1::PodDisruptionBudget,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        Config, Controller, WatchStreamExt,
        controller::Action,
        events::{Recorder, Reporter},
        reflector::{self, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;

use crate::{
    FIELD_MANAGER,
    args::Args,
    cluster::{self, Context, ReconcileError, Stores, children::labels::MANAGED_BY},
    lease::{self, Candidate, Leadership, LeaseError},
    metrics::Metrics,
};

/// How many clusters are looked at at once: one slow cluster must not hold up the others.
const CONCURRENCY: u16 = 16;

/// What ends the controller.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    DefaultVersion(#[from] BadDefault),
    #[error("no identity: give --identity, or set POD_NAME")]
    NoIdentity,
    #[error("EtcdClusters cannot be read{scope}")]
    NoPermission { scope: String, source: kube::Error },
    #[error(
        "this Kubernetes does not know EtcdClusters: install their CRD first (the chart does, unless crds.install is false)"
    )]
    NoCrd,
}

/// Runs until told to drain, or until the lease is lost.
pub async fn run(args: Args, drain: Drain) -> Result<(), RunError> {
    let policy = args.common.policy()?;
    let identity = args
        .identity
        .clone()
        .or_else(host_name)
        .ok_or(RunError::NoIdentity)?;
    let health = HealthServer::bind(args.common.health_listen).await?;
    let mut registry = etcd_operator_process::metrics::registry(env!("CARGO_PKG_VERSION"));
    let requests = RestRequests::register(&mut registry);
    let metrics = Metrics::register(&mut registry);
    let readiness = Readiness::new();
    let gate = readiness.gate("kubernetes");
    let serving = tokio::spawn(health.serve(readiness, Arc::new(registry), drain.clone()));

    let client = connect(args.common.kubeconfig.as_deref(), &requests).await?;
    for scope in args.scopes() {
        may_read(&client, scope.as_deref()).await?;
    }
    // A controller that waits for the lease is as ready as it can be.
    gate.complete();

    let candidate = Candidate {
        namespace: args.namespace.clone(),
        lease: args.lease_name.clone(),
        identity,
    };
    let leadership = tokio::select! {
        leadership = lease::acquire(&client, &candidate) => leadership?,
        () = drain.started() => return Ok(()),
    };
    metrics.leads();
    tracing::info!(identity = candidate.identity, "leading");

    let reporter = Reporter {
        controller: FIELD_MANAGER.to_owned(),
        instance: Some(candidate.identity.clone()),
    };
    let recorder = Recorder::new(client.clone(), reporter);
    let controllers = join_all(args.scopes().into_iter().map(|scope| {
        look_after(
            client.clone(),
            scope,
            policy,
            leadership.clone(),
            recorder.clone(),
            metrics.clone(),
            drain.clone(),
        )
    }));
    let outcome = tokio::select! {
        lost = lease::keep(&client, &candidate, &leadership) => Err(lost.into()),
        _ = controllers => Ok(()),
    };
    if outcome.is_ok() {
        lease::release(&client, &candidate).await;
    }
    serving.abort();
    outcome
}

fn host_name() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
}

/// The first question everyone asks of a new installation, asked once and answered in words.
async fn may_read(client: &Client, scope: Option<&str>) -> Result<(), RunError> {
    let api: Api<EtcdCluster> = scoped(client, scope);
    let one = kube::api::ListParams::default().limit(1);
    match api.list(&one).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(RunError::NoCrd),
        Err(source) => Err(RunError::NoPermission {
            scope: scope.map_or_else(String::new, |namespace| {
                format!(" in namespace {namespace}")
            }),
            source,
        }),
    }
}

fn scoped<K>(client: &Client, scope: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    scope.map_or_else(
        || Api::all(client.clone()),
        |namespace| Api::namespaced(client.clone(), namespace),
    )
}

/// One controller over one namespace, or over all.
async fn look_after(
    client: Client,
    scope: Option<String>,
    policy: Policy,
    leadership: Leadership,
    recorder: Recorder,
    metrics: Metrics,
    drain: Drain,
) {
    let scope = scope.as_deref();
    let clusters = Controller::new(
        scoped::<EtcdCluster>(&client, scope),
        watcher::Config::default(),
    );
    let (clusters, pods) = owning::<Pod>(clusters, &client, scope);
    let (clusters, claims) = owning::<PersistentVolumeClaim>(clusters, &client, scope);
    let (clusters, services) = owning::<Service>(clusters, &client, scope);
    let (clusters, config_maps) = owning::<ConfigMap>(clusters, &client, scope);
    let (clusters, budgets) = owning::<PodDisruptionBudget>(clusters, &client, scope);
    let stores = Stores {
        pods,
        claims,
        services,
        config_maps,
        budgets,
        filled: Arc::default(),
    };
    let machine = Arc::new(Machine {
        context: Arc::new(Context {
            client,
            policy,
            stores,
            leadership,
            recorder,
            metrics,
        }),
        failures: Mutex::default(),
    });
    clusters
        .with_config(Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(async move { drain.started().await })
        .run(reconcile, after_error, machine)
        .for_each(|outcome| async move {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a pass ended early");
            }
        })
        .await;
}

/// Watches one kind of child: what changes wakes its cluster, what is there is kept in a store.
fn owning<K>(
    controller: Controller<EtcdCluster>,
    client: &Client,
    scope: Option<&str>,
) -> (Controller<EtcdCluster>, Store<K>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let ours = watcher::Config::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let changes = watcher(scoped::<K>(client, scope), ours)
        .default_backoff()
        // Nobody reads it, and it is half of an object's size.
        .modify(|child| child.managed_fields_mut().clear())
        .reflect(writer)
        .touched_objects();
    (controller.owns_stream(changes), store)
}

/// The pipeline, with what has to be remembered between two passes over one cluster.
struct Machine {
    context: Arc<Context>,
    /// Failures in a row, by cluster: each cluster backs off on its own.
    failures: Mutex<HashMap<String, u32>>,
}

impl Machine {
    fn failed(&self, object: &EtcdCluster) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures
            .entry(object.uid().unwrap_or_default())
            .or_default();
        *count += 1;
        *count - 1
    }

    fn succeeded(&self, object: &EtcdCluster) {
        let uid = object.uid().unwrap_or_default();
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&uid);
    }
}

async fn reconcile(
    object: Arc<EtcdCluster>,
    machine: Arc<Machine>,
) -> Result<Action, ReconcileError> {
    let started = Instant::now();
    // An empty cache looks exactly like a cluster that has lost everything.
    machine.context.stores.wait_until_ready().await?;
    let outcome = Box::pin(cluster::reconcile(object.clone(), machine.context.clone())).await;
    machine.context.metrics.reconciled(
        outcome.as_ref().err().map(ReconcileError::reason),
        started.elapsed(),
    );
    if outcome.is_ok() {
        machine.succeeded(&object);
    }
    outcome
}

#[allow(clippy::needless_pass_by_value)] // The runtime hands over what it has.
fn after_error(object: Arc<EtcdCluster>, error: &ReconcileError, machine: Arc<Machine>) -> Action {
    let wait: Duration = if error.is_conflict() {
        cluster::AFTER_CONFLICT
    } else {
        let wait = cluster::back_off(machine.failed(&object));
        tracing::warn!(
            cluster = object.name_any(),
            namespace = object.namespace(),
            reason = error.reason(),
            error = one_line(error),
            "trying again"
        );
        wait
    };
    Action::requeue(wait)
}

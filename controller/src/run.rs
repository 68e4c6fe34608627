//! The machine around the pipeline: client, lease, watches, and an orderly end.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
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
        controller::{self, Action},
        events::{Recorder, Reporter},
        reflector::{self, Store},
        watcher,
    },
};

use crate::{
    FIELD_MANAGER,
    args::Args,
    backup,
    cluster::{
        self, Context, Next, ReconcileError, Stores,
        memory::{Memory, key, named},
        watch_children,
    },
    lease::{self, Candidate, Leadership, LeaseError},
    metrics::Metrics,
    restore,
    turns::{self, Failures, Turns},
};

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
        .or_else(this_process)
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
    let restores = join_all(args.scopes().into_iter().map(|scope| {
        restore::look_after(
            scoped(&client, scope.as_deref()),
            restore::Context {
                client: client.clone(),
                policy,
                leadership: leadership.clone(),
                reporter: reporter.clone(),
                agent_image: args.agent_image.clone(),
            },
            drain.clone(),
        )
    }));
    let clusters = join_all(args.scopes().into_iter().map(|scope| {
        look_after(
            client.clone(),
            scope,
            Settings {
                policy,
                agent_image: args.agent_image.clone(),
            },
            leadership.clone(),
            reporter.clone(),
            metrics.clone(),
            drain.clone(),
        )
    }));
    let of_backups = Arc::new(backup::Context {
        client: client.clone(),
        policy,
        leadership: leadership.clone(),
        recorder: Recorder::new(client.clone(), reporter.clone()),
        metrics: metrics.clone(),
        agent_image: args.agent_image.clone(),
        failures: Failures::default(),
    });
    let backups = join_all(args.scopes().into_iter().map(|scope| {
        backup::look_after(
            Arc::clone(&of_backups),
            scoped(&client, scope.as_deref()),
            scoped(&client, scope.as_deref()),
            scoped(&client, scope.as_deref()),
            drain.clone(),
        )
    }));
    let outcome = tokio::select! {
        lost = lease::keep(&client, &candidate, &leadership) => Err(lost.into()),
        _ = futures::future::join3(clusters, backups, restores) => Ok(()),
    };
    if outcome.is_ok() {
        lease::release(&client, &candidate).await;
    }
    serving.abort();
    outcome
}

/// For a controller outside a Pod. Two of them on one host must not take each other's lease for their own.
fn this_process() -> Option<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let host = host.trim();
    let once = RandomState::new().hash_one(std::process::id());
    (!host.is_empty()).then(|| format!("{host}_{once:016x}"))
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

/// What the operator's owner decided.
struct Settings {
    policy: Policy,
    agent_image: String,
}

/// One controller over one namespace, or over all.
async fn look_after(
    client: Client,
    scope: Option<String>,
    settings: Settings,
    leadership: Leadership,
    reporter: Reporter,
    metrics: Metrics,
    drain: Drain,
) {
    let scope = scope.as_deref();
    let (clusters, writer) = reflector::store();
    let changes = watcher(
        scoped::<EtcdCluster>(&client, scope),
        watcher::Config::default(),
    )
    .default_backoff()
    // Nobody reads it, and it is half of an object's size.
    .modify(|cluster| cluster.metadata.managed_fields = None)
    .reflect(writer)
    .touched_objects();
    let (of_pods, pods) = watch_children::<Pod>(scoped(&client, scope));
    let (of_claims, claims) = watch_children::<PersistentVolumeClaim>(scoped(&client, scope));
    let (of_services, services) = watch_children::<Service>(scoped(&client, scope));
    let (of_config_maps, config_maps) = watch_children::<ConfigMap>(scoped(&client, scope));
    let (of_budgets, budgets) = watch_children::<PodDisruptionBudget>(scoped(&client, scope));
    let stores = Stores {
        pods,
        claims,
        services,
        config_maps,
        budgets,
    };
    let machine = Arc::new(Machine {
        context: Arc::new(Context {
            warnings: Recorder::new(client.clone(), reporter.clone()),
            reporter,
            client,
            policy: settings.policy,
            stores,
            leadership,
            metrics,
            memory: Memory::default(),
            drops_accepted: AtomicBool::new(false),
            agent_image: settings.agent_image,
        }),
        clusters: clusters.clone(),
        turns: Turns::default(),
        failures: Failures::default(),
    });
    Controller::for_stream(changes, clusters)
        .reconcile_on(of_pods)
        .reconcile_on(of_claims)
        .reconcile_on(of_services)
        .reconcile_on(of_config_maps)
        .reconcile_on(of_budgets)
        // Unbounded here: whose turn it is, `turns` knows better.
        .with_config(Config::default().concurrency(0))
        .graceful_shutdown_on({
            let machine = Arc::clone(&machine);
            async move {
                drain.started().await;
                machine.turns.end();
            }
        })
        .run(reconcile, after_error, Arc::clone(&machine))
        .for_each(|outcome| {
            match outcome {
                Err(controller::Error::ObjectNotFound(gone)) => {
                    machine.forget(&named(gone.namespace.as_deref(), &gone.name));
                }
                Err(error) => tracing::debug!(%error, "a pass ended early"),
                Ok(_) => {}
            }
            std::future::ready(())
        })
        .await;
}

/// The pipeline, with what has to be remembered between two passes over one cluster.
struct Machine {
    context: Arc<Context>,
    clusters: Store<EtcdCluster>,
    turns: Turns,
    failures: Failures,
}

impl Machine {
    /// The cluster is gone.
    fn forget(&self, cluster: &str) {
        self.failures.forget(cluster);
        self.turns.forget(cluster);
        self.context.memory.forget(cluster);
        self.context.metrics.forget(cluster);
    }
}

async fn reconcile(
    object: Arc<EtcdCluster>,
    machine: Arc<Machine>,
) -> Result<Action, ReconcileError> {
    let cluster = key(&object);
    let metrics = &machine.context.metrics;
    let (waits, since) = (metrics.waits(), Instant::now());
    // Boxed, and made only when its turn has come: a thousand that wait are small.
    machine
        .turns
        .take(&cluster, async {
            drop(waits);
            let started = Instant::now();
            let _works = metrics.works(started - since);
            let outcome = Box::pin(pass(object, &machine)).await;
            metrics.reconciled(
                outcome.as_ref().err().map(ReconcileError::reason),
                started.elapsed(),
            );
            if outcome.is_ok() {
                machine.failures.forget(&cluster);
            }
            outcome
        })
        .await
        .unwrap_or_else(|| Ok(Action::await_change()))
}

async fn pass(object: Arc<EtcdCluster>, machine: &Machine) -> Result<Action, ReconcileError> {
    // An empty cache looks exactly like a cluster that has lost everything.
    machine.context.stores.wait_until_ready().await?;
    let next = Box::pin(cluster::reconcile(object, machine.context.clone())).await?;
    Ok(match next {
        Next::Change => Action::await_change(),
        Next::After(wait) => Action::requeue(wait),
        Next::AtRest(wait) => Action::requeue(turns::at_rest(wait, machine.clusters.len())),
    })
}

#[allow(clippy::needless_pass_by_value)] // The runtime hands over what it has.
fn after_error(object: Arc<EtcdCluster>, error: &ReconcileError, machine: Arc<Machine>) -> Action {
    if error.is_conflict() {
        return Action::requeue(cluster::AFTER_CONFLICT);
    }
    let wait = machine.failures.one_more(&key(&object));
    if error.is_the_end() {
        tracing::debug!(
            cluster = object.name_any(),
            namespace = object.namespace(),
            error = one_line(error),
            "its namespace is being deleted"
        );
    } else {
        tracing::warn!(
            cluster = object.name_any(),
            namespace = object.namespace(),
            reason = error.reason(),
            error = one_line(error),
            "trying again"
        );
    }
    Action::requeue(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_controllers_on_one_host_have_two_names() {
        let (one, other) = (this_process().unwrap(), this_process().unwrap());
        assert_ne!(one, other);
    }
}

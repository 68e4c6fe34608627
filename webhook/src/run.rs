//! The webhook as a process: ports first, then the API server, then certificates, and from then on it answers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::policy::BadDefault;
use etcd_operator_certs::kubernetes::{Keeper, KeeperError, Settings, Standing};
use etcd_operator_certs::{HotResolver, Jitter, RotationPolicy};
use etcd_operator_process::metrics::{RestRequests, registry};
use etcd_operator_process::{
    BindError, ConnectError, Drain, HealthServer, Readiness, bind, connect,
};
use jiff::Timestamp;

use crate::admission::Admission;
use crate::flags::Flags;
use crate::metrics::Metrics;
use crate::server::{Limits, serve, tls_config};
use crate::surroundings::Live;

/// Short-lived, because it costs nothing: it is made in memory and swapped in place.
const LEAF_LIFETIME: Duration = Duration::from_hours(24);

/// Why the webhook ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    DefaultVersion(#[from] BadDefault),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// Runs until the drain is over.
pub async fn run(flags: Flags, drain: Drain) -> Result<(), RunError> {
    let policy = flags.common.policy()?;
    // Ports first: one in use is the quickest thing to find out.
    let health = HealthServer::bind(flags.common.health_listen).await?;
    let listener = bind(flags.listen, "--listen").await?;

    let mut registry = registry(env!("CARGO_PKG_VERSION"));
    let metrics = Metrics::register(&mut registry);
    let requests = RestRequests::register(&mut registry);
    let readiness = Readiness::new();
    let gate = readiness.gate("certificate");
    tokio::spawn(health.serve(readiness, Arc::new(registry), drain.clone()));

    let client = connect(flags.common.kubeconfig.as_deref(), &requests).await?;
    let settings = Settings {
        places: flags.places(),
        namespace: flags.namespace,
        secret_name: flags.ca_secret,
        service_name: flags.service_name,
        rotation: RotationPolicy::default(),
        leaf_lifetime: LEAF_LIFETIME,
        jitter: jitter(),
    };
    let resolver = HotResolver::new();
    let keeper = Keeper::start(client.clone(), settings, resolver.clone(), Timestamp::now).await?;

    let admission = Admission {
        policy,
        autoscalers: flags.autoscaler_accounts.into_iter().collect(),
        metrics: metrics.clone(),
        surroundings: Some(Arc::new(Live::new(client))),
    };
    let serving = serve(
        listener,
        tls_config(Arc::new(resolver))?,
        Arc::new(admission),
        Limits::default(),
        drain,
    );
    let keeping = keeper.run(move |standing: &Standing| {
        metrics.certificates_expire(
            standing.leaf_expires.as_second(),
            standing.authority_expires.as_second(),
        );
        match &standing.problem {
            None => gate.open(),
            Some(problem) => gate.close(problem.clone()),
        }
    });
    tokio::select! {
        () = serving => Ok(()),
        kept = keeping => match kept {
            Err(error) => Err(error.into()),
        },
    }
}

/// Chance from the standard library's hash seeds: enough to keep replicas apart.
fn jitter() -> Jitter {
    let chance = RandomState::new().build_hasher().finish() >> 32;
    let chance = u32::try_from(chance).unwrap_or_default();
    Jitter::new(f64::from(chance) / f64::from(u32::MAX))
}

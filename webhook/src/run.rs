//! The webhook as a process: ports first, then the API server, then certificates, and from then on it answers.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::policy::BadDefault;
use etcd_operator_certs::kubernetes::{
    Keeper, KeeperError, MountSettings, MountedKeeper, Settings, Standing,
};
use etcd_operator_certs::{BundleFile, CertError, FilesError, HotClientCheck, HotResolver, Jitter};
use etcd_operator_process::metrics::{RestRequests, registry};
use etcd_operator_process::{
    BindError, ConnectError, Drain, HealthServer, Readiness, bind, connect, one_line,
};
use jiff::Timestamp;
use kube::Client;
use rustls::server::danger::ClientCertVerifier;

use crate::admission::Admission;
use crate::flags::{Certificates, Flags};
use crate::metrics::Metrics;
use crate::server::{Limits, serve, tls_config};
use crate::surroundings::{Live, Secrets};

const LOOK_AT_CLIENT_AUTHORITIES: Duration = Duration::from_secs(5);

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
    #[error("--client-ca-file")]
    ClientFile(#[from] FilesError),
    #[error("--client-ca-file {path} cannot be used")]
    ClientAuthorities {
        path: PathBuf,
        #[source]
        source: CertError,
    },
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

    let clients = flags.client_ca_file.clone().map(client_check).transpose()?;
    let client = connect(flags.common.kubeconfig.as_deref(), &requests).await?;
    let resolver = HotResolver::new();
    let keeper = Keeping::start(&flags, client.clone(), resolver.clone()).await?;

    let secrets = if flags.check_secrets {
        Secrets::Read
    } else {
        Secrets::LeftAlone
    };
    let admission = Admission {
        policy,
        autoscalers: flags.autoscaler_accounts.into_iter().collect(),
        metrics: metrics.clone(),
        surroundings: Some(Arc::new(Live::new(client, secrets))),
    };
    let serving = serve(
        listener,
        tls_config(Arc::new(resolver), clients)?,
        Arc::new(admission),
        Limits::default(),
        drain,
    );
    let keeping = keeper.run(move |standing: &Standing| {
        metrics.certificates_expire(standing.leaf_expires, standing.authority_expires);
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

/// Whoever keeps the certificate right.
enum Keeping {
    Own(Box<Keeper>),
    Mounted(Box<MountedKeeper>),
}

impl Keeping {
    async fn start(
        flags: &Flags,
        client: Client,
        resolver: HotResolver,
    ) -> Result<Self, KeeperError> {
        match flags.certificates() {
            Certificates::Own { secret } => {
                let settings = Settings {
                    places: flags.places(),
                    namespace: flags.namespace.clone(),
                    secret_name: secret,
                    service_name: flags.service_name.clone(),
                    rotation: flags.lifetimes.rotation(),
                    leaf_lifetime: flags.lifetimes.leaf_lifetime,
                    jitter: jitter(),
                };
                let keeper = Keeper::start(client, settings, resolver, Timestamp::now).await?;
                Ok(Self::Own(Box::new(keeper)))
            }
            Certificates::Mounted { directory, publish } => {
                let settings = MountSettings {
                    directory,
                    server_name: flags.server_name(),
                    places: flags.places(),
                    publish,
                };
                let keeper = MountedKeeper::start(client, settings, resolver, Timestamp::now)?;
                Ok(Self::Mounted(Box::new(keeper)))
            }
        }
    }

    async fn run(self, report: impl Fn(&Standing)) -> Result<Infallible, KeeperError> {
        match self {
            Self::Own(keeper) => keeper.run(report).await,
            Self::Mounted(keeper) => keeper.run(report).await,
        }
    }
}

/// Callers must show a certificate of an authority in this file, which is read again when it changes; a bad one is refused while
/// the old stays in use.
fn client_check(path: PathBuf) -> Result<Arc<dyn ClientCertVerifier>, RunError> {
    let bad = |path: &Path, source| RunError::ClientAuthorities {
        path: path.to_owned(),
        source,
    };
    let mut file = BundleFile::new(path);
    let bundle = file.changed()?.unwrap_or_default();
    let check = HotClientCheck::from_pem(&bundle).map_err(|source| bad(file.path(), source))?;
    let swapped = check.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK_AT_CLIENT_AUTHORITIES).await;
            let outcome = match file.changed() {
                Ok(None) => continue,
                Ok(Some(bundle)) => swapped
                    .swap(&bundle)
                    .map_err(|source| bad(file.path(), source)),
                Err(error) => Err(error.into()),
            };
            match outcome {
                Ok(()) => tracing::info!("authorities of callers read again"),
                Err(error) => tracing::error!("kept the old authorities: {}", one_line(&error)),
            }
        }
    });
    Ok(Arc::new(check))
}

/// Chance from the standard library's hash seeds: enough to keep replicas apart.
fn jitter() -> Jitter {
    let chance = RandomState::new().build_hasher().finish() >> 32;
    let chance = u32::try_from(chance).unwrap_or_default();
    Jitter::new(f64::from(chance) / f64::from(u32::MAX))
}

//! The client to the API server: which credentials, which time-outs, and a count of its requests. Opens connections; reads the
//! kubeconfig or the Pod's service account.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::{Request, Response};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder};

use crate::metrics::RestRequests;

/// An API server that does not pick up within this is not there; waiting longer only hides it from whoever reads the Pod's log.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the API server may take for the first, trivial answer.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the API server may take to begin any answer. kube sets no limit, and a pass over a cluster that waits for an answer
/// which never comes is a cluster nobody looks after. Watches begin their answer at once; that they go on, kube sees to.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// After how long without a sign of life a connection is probed, how often, and when it is given up: an API server whose machine
/// lost its power says no goodbye.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Box<KubeconfigError>,
    },
    #[error("cannot use the Pod's service account")]
    ServiceAccount(#[source] Box<InClusterError>),
    #[error("no --kubeconfig, not in a Pod, and no usable kubeconfig of the user")]
    NoConfiguration(#[source] Box<KubeconfigError>),
    #[error("cannot set up a client for the API server at {url}")]
    Client {
        url: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot reach the API server at {url}")]
    Unreachable {
        url: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the API server at {url} did not answer within {} s", FIRST_ANSWER_TIMEOUT.as_secs())]
    Silent { url: String },
}

/// Makes ring the process's one crypto provider. Harmless when called again.
pub fn install_crypto_provider() {
    let _already = rustls::crypto::ring::default_provider().install_default();
}

/// A client whose API server has answered once: the errors that everyone meets first (wrong address, nothing there) show here, and
/// the connection it leaves in the pool spares the next request its handshake.
pub async fn connect(
    kubeconfig: Option<&Path>,
    requests: &RestRequests,
) -> Result<Client, ConnectError> {
    install_crypto_provider();
    let config = configuration(kubeconfig).await?;
    let url = config.cluster_url.to_string();
    let client =
        client(&config, requests, ANSWER_TIMEOUT).map_err(|source| ConnectError::Client {
            url: url.clone(),
            source: Box::new(source),
        })?;
    match tokio::time::timeout(FIRST_ANSWER_TIMEOUT, client.apiserver_version()).await {
        Ok(Ok(version)) => {
            tracing::debug!(%url, version = version.git_version, "API server");
            Ok(client)
        }
        // It answered, if only with a refusal: some clusters forbid /version to everyone but administrators.
        Ok(Err(kube::Error::Api(_))) => Ok(client),
        Ok(Err(source)) => Err(ConnectError::Unreachable {
            url,
            source: Box::new(source),
        }),
        Err(_elapsed) => Err(ConnectError::Silent { url }),
    }
}

/// kube's own stack, but for two things. It leaves Nagle's algorithm on, and with it the first request on every new connection waits
/// 40 ms for the API server's delayed acknowledgement of the handshake. And it waits for ever where nobody answers.
fn client(config: &Config, requests: &RestRequests, patience: Duration) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        // kube knows proxies, or says that it was built without.
        return Ok(ClientBuilder::try_from(config.clone())?.build());
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(PROBE_AFTER));
    tcp.set_keepalive_interval(Some(PROBE_EVERY));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let host = config.cluster_url.authority().map(ToString::to_string);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::default()))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer(CountRequests {
            requests: requests.clone(),
            host: host.unwrap_or_default(),
        })
        .map_future(move |answer| async move {
            let silence = || format!("no answer within {} s", patience.as_secs_f32());
            tokio::time::timeout(patience, answer)
                .await
                .unwrap_or_else(|_elapsed| Err(silence().into()))
        })
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, &config.default_namespace).build())
}

/// A Pod's service account wins over a kubeconfig that happens to lie about; `Config::infer` has it the other way round.
async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    if let Some(path) = kubeconfig {
        let broken = |source| ConnectError::Kubeconfig {
            path: path.to_owned(),
            source: Box::new(source),
        };
        let kubeconfig = Kubeconfig::read_from(path).map_err(broken)?;
        return Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(broken);
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Config::incluster()
            .map_err(|source| ConnectError::ServiceAccount(Box::new(source)));
    }
    Config::from_kubeconfig(&KubeConfigOptions::default())
        .await
        .map_err(|source| ConnectError::NoConfiguration(Box::new(source)))
}

/// Counts what is asked of the API server, by verb and answer.
#[derive(Clone, Debug)]
struct CountRequests {
    requests: RestRequests,
    host: String,
}

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            count: self.clone(),
        }
    }
}

#[derive(Clone, Debug)]
struct Counted<S> {
    inner: S,
    count: CountRequests,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        let count = self.count.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().ok().map(|a| a.status().as_u16());
            count.requests.count(method.as_str(), code, &count.host);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_request_that_is_never_answered_ends_with_an_error() {
        install_crypto_provider();
        // Takes connections, as a frozen process's kernel does, and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let requests = RestRequests::register(&mut crate::metrics::registry("9.9.9"));
        let config = Config::new(url.parse().unwrap());
        let client = client(&config, &requests, Duration::from_millis(50)).unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        assert!(
            crate::one_line(&error).contains("no answer within 0.05 s"),
            "{}",
            crate::one_line(&error)
        );
    }
}

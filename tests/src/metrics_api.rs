//! A metrics API of the tests' own, for autoscalers: one external metric, whose value a scenario sets. Served by this process, behind a
//! Service that leads here, and registered with the API server as any metrics adapter is.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use etcd_operator_certs::{CertificateAuthority, LeafRequest, Usage};
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, header::CONTENT_TYPE, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::Service, discovery::v1::EndpointSlice},
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use crate::{Context, until};

const GROUP: &str = "external.metrics.k8s.io";
const REGISTERED: &str = "v1beta1.external.metrics.k8s.io";
/// What the autoscaler asks for.
pub const METRIC: &str = "wanted-members";

/// Registered while it lives; `remove` takes it away again.
#[derive(Debug)]
pub struct MetricsApi {
    value: Arc<AtomicU32>,
    serving: JoinHandle<()>,
}

impl MetricsApi {
    /// Serves on a port of its own and waits until the API server passes requests on.
    pub async fn serve(context: &Context, value: u32) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let port = listener.local_addr()?.port();
        let value = Arc::new(AtomicU32::new(value));
        let serving = tokio::spawn(serve(listener, acceptor()?, Arc::clone(&value)));
        register(context, SocketAddr::new(own_address(context)?, port)).await?;
        Ok(Self { value, serving })
    }

    pub fn set(&self, value: u32) {
        self.value.store(value, Ordering::SeqCst);
    }

    pub async fn remove(self, context: &Context) -> anyhow::Result<()> {
        let registered: Api<APIService> = Api::all(context.client());
        registered
            .delete(REGISTERED, &DeleteParams::default())
            .await?;
        self.serving.abort();
        Ok(())
    }
}

/// The address at which this process is reached in the cluster's network: the one the API server listens on is on the same host.
fn own_address(context: &Context) -> anyhow::Result<std::net::IpAddr> {
    let kubeconfig = kube::config::Kubeconfig::read_from(&context.environment().kubeconfig)?;
    let server = kubeconfig
        .clusters
        .first()
        .and_then(|cluster| cluster.cluster.as_ref()?.server.clone())
        .context("the kubeconfig names a server")?;
    let authority = server.rsplit("//").next().unwrap_or_default();
    let address: SocketAddr = authority
        .parse()
        .with_context(|| format!("{server} is no address"))?;
    Ok(address.ip())
}

async fn register(context: &Context, here: SocketAddr) -> anyhow::Result<()> {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "metrics"},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": here.port(), "protocol": "TCP"}]},
    }))?;
    context
        .api::<Service>()
        .create(&PostParams::default(), &service)
        .await?;
    let endpoints: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": "metrics", "labels": {"kubernetes.io/service-name": "metrics"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": here.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [here.ip()], "conditions": {"ready": true}}],
    }))?;
    context
        .api::<EndpointSlice>()
        .create(&PostParams::default(), &endpoints)
        .await?;
    let service: APIService = serde_json::from_value(json!({
        "metadata": {"name": REGISTERED},
        "spec": {
            "group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"name": "metrics", "namespace": context.namespace(), "port": 443},
        },
    }))?;
    let registered: Api<APIService> = Api::all(context.client());
    registered.create(&PostParams::default(), &service).await?;
    until(
        registered,
        REGISTERED,
        "the metrics API to be passed on to",
        |found| {
            found
                .and_then(|service| service.status.as_ref())
                .and_then(|status| status.conditions.as_ref())
                .is_some_and(|conditions| {
                    conditions
                        .iter()
                        .any(|one| one.type_ == "Available" && one.status == "True")
                })
        },
    )
    .await?;
    Ok(())
}

fn acceptor() -> anyhow::Result<TlsAcceptor> {
    let (now, life) = (Timestamp::now(), Duration::from_hours(24));
    let leaf = CertificateAuthority::generate("metrics of the tests", now, life)?.issue(
        &LeafRequest {
            common_name: "metrics".to_owned(),
            names: vec!["metrics".parse()?],
            usage: Usage::Server,
            lifetime: life,
        },
        now,
    )?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let resolver = etcd_operator_certs::HotResolver::new();
    resolver.swap(&leaf)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, value: Arc<AtomicU32>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, value) = (acceptor.clone(), Arc::clone(&value));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(move |request: Request<_>| {
                let answer = answer(request.uri().path(), value.load(Ordering::SeqCst));
                async move { answer }
            });
            let connection = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // A caller that hangs up is its own affair.
            let _ended = connection
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(path: &str, value: u32) -> hyper::http::Result<Response<Full<Bytes>>> {
    let api = format!("/apis/{GROUP}/v1beta1");
    let (status, body) = if path == api {
        let resources = json!([{
            "name": METRIC, "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"],
        }]);
        (200, list("APIResourceList", "v1", "resources", &resources))
    } else if path.starts_with(&api) && path.ends_with(METRIC) {
        let items = json!([{
            "metricName": METRIC, "metricLabels": {}, "timestamp": Timestamp::now().to_string(), "value": value.to_string(),
        }]);
        let version = format!("{GROUP}/v1beta1");
        (
            200,
            list("ExternalMetricValueList", &version, "items", &items),
        )
    } else {
        (
            404,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}),
        )
    };
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body.to_string()))
}

fn list(kind: &str, version: &str, items: &str, of: &Value) -> Value {
    let mut list = json!({"kind": kind, "apiVersion": version, "groupVersion": format!("{GROUP}/v1beta1"), "metadata": {}});
    list[items] = of.clone();
    list
}

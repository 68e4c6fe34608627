//! A webhook on a real socket with real TLS, and a client that trusts its authority. No API server.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::Policy;
use etcd_operator_certs::{
    CertificateAuthority, HotResolver, Leaf, LeafRequest, Usage, certificates_in,
};
use etcd_operator_process::DrainTrigger;
use etcd_operator_webhook::server::{Limits, serve, tls_config};
use etcd_operator_webhook::surroundings::Surroundings;
use etcd_operator_webhook::{Admission, Metrics};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const NAME: &str = "webhook.ns.svc";
pub(crate) const AUTOSCALER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

pub(crate) struct Webhook {
    pub(crate) address: SocketAddr,
    pub(crate) authority: CertificateAuthority,
    pub(crate) resolver: HotResolver,
    pub(crate) trigger: DrainTrigger,
    pub(crate) served: JoinHandle<()>,
    pub(crate) registry: Registry,
}

pub(crate) fn quick() -> Limits {
    Limits {
        linger: Duration::from_millis(50),
        drain: Duration::from_secs(5),
        ..Limits::default()
    }
}

pub(crate) async fn start(limits: Limits, surroundings: Option<Arc<dyn Surroundings>>) -> Webhook {
    start_checking(limits, surroundings, None).await
}

pub(crate) async fn start_checking(
    limits: Limits,
    surroundings: Option<Arc<dyn Surroundings>>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Webhook {
    let mut registry = Registry::default();
    let admission = Admission {
        policy: Policy::default(),
        autoscalers: BTreeSet::from([AUTOSCALER.to_owned()]),
        metrics: Metrics::register(&mut registry),
        surroundings,
    };
    let now = Timestamp::now();
    let authority =
        CertificateAuthority::generate("test-ca", now, Duration::from_hours(24)).unwrap();
    let resolver = HotResolver::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, drain) = DrainTrigger::new();
    let tls = tls_config(Arc::new(resolver.clone()), clients).unwrap();
    let served = tokio::spawn(serve(listener, tls, Arc::new(admission), limits, drain));
    let webhook = Webhook {
        address,
        authority,
        resolver,
        trigger,
        served,
        registry,
    };
    webhook.swap_leaf();
    webhook
}

impl Webhook {
    /// Issues a new leaf and swaps it in, as a renewal does.
    pub(crate) fn swap_leaf(&self) {
        let request = LeafRequest {
            common_name: NAME.to_owned(),
            names: vec![NAME.parse().unwrap()],
            usage: Usage::Server,
            lifetime: Duration::from_hours(1),
        };
        let leaf = self.authority.issue(&request, Timestamp::now()).unwrap();
        self.resolver.swap(&leaf).unwrap();
    }

    pub(crate) async fn tls(&self, alpn: &[&str]) -> TlsStream<TcpStream> {
        self.try_tls(alpn).await.unwrap()
    }

    pub(crate) async fn try_tls(&self, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        self.try_tls_as(alpn, None).await
    }

    /// A client that shows a certificate.
    pub(crate) async fn try_tls_as(
        &self,
        alpn: &[&str],
        identity: Option<&Leaf>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates_in(self.authority.certificate_pem().as_bytes()).unwrap() {
            roots.add(certificate).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => config.with_no_client_auth(),
            Some(leaf) => {
                let key = PrivateKeyDer::from_pem_slice(leaf.key_pem().as_bytes()).unwrap();
                config
                    .with_client_auth_cert(leaf.chain().to_vec(), key)
                    .unwrap()
            }
        };
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(NAME).unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    pub(crate) async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        let io = TokioIo::new(self.tls(&["http/1.1"]).await);
        let (sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    pub(crate) async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        let io = TokioIo::new(self.tls(&["h2"]).await);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// One POST over a connection of its own.
    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> (StatusCode, Bytes) {
        let mut sender = self.http1().await;
        let response = sender.send_request(post(path, body)).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, body)
    }

    /// One review; what comes back is the `response`.
    pub(crate) async fn review(&self, path: &str, review: &Value) -> Value {
        let (status, body) = self.post(path, review.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        answer["response"].take()
    }
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path)
        .header("host", NAME)
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

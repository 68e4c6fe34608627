//! The plain HTTP port for kubelet and Prometheus: `/healthz`, `/readyz`, `/metrics`.
//!
//! It answers until the process ends, also while draining: kubelet must be able to see that the process is alive but no longer
//! ready.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::{Drain, Readiness};

/// Probes and a scraper or two; more than this is a mistake or an attack.
const MAX_CONNECTIONS: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// What Prometheus sends as Accept for OpenMetrics, which is the format the registry writes.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A port could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({flag})")]
pub struct BindError {
    address: SocketAddr,
    flag: &'static str,
    #[source]
    source: io::Error,
}

/// Binds `address`; `flag` is the one that names it, so the error says what to change.
pub async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError {
            address,
            flag,
            source,
        })
}

/// The bound health port; answers once `serve` runs.
#[derive(Debug)]
pub struct HealthServer {
    listener: TcpListener,
}

impl HealthServer {
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        bind(address, "--health-listen")
            .await
            .map(|listener| Self { listener })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers for ever: spawn it. From the start of the drain on, `/readyz` says no, so that no new work is sent here.
    pub async fn serve(self, readiness: Readiness, registry: Arc<Registry>, drain: Drain) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let stream = match self.listener.accept().await {
                Ok((stream, _peer)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: give others time to close theirs.
                    tracing::warn!(%error, "health port cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (readiness, registry, drain) =
                (readiness.clone(), Arc::clone(&registry), drain.clone());
            tokio::spawn(async move {
                answer_connection(stream, readiness, registry, drain).await;
                drop(place);
            });
        }
    }
}

async fn answer_connection(
    stream: TcpStream,
    readiness: Readiness,
    registry: Arc<Registry>,
    drain: Drain,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(
            request.method(),
            request.uri().path(),
            &readiness,
            &registry,
            &drain,
        );
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "health connection");
    }
}

fn answer(
    method: &Method,
    path: &str,
    readiness: &Readiness,
    registry: &Registry,
    drain: &Drain,
) -> Response<Full<Bytes>> {
    if !matches!(path, "/healthz" | "/livez" | "/readyz" | "/metrics") {
        return text(StatusCode::NOT_FOUND, "not found\n");
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/readyz" => ready(readiness, drain),
        "/metrics" => metrics(registry),
        _ => text(StatusCode::OK, "ok\n"),
    }
}

fn ready(readiness: &Readiness, drain: &Drain) -> Response<Full<Bytes>> {
    if drain.has_started() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "not ready\ndraining\n");
    }
    let pending = readiness.pending();
    if pending.is_empty() {
        return text(StatusCode::OK, "ok\n");
    }
    let mut body = "not ready\n".to_owned();
    for gate in pending {
        body.push_str(&gate.to_string());
        body.push('\n');
    }
    text(StatusCode::SERVICE_UNAVAILABLE, body)
}

fn metrics(registry: &Registry) -> Response<Full<Bytes>> {
    let mut body = String::new();
    if encode(&mut body, registry).is_err() {
        return text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "metrics cannot be written\n",
        );
    }
    let mut response = text(StatusCode::OK, body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

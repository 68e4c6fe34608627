//! The HTTPS server: connections, limits, time-outs, drain. It knows endpoints and bytes, nothing of Kubernetes.
//!
//! Every wait on a peer has an end, and what peers can make us hold has a bound: connections are counted, bodies are paid for out
//! of one budget before they are read.

mod punctual;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_process::Drain;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use self::punctual::{Answering, Punctual};
use crate::endpoint::Endpoint;

/// What answers a request once its body is whole.
pub trait Handler: Send + Sync + 'static {
    fn answer(&self, endpoint: Endpoint, body: Bytes) -> impl Future<Output = Answer> + Send;
}

/// What goes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A review, as JSON.
    Review(Vec<u8>),
    /// The body was not one we understand, and why.
    BadRequest(String),
}

/// What peers may take of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    /// All bodies that are being read or answered, together.
    pub body_budget: usize,
    pub handshake: Duration,
    /// From the first byte of a request's head to its last (HTTP/1.1).
    pub head: Duration,
    /// From the head of a request to the end of its body.
    pub body: Duration,
    /// A kept connection without a request. Longer than the 90 s after which the API server closes an idle one itself: who closes
    /// last never loses a request to the race.
    pub idle: Duration,
    /// How long new requests are still taken once the drain has started: until every node has heard that this replica is going,
    /// some API server may still be sent here.
    pub linger: Duration,
    /// How long a drain waits for requests under way.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            body_budget: 64 << 20,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(100),
            linger: Duration::from_secs(5),
            drain: Duration::from_secs(15),
        }
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, the certificate asked of `resolver` at each handshake. With `clients`, only those it
/// verifies get in.
pub fn tls_config(
    resolver: Arc<dyn ResolvesServerCert>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = match clients {
        Some(clients) => config.with_client_cert_verifier(clients),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // API servers keep their connections; a session cache would only cost memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Serves until the drain has started and everyone has had time to hear of it, then lets requests under way finish and tells every
/// connection that it was the last.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handler: Arc<H>,
    limits: Limits,
    drain: Drain,
) {
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(limits.connections));
    let front = Arc::new(Front {
        handler,
        budget: Arc::new(Semaphore::new(limits.body_budget / KIB)),
        limits,
        drain: drain.clone(),
    });
    let (kept, streams) = (GracefulShutdown::new(), GracefulShutdown::new());
    let gone = async {
        drain.started().await;
        tokio::time::sleep(limits.linger).await;
    };
    tokio::pin!(gone);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut gone => break,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: give others time to close theirs.
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (acceptor, front) = (acceptor.clone(), Arc::clone(&front));
        let watchers = (kept.watcher(), streams.watcher());
        tokio::spawn(async move {
            if let Err(error) = connection(stream, acceptor, front, watchers).await {
                tracing::debug!(%error, "connection");
            }
            drop(place);
        });
    }
    // New connections are refused from here on, so that the API server goes to another replica at once.
    drop(listener);
    let open = kept.count().max(streams.count());
    tracing::info!(connections = open, "draining");
    let over = async {
        futures::join!(streams.shutdown(), leave_alone(&kept, limits.drain / 2));
        kept.shutdown().await;
    };
    if tokio::time::timeout(limits.drain, over).await.is_err() {
        tracing::warn!("connections cut at the end of the drain");
    }
}

/// An HTTP/1.1 connection that rests and is closed by us may cross with its caller's next request, which is then lost, and with it
/// somebody's write. So it is left to its caller, which was told with the last answer, until hardly anyone can want it any more.
async fn leave_alone(kept: &GracefulShutdown, longest: Duration) {
    let all_gone = async {
        while kept.count() > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    // Some rest to the end: nobody has asked through them for all that time.
    let _some_rest = tokio::time::timeout(longest, all_gone).await;
}

/// How often it is looked whether connections are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places)
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, _peer) = listener.accept().await?;
    Ok((stream, place))
}

#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("TLS handshake")]
    Handshake(#[source] io::Error),
    #[error("TLS handshake took too long")]
    SlowHandshake,
    #[error("HTTP: {0}")]
    Http(#[source] hyper::Error),
}

async fn connection<H: Handler>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    front: Arc<Front<H>>,
    (kept, streams): (Watcher, Watcher),
) -> Result<(), ConnectionError> {
    let _best_effort = stream.set_nodelay(true);
    let limits = front.limits;
    let stream = tokio::time::timeout(limits.handshake, acceptor.accept(stream))
        .await
        .map_err(|_elapsed| ConnectionError::SlowHandshake)?
        .map_err(ConnectionError::Handshake)?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let served = if is_http2 {
        drop(kept);
        let service = service_fn(move |request| {
            let front = Arc::clone(&front);
            async move { Ok::<_, Infallible>(front.respond(request).await) }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(256)
            .max_header_list_size(16 * 1024)
            .max_send_buf_size(64 * 1024)
            // A peer that vanished without a word is noticed, and its place freed.
            .keep_alive_interval(limits.idle)
            .keep_alive_timeout(limits.handshake)
            .serve_connection(TokioIo::new(stream), service);
        streams.watch(connection).await
    } else {
        drop(streams);
        let answering = Answering::default();
        let stream = Punctual::new(stream, limits.head, answering.clone());
        let service = service_fn(move |request| {
            let (front, answering) = (Arc::clone(&front), answering.clone());
            async move {
                answering.start();
                let mut response = front.respond(request).await;
                if front.drain.has_started() {
                    let last = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, last);
                }
                answering.end();
                Ok::<_, Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            // Who has said all it has to say still gets its answer.
            .half_close(true)
            .max_buf_size(64 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        kept.watch(connection).await
    };
    served.map_err(ConnectionError::Http)
}

const KIB: usize = 1024;

/// What stands between a connection and the handler.
struct Front<H> {
    handler: Arc<H>,
    budget: Arc<Semaphore>,
    limits: Limits,
    drain: Drain,
}

impl<H: Handler> Front<H> {
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let Some(endpoint) = Endpoint::at(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "no such path");
        };
        if request.method() != Method::POST {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only POST");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        if !is_json(&request) {
            return text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type must be application/json",
            );
        }
        let largest = endpoint.largest_body();
        let announced = request.body().size_hint();
        if announced.lower() > largest as u64 {
            return too_large(largest);
        }
        let most = announced
            .upper()
            .and_then(|upper| usize::try_from(upper).ok())
            .map_or(largest, |upper| upper.min(largest));
        let permits = u32::try_from(most / KIB + 1).unwrap_or(u32::MAX);
        let read = async {
            let paid = self.budget.acquire_many(permits).await;
            let body = Limited::new(request.into_body(), largest).collect().await;
            (paid, body)
        };
        let Ok((_paid, body)) = tokio::time::timeout(self.limits.body, read).await else {
            return text(StatusCode::REQUEST_TIMEOUT, "the body took too long");
        };
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return too_large(largest),
            Err(error) => {
                return text(
                    StatusCode::BAD_REQUEST,
                    format!("cannot read body: {error}"),
                );
            }
        };
        match self.handler.answer(endpoint, body).await {
            Answer::Review(json) => reply(StatusCode::OK, "application/json", json),
            Answer::BadRequest(why) => text(StatusCode::BAD_REQUEST, why),
        }
    }
}

fn is_json(request: &Request<Incoming>) -> bool {
    request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

fn too_large(largest: usize) -> Response<Full<Bytes>> {
    text(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body must not be larger than {largest} bytes"),
    )
}

fn text(status: StatusCode, why: impl Into<String>) -> Response<Full<Bytes>> {
    let mut why = why.into();
    why.push('\n');
    reply(status, "text/plain; charset=utf-8", why)
}

fn reply(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

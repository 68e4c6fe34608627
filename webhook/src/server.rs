//! The HTTPS server: connections, limits, time-outs, drain. It knows endpoints and bytes, nothing of Kubernetes.
//!
//! Every wait on a peer has an end, and what peers can make us hold has a bound: connections are counted, bodies are paid for out
//! of one budget before they are read.

mod front;
mod punctual;
mod unsent;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_process::Drain;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use self::front::Front;
use self::punctual::{Answering, Punctual};
use self::unsent::Unsent;
use crate::endpoint::Endpoint;

/// What answers a request once its body is whole.
pub trait Handler: Send + Sync + 'static {
    fn answer(&self, endpoint: Endpoint, body: Bytes) -> impl Future<Output = Answer> + Send;

    /// The head of a request is here; `ended` follows, whatever becomes of it.
    fn began(&self, _endpoint: Endpoint) {}
    fn ended(&self, _endpoint: Endpoint) {}

    /// A limit has ended a request or a connection.
    fn turned_away(&self, _why: TurnedAway) {}
}

macro_rules! turned_away {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Which limit has ended a request or a connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum TurnedAway {
            $($(#[$doc])* $name,)*
        }

        impl TurnedAway {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// For metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

turned_away! {
    HandshakeTooSlow,
    HeadTooSlow,
    BodyTooLarge,
    BodyTooSlow,
    /// All bodies together would have been too much for too long.
    NoRoom,
    /// The peer does not take what it is answered.
    AnswerUnread,
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
    /// All bodies that are being read or answered, together, and the answers that are not taken yet.
    pub body_budget: usize,
    pub handshake: Duration,
    /// From the first byte of a request's head to its last (HTTP/1.1).
    pub head: Duration,
    /// From the head of a request to the end of its body.
    pub body: Duration,
    /// How long an answer may wait to be taken; twice that at most.
    pub answer: Duration,
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
            answer: Duration::from_secs(10),
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
    let front = Arc::new(Front::new(handler, limits, drain.clone()));
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
            let handler = Arc::clone(&front.handler);
            if let Err(error) = connection(stream, acceptor, front, watchers).await {
                if let ConnectionError::TurnedAway(why) = error {
                    handler.turned_away(why);
                }
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
    #[error("turned away: {}", .0.as_str())]
    TurnedAway(TurnedAway),
    #[error("HTTP: {0}")]
    Http(#[source] hyper::Error),
}

async fn connection<H: Handler>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    front: Arc<Front<H>>,
    watchers: (Watcher, Watcher),
) -> Result<(), ConnectionError> {
    let _best_effort = stream.set_nodelay(true);
    let limits = front.limits;
    let stream = tokio::time::timeout(limits.handshake, acceptor.accept(stream))
        .await
        .map_err(|_elapsed| ConnectionError::TurnedAway(TurnedAway::HandshakeTooSlow))?
        .map_err(ConnectionError::Handshake)?;
    let (answering, unsent) = (Answering::default(), Unsent::default());
    let served = http(stream, front, watchers, &answering, &unsent);
    tokio::select! {
        served = served => match answering.late() {
            Some(why) => Err(ConnectionError::TurnedAway(why)),
            None => served.map_err(ConnectionError::Http),
        },
        () = unsent.overdue(limits.answer) => Err(ConnectionError::TurnedAway(TurnedAway::AnswerUnread)),
    }
}

async fn http<H: Handler>(
    stream: TlsStream<TcpStream>,
    front: Arc<Front<H>>,
    (kept, streams): (Watcher, Watcher),
    answering: &Answering,
    unsent: &Unsent,
) -> hyper::Result<()> {
    let limits = front.limits;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    if is_http2 {
        drop(kept);
        // Heads have no limit of their own here: one costs its stream, of which there are few, and not its connection.
        let stream = Punctual::new(stream, None, limits.answer, answering.clone());
        let unsent = unsent.clone();
        let service = service_fn(move |request| {
            let (front, unsent) = (Arc::clone(&front), unsent.clone());
            async move { Ok::<_, Infallible>(front.respond(request, &unsent).await) }
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
        return streams.watch(connection).await;
    }
    drop(streams);
    let stream = Punctual::new(stream, Some(limits.head), limits.answer, answering.clone());
    let (answering, unsent) = (answering.clone(), unsent.clone());
    let service = service_fn(move |request| {
        let (front, answering) = (Arc::clone(&front), answering.clone());
        let unsent = unsent.clone();
        async move {
            answering.start();
            let mut response = front.respond(request, &unsent).await;
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
}

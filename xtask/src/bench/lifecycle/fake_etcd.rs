//! An etcd that only says it is well: the four questions the operator asks a member at rest, answered over gRPC from a table. No
//! data, no consensus, nothing is kept.
//!
//! The messages are written by hand: they are few and flat, and etcd's own definitions would bring a code generator along.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::RwLock,
};

/// One played cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    pub(super) id: u64,
    /// It has a quorum, so to speak, once it has as many members.
    pub(super) size: usize,
    pub(super) members: BTreeMap<String, Member>,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) peer_url: String,
    pub(super) client_url: String,
    pub(super) version: String,
}

pub(super) type Clusters = Arc<RwLock<BTreeMap<String, Cluster>>>;

/// Answers for one member at its own address, until this program ends.
pub(super) async fn serve(
    address: SocketAddr,
    clusters: Clusters,
    cluster: String,
    member: String,
) -> Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (clusters, cluster, member) = (clusters.clone(), cluster.clone(), member.clone());
            tokio::spawn(converse(stream, clusters, cluster, member));
        }
    });
    Ok(())
}

async fn converse(stream: TcpStream, clusters: Clusters, cluster: String, member: String) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (clusters, cluster, member) = (clusters.clone(), cluster.clone(), member.clone());
        async move {
            let path = request.uri().path().to_owned();
            // What is asked for is in the path alone; the rest is read so that the connection stays in step.
            let _ = request.into_body().collect().await;
            let message = match clusters.read().await.get(&cluster) {
                Some(cluster) => message(&path, cluster, &member),
                None => None,
            };
            Ok::<_, Infallible>(reply(message))
        }
    });
    // A client that goes away in the middle is no trouble of ours.
    let _ = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// A gRPC answer: one message and a status that follows it.
fn reply(message: Option<Vec<u8>>) -> Response<Body> {
    const UNIMPLEMENTED: &str = "12";
    let status = if message.is_some() {
        "0"
    } else {
        UNIMPLEMENTED
    };
    let frame = message.map(|message| {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        [&[0][..], &length.to_be_bytes()[..], &message[..]].concat()
    });
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    let body = Full::new(Bytes::from(frame.unwrap_or_default()))
        .with_trailers(async move { Some(Ok(trailers)) })
        .boxed();
    let mut response = Response::new(body);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    response
}

/// What the member says, or nothing where it is not asked what we know.
fn message(path: &str, cluster: &Cluster, name: &str) -> Option<Vec<u8>> {
    let member = cluster.members.get(name)?;
    let mut message = Message::default();
    message.nested(1, &header(cluster, member));
    match path {
        "/etcdserverpb.KV/Range" | "/etcdserverpb.Maintenance/Alarm" => {}
        "/etcdserverpb.Cluster/MemberList" => {
            for (name, member) in &cluster.members {
                let mut line = Message::default();
                line.number(1, member.id);
                line.text(2, name);
                line.text(3, &member.peer_url);
                line.text(4, &member.client_url);
                message.nested(2, &line);
            }
        }
        "/etcdserverpb.Maintenance/Status" => {
            const INDEX: u64 = 10;
            message.text(2, &member.version);
            message.number(3, 20_480);
            message.number(4, leader(cluster));
            message.number(5, INDEX);
            message.number(6, 2);
            message.number(7, INDEX);
            message.number(9, 16_384);
            message.text(11, "3.6.0");
        }
        _ => return None,
    }
    Some(message.0)
}

/// The first of them, as soon as all are there.
fn leader(cluster: &Cluster) -> u64 {
    if cluster.members.len() < cluster.size {
        return 0;
    }
    cluster
        .members
        .values()
        .next()
        .map_or(0, |member| member.id)
}

fn header(cluster: &Cluster, member: &Member) -> Message {
    let mut header = Message::default();
    header.number(1, cluster.id);
    header.number(2, member.id);
    header.number(3, 1);
    header.number(4, 2);
    header
}

/// A message as protocol buffers are written: a tag before each field.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        loop {
            let seven_bits = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                self.0.push(seven_bits);
                return;
            }
            self.0.push(seven_bits | 0x80);
        }
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn nested(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_protocol_buffers_are() {
        let mut message = Message::default();
        message.number(1, 300);
        message.text(2, "etcd");
        assert_eq!(
            message.0,
            [0x08, 0xac, 0x02, 0x12, 0x04, b'e', b't', b'c', b'd']
        );
    }

    #[test]
    fn nobody_leads_before_all_are_there_and_unknown_questions_are_not_answered() {
        let member = Member {
            id: 7,
            peer_url: "http://a:2380".to_owned(),
            client_url: "http://a:2379".to_owned(),
            version: "3.6.16".to_owned(),
        };
        let mut cluster = Cluster {
            id: 1,
            size: 2,
            members: BTreeMap::from([("a".to_owned(), member.clone())]),
        };
        assert_eq!(leader(&cluster), 0);
        cluster.members.insert("b".to_owned(), member);
        assert_eq!(leader(&cluster), 7);
        assert!(message("/etcdserverpb.KV/Range", &cluster, "a").is_some());
        assert!(message("/etcdserverpb.KV/Put", &cluster, "a").is_none());
        assert!(message("/etcdserverpb.KV/Range", &cluster, "c").is_none());
    }
}

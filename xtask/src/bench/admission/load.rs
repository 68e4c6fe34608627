//! The client of the benchmark: reviews over TLS on kept connections, one at a time on each, each answer checked. One thread, pinned.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::subject::{CLIENT_CORE, Identity, NAME};

const WARM_UP: Duration = Duration::from_secs(1);
/// A server that takes longer than this for anything is broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// The latencies of all requests after the warm-up.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// Seconds, sorted.
    latencies: Vec<f64>,
    time: f64,
    /// CPU seconds of the server meanwhile.
    pub(super) cpu: f64,
}

impl Load {
    #[allow(clippy::cast_precision_loss, reason = "counts of requests are small")]
    pub(super) fn measured(&self) -> f64 {
        self.latencies.len() as f64
    }

    pub(super) fn per_second(&self) -> f64 {
        self.measured() / self.time
    }

    /// Milliseconds.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index within the list"
    )]
    pub(super) fn quantile(&self, part: f64) -> f64 {
        let index = (self.measured() * part).floor() as usize;
        let last = self.latencies.len().saturating_sub(1);
        self.latencies
            .get(index.min(last))
            .map_or(f64::NAN, |seconds| seconds * 1e3)
    }
}

/// Loads the server and asks `cpu_seconds` of it when the warm-up ends and when the load does.
pub(super) fn run(
    address: SocketAddr,
    identity: &Identity,
    connections: usize,
    time: Duration,
    cpu_seconds: impl Fn() -> Result<f64> + Send,
) -> Result<Load> {
    let config = identity.client()?;
    let request = Arc::new(request());
    thread::scope(|scope| {
        scope
            .spawn(move || {
                pin()?;
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(all(
                    address,
                    config,
                    connections,
                    time,
                    request,
                    cpu_seconds,
                ))
            })
            .join()
            .map_err(|_| anyhow!("the client panicked"))?
    })
}

/// Away from the server's core, where there is another.
fn pin() -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(CLIENT_CORE)?;
    let _one_core_only = sched_setaffinity(Pid::from_raw(0), &cores);
    Ok(())
}

async fn all(
    address: SocketAddr,
    config: Arc<ClientConfig>,
    connections: usize,
    time: Duration,
    request: Arc<Vec<u8>>,
    cpu_seconds: impl Fn() -> Result<f64>,
) -> Result<Load> {
    let mut streams = Vec::with_capacity(connections);
    for _ in 0..connections {
        streams.push(connect(address, Arc::clone(&config)).await?);
    }
    let from = Instant::now() + WARM_UP;
    let until = from + time;
    let senders: Vec<_> = streams
        .into_iter()
        .map(|stream| tokio::spawn(send(stream, Arc::clone(&request), from, until)))
        .collect();
    tokio::time::sleep_until(from.into()).await;
    let before = cpu_seconds()?;
    tokio::time::sleep_until(until.into()).await;
    let cpu = cpu_seconds()? - before;
    let mut latencies = Vec::new();
    for sender in senders {
        latencies.extend(sender.await??);
    }
    latencies.sort_unstable_by(f64::total_cmp);
    Ok(Load {
        latencies,
        time: time.as_secs_f64(),
        cpu,
    })
}

async fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> Result<TlsStream<TcpStream>> {
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(NAME)?;
        anyhow::Ok(TlsConnector::from(config).connect(name, stream).await?)
    };
    tokio::time::timeout(PATIENCE, connecting)
        .await
        .context("a connection took too long")?
}

/// Sends one request after the other; only those that began after `from` and ended before `until` count.
async fn send(
    mut stream: TlsStream<TcpStream>,
    request: Arc<Vec<u8>>,
    from: Instant,
    until: Instant,
) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let started = Instant::now();
        if started >= until {
            return Ok(latencies);
        }
        stream.write_all(&request).await?;
        stream.flush().await?;
        tokio::time::timeout(PATIENCE, answer(&mut stream, &mut buffer))
            .await
            .context("an answer took too long")??;
        let ended = Instant::now();
        if started >= from && ended <= until {
            latencies.push((ended - started).as_secs_f64());
        }
    }
}

/// Reads one whole answer and refuses any that is not a yes.
async fn answer(stream: &mut TlsStream<TcpStream>, buffer: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        ensure!(read > 0, "the server closed a kept connection");
        filled += read;
        let Some(length) = whole(&buffer[..filled])? else {
            continue;
        };
        ensure!(length == filled, "more came than was asked for");
        let text = String::from_utf8_lossy(&buffer[..filled]);
        if !text.starts_with("HTTP/1.1 200") || !text.contains("\"allowed\":true") {
            bail!("not a yes: {text}");
        }
        return Ok(());
    }
}

/// The length of an answer, once its head is here and its body too.
fn whole(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..head])?;
    let length: usize = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .context("an answer without a length")?
        .1
        .trim()
        .parse()?;
    let all = head + 4 + length;
    Ok((bytes.len() >= all).then_some(all))
}

/// What an API server sends when the size of a stored cluster goes from 3 to 5.
fn request() -> Vec<u8> {
    let body = review().to_string();
    format!(
        "POST /validate-etcdcluster?timeout=5s HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\naccept: application/json\r\nuser-agent: kube-apiserver-admission\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn review() -> Value {
    let kind =
        json!({"group": "etcd.database.coreos.com", "version": "v1beta2", "kind": "EtcdCluster"});
    let resource = json!({"group": "etcd.database.coreos.com", "version": "v1beta2", "resource": "etcdclusters"});
    let cluster = |size: u8| {
        json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {
                "name": "example", "namespace": "default", "uid": "0d4f2d3c-5f0e-4f4e-9d53-5d5b7e0b3a11",
                "resourceVersion": "4711", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "example"},
                "managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "etcd.database.coreos.com/v1beta2",
                    "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:size": {}, "f:version": {}}}}],
            },
            "spec": {"size": size, "version": "3.6.16", "storage": {"size": "8Gi"}},
        })
    };
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": "example", "namespace": "default", "operation": "UPDATE",
            "userInfo": {"username": "jane", "uid": "1", "groups": ["system:authenticated"]},
            "object": cluster(5), "oldObject": cluster(3), "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..text.len() {
            assert_eq!(whole(&text[..end]).unwrap(), None, "{end}");
        }
        assert_eq!(whole(text).unwrap(), Some(text.len()));
    }

    #[test]
    fn quantiles_are_taken_from_the_sorted_list() {
        let load = Load {
            latencies: (0..1000).map(|n| f64::from(n) / 1e3).collect(),
            time: 2.0,
            cpu: 1.0,
        };
        assert!((load.quantile(0.5) - 500.0).abs() < 1e-9);
        assert!((load.quantile(0.999) - 999.0).abs() < 1e-9);
        assert!((load.per_second() - 500.0).abs() < 1e-9);
    }
}

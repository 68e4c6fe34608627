//! Runs the client of the benchmark: reviews over TLS on kept connections, one at a time on each, each answer checked. A program of
//! its own, compiled for speed as this one is not, or its slowness would be all that is measured. Starts a process, and ends it.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::subject::{CLIENT_CORE, Identity, NAME, pinned};

/// What the client saw after its warm-up. Milliseconds.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Load {
    pub(super) requests: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    #[serde(skip)]
    pub(super) seconds: f64,
    /// CPU seconds of the server meanwhile.
    #[serde(skip)]
    pub(super) cpu: f64,
}

impl Load {
    pub(super) fn per_second(&self) -> f64 {
        self.requests / self.seconds
    }

    pub(super) fn per_cpu_second(&self) -> f64 {
        self.requests / self.cpu
    }
}

/// Loads the server and asks `cpu_seconds` of it when the warm-up ends and when the load does.
pub(super) fn run(
    client: &Path,
    address: SocketAddr,
    identity: &Identity,
    connections: usize,
    time: Duration,
    cpu_seconds: impl Fn() -> Result<f64>,
) -> Result<Load> {
    let file = identity.file("request");
    fs::write(&file, request())?;
    let child = pinned(client, CLIENT_CORE)
        .args(["-address", &address.to_string(), "-name", NAME])
        .arg("-ca")
        .arg(identity.authority())
        .arg("-request")
        .arg(&file)
        .args(["-connections", &connections.to_string()])
        .args(["-seconds", &time.as_secs().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the client")?;
    let mut client = Client(child);
    let said = client.0.stdout.take().context("the client has no output")?;
    let mut said = BufReader::new(said).lines();
    let mut next = || {
        said.next()
            .context("the client ended early")?
            .map_err(anyhow::Error::from)
    };
    ensure!(next()? == "measuring", "the client did not begin");
    let before = cpu_seconds()?;
    ensure!(next()? == "ended", "the client did not end");
    let cpu = cpu_seconds()? - before;
    let load: Load = serde_json::from_str(&next()?)?;
    Ok(Load {
        seconds: time.as_secs_f64(),
        cpu,
        ..load
    })
}

/// The client ends with this.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an API server sends when the size of a stored cluster goes from 3 to 5.
pub(super) fn request() -> Vec<u8> {
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
    fn the_request_announces_the_length_of_its_body() {
        let text = String::from_utf8(request()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{head}"
        );
        let review: Value = serde_json::from_str(body).unwrap();
        assert_eq!(review["request"]["object"]["spec"]["size"], 5);
    }
}

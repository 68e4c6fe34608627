//! The health port over a real socket.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use etcd_operator_process::{DrainTrigger, HealthServer, Readiness, metrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn ask(address: std::net::SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn readyz_lists_what_is_missing_then_turns_ready_then_unready_when_draining() {
    let server = HealthServer::bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let address = server.local_addr().unwrap();
    let readiness = Readiness::new();
    let gate = readiness.gate("certificate");
    let (trigger, drain) = DrainTrigger::new();
    let registry = Arc::new(metrics::registry("9.9.9"));
    tokio::spawn(server.serve(readiness.clone(), registry, drain));

    let answer = ask(address, "GET", "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.ends_with("certificate: not done yet\n"), "{answer}");
    assert!(
        ask(address, "GET", "/healthz")
            .await
            .starts_with("HTTP/1.1 200")
    );

    gate.open();
    assert!(
        ask(address, "GET", "/readyz")
            .await
            .starts_with("HTTP/1.1 200")
    );

    trigger.start();
    let answer = ask(address, "GET", "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.ends_with("draining\n"), "{answer}");
    assert!(
        ask(address, "GET", "/healthz")
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn metrics_are_openmetrics_and_other_paths_and_methods_are_refused() {
    let server = HealthServer::bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let address = server.local_addr().unwrap();
    let (_trigger, drain) = DrainTrigger::new();
    let registry = Arc::new(metrics::registry("9.9.9"));
    tokio::spawn(server.serve(Readiness::new(), registry, drain));

    let answer = ask(address, "GET", "/metrics").await;
    assert!(answer.contains("application/openmetrics-text"), "{answer}");
    assert!(answer.contains("version=\"9.9.9\""), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    assert!(
        ask(address, "GET", "/else")
            .await
            .starts_with("HTTP/1.1 404")
    );
    assert!(
        ask(address, "POST", "/readyz")
            .await
            .starts_with("HTTP/1.1 405")
    );
}

#[tokio::test]
async fn a_port_in_use_is_said_with_its_flag() {
    let first = HealthServer::bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let address = first.local_addr().unwrap();
    let error = HealthServer::bind(address).await.unwrap_err();
    let line = etcd_operator_process::one_line(&error);
    assert!(
        line.starts_with(&format!("cannot listen on {address} (--health-listen): ")),
        "{line}"
    );
    assert!(line.contains("in use"), "{line}");
}

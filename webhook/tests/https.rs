//! The server on a real socket with real TLS: statuses, limits, hot swap, drain.

#![allow(clippy::unwrap_used)]

#[path = "rig/reviews.rs"]
mod reviews;
mod rig;

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use reviews::{cluster, create};
use rig::{NAME, post, quick, start};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const VALIDATE: &str = "/validate-etcdcluster";

fn good() -> String {
    create(cluster(json!({"size": 3}))).to_string()
}

#[tokio::test]
async fn http1_and_http2_both_answer_many_requests_on_one_connection() {
    let webhook = start(quick(), None).await;
    let mut http1 = webhook.http1().await;
    let mut http2 = webhook.http2().await;
    for _ in 0..20 {
        let response = http1.send_request(post(VALIDATE, good())).await.unwrap();
        assert_eq!(response.version(), hyper::Version::HTTP_11);
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/json");
        response.into_body().collect().await.unwrap();
        let request = Request::post(format!("https://{NAME}{VALIDATE}"))
            .header("content-type", "application/json; charset=utf-8")
            .body(Full::new(Bytes::from(good())))
            .unwrap();
        let response = http2.send_request(request).await.unwrap();
        assert_eq!(response.version(), hyper::Version::HTTP_2);
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn what_is_no_review_gets_the_status_the_convention_has() {
    let webhook = start(quick(), None).await;
    for (path, body, status) in [
        (VALIDATE, "", StatusCode::BAD_REQUEST),
        (VALIDATE, "{", StatusCode::BAD_REQUEST),
        (VALIDATE, "{}", StatusCode::BAD_REQUEST),
        (VALIDATE, "[1]", StatusCode::BAD_REQUEST),
        (
            VALIDATE,
            r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":null}"#,
            StatusCode::BAD_REQUEST,
        ),
        (
            VALIDATE,
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
            StatusCode::BAD_REQUEST,
        ),
        ("/convert", "{}", StatusCode::BAD_REQUEST),
        ("/", "{}", StatusCode::NOT_FOUND),
        ("/validate-etcdcluster/", "{}", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(webhook.post(path, body).await.0, status, "{path} {body}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(
        webhook.post(VALIDATE, deep).await.0,
        StatusCode::BAD_REQUEST
    );
    let other = good().replace("\"EtcdCluster\"", "\"EtcdBackup\"");
    assert_eq!(
        webhook.post(VALIDATE, other).await.0,
        StatusCode::BAD_REQUEST
    );

    let mut sender = webhook.http1().await;
    let get = Request::builder()
        .method(Method::GET)
        .uri(VALIDATE)
        .header("host", NAME)
        .body(Full::default())
        .unwrap();
    let response = sender.send_request(get).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()["allow"], "POST");

    let mut yaml = post(VALIDATE, good());
    yaml.headers_mut()
        .insert("content-type", "application/yaml".parse().unwrap());
    let mut sender = webhook.http1().await;
    let response = sender.send_request(yaml).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_413_announced_or_not() {
    let webhook = start(quick(), None).await;
    let huge = vec![b' '; (3 << 20) + 1];
    let (status, why) = webhook.post(VALIDATE, huge).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(String::from_utf8_lossy(&why).contains("3145728"));

    let mut stream = webhook.tls(&["http/1.1"]).await;
    let head = format!(
        "POST {VALIDATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    for _ in 0..6 {
        // The server stops reading and closes once it has seen enough.
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut answer = vec![0; 64];
    let read = stream.read(&mut answer).await.unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_slow_body_and_a_silent_handshake_are_ended() {
    let mut limits = quick();
    limits.body = Duration::from_millis(200);
    limits.handshake = Duration::from_millis(200);
    let webhook = start(limits, None).await;

    let mut stream = webhook.tls(&["http/1.1"]).await;
    let head = format!(
        "POST {VALIDATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 64];
    let read = stream.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 408"));

    let mut silent = tokio::net::TcpStream::connect(webhook.address)
        .await
        .unwrap();
    let started = Instant::now();
    let read = silent.read(&mut answer).await.unwrap_or(0);
    assert_eq!(read, 0);
    assert!(started.elapsed() < Duration::from_secs(5));
    // And it still answers.
    assert_eq!(webhook.post(VALIDATE, good()).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_full_house_makes_newcomers_wait_and_not_fail() {
    let mut limits = quick();
    limits.connections = 2;
    let webhook = start(limits, None).await;
    let first = webhook.http1().await;
    let _second = webhook.http1().await;
    let third = webhook.post(VALIDATE, good());
    tokio::pin!(third);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut third).await;
    assert!(early.is_err());
    drop(first);
    let answered = tokio::time::timeout(Duration::from_secs(5), third).await;
    assert_eq!(answered.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn swapping_the_certificate_under_traffic_loses_no_request() {
    let webhook = start(quick(), None).await;
    let mut kept = webhook.http2().await;
    for turn in 0..50 {
        webhook.swap_leaf();
        let request = Request::post(format!("https://{NAME}{VALIDATE}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(good())))
            .unwrap();
        let (old, new) = tokio::join!(kept.send_request(request), webhook.post(VALIDATE, good()));
        assert_eq!(old.unwrap().status(), StatusCode::OK, "{turn}");
        assert_eq!(new.0, StatusCode::OK, "{turn}");
    }
}

#[tokio::test]
async fn without_a_certificate_a_handshake_is_refused_not_hung() {
    let webhook = start(quick(), None).await;
    let empty = etcd_operator_certs::HotResolver::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut other = start(quick(), None).await;
    other.address = listener.local_addr().unwrap();
    let tls = etcd_operator_webhook::server::tls_config(std::sync::Arc::new(empty), None).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let _refused = acceptor.accept(stream).await;
    });
    assert!(other.try_tls(&["h2"]).await.is_err());
    drop(webhook);
}

#[tokio::test]
async fn a_drain_answers_what_is_under_way_and_what_comes_while_it_lingers_then_ends() {
    let mut limits = quick();
    limits.linger = Duration::from_millis(300);
    let webhook = start(limits, None).await;
    let mut kept = webhook.http2().await;

    // A request whose body is only half here when the drain starts.
    let mut half = webhook.tls(&["http/1.1"]).await;
    let body = good();
    let head = format!(
        "POST {VALIDATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    half.write_all(head.as_bytes()).await.unwrap();
    half.write_all(&body.as_bytes()[..10]).await.unwrap();
    half.flush().await.unwrap();

    webhook.trigger.start();
    let request = Request::post(format!("https://{NAME}{VALIDATE}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(good())))
        .unwrap();
    assert_eq!(
        kept.send_request(request).await.unwrap().status(),
        StatusCode::OK
    );
    assert_eq!(webhook.post(VALIDATE, good()).await.0, StatusCode::OK);

    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        tokio::net::TcpStream::connect(webhook.address)
            .await
            .is_err()
    );
    half.write_all(&body.as_bytes()[10..]).await.unwrap();
    let mut answer = vec![0; 64];
    let read = half.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    tokio::time::timeout(Duration::from_secs(5), webhook.served)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_kept_connection_is_answered_through_the_drain_and_then_left_to_its_caller() {
    let webhook = start(quick(), None).await;
    let mut asked = webhook.http1().await;
    let mut rests = webhook.http1().await;
    for kept in [&mut asked, &mut rests] {
        let answer = kept.send_request(post(VALIDATE, good())).await.unwrap();
        assert_eq!(answer.headers().get("connection"), None);
    }
    webhook.trigger.start();
    // Past the time in which new connections are still taken.
    while tokio::net::TcpStream::connect(webhook.address)
        .await
        .is_ok()
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    asked.ready().await.unwrap();
    let answer = asked.send_request(post(VALIDATE, good())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["connection"], "close");
    drop(asked);
    drop(rests);
    // Both callers have hung up: nothing is left to wait for.
    tokio::time::timeout(Duration::from_secs(2), webhook.served)
        .await
        .unwrap()
        .unwrap();
}

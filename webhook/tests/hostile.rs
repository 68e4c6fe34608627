//! Peers that are slow, rude or broken, over real TLS: each gets an HTTP status or a closed door, in time, and the next is answered.

#![allow(clippy::unwrap_used)]

#[path = "rig/reviews.rs"]
mod reviews;
mod rig;

use std::time::{Duration, Instant};

use hyper::StatusCode;
use reviews::{cluster, create};
use rig::{Webhook, quick, start};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const VALIDATE: &str = "/validate-etcdcluster";

fn good() -> String {
    create(cluster(json!({"size": 3}))).to_string()
}

fn head(length: usize) -> String {
    format!(
        "POST {VALIDATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

async fn still_answers(webhook: &Webhook) {
    assert_eq!(webhook.post(VALIDATE, good()).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_head_that_drips_is_ended_and_a_silent_kept_connection_is_not() {
    let mut limits = quick();
    limits.head = Duration::from_millis(300);
    let webhook = start(limits, None).await;
    let mut silent = webhook.http1().await;
    let mut slow = webhook.tls(&["http/1.1"]).await;
    let started = Instant::now();
    // Each byte in time, the whole never.
    let dripped = async {
        for letter in std::iter::repeat_n(b'a', 200) {
            let mut byte = [0; 1];
            if slow.write_all(&[letter]).await.is_err() || slow.flush().await.is_err() {
                return;
            }
            let waited =
                tokio::time::timeout(Duration::from_millis(50), slow.read(&mut byte)).await;
            if waited.is_ok_and(|read| read.unwrap_or(0) == 0) {
                return;
            }
        }
    };
    dripped.await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    // Kept longer than a head may take, and used again.
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let response = silent
            .send_request(rig::post(VALIDATE, good()))
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn who_closes_its_half_after_a_whole_request_still_gets_its_answer() {
    let webhook = start(quick(), None).await;
    let mut stream = webhook.tls(&["http/1.1"]).await;
    let body = good();
    stream
        .write_all((head(body.len()) + &body).as_bytes())
        .await
        .unwrap();
    // Sends close_notify and half-closes the socket.
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    still_answers(&webhook).await;
}

#[tokio::test]
async fn who_goes_in_the_middle_frees_its_place() {
    let mut limits = quick();
    limits.connections = 1;
    let webhook = start(limits, None).await;
    for polite in [true, false] {
        let mut stream = webhook.tls(&["http/1.1"]).await;
        stream
            .write_all((head(1000) + "{\"half").as_bytes())
            .await
            .unwrap();
        if polite {
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            let _closed = stream.read_to_end(&mut answer).await;
            assert!(!answer.starts_with(b"HTTP/1.1 200"));
        }
        // Not polite: the socket is gone without a close_notify.
        drop(stream);
        let answered = tokio::time::timeout(Duration::from_secs(5), still_answers(&webhook)).await;
        assert!(answered.is_ok(), "polite: {polite}");
    }
}

#[tokio::test]
async fn what_is_no_tls_is_turned_away_at_once() {
    let webhook = start(quick(), None).await;
    let mut plain = tokio::net::TcpStream::connect(webhook.address)
        .await
        .unwrap();
    plain.write_all((head(2) + "{}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let started = Instant::now();
    let _reset = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"));
    assert!(started.elapsed() < Duration::from_secs(5));
    still_answers(&webhook).await;
}

#[tokio::test]
async fn what_is_nested_too_deep_is_passed_over_or_refused_and_never_followed() {
    let webhook = start(quick(), None).await;
    let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let review = good().replace("\"size\":3", &format!("\"size\":3,\"deep\":{deep}"));
    // A field that no rule reads is passed over, however deep; one that is read, or an object that is read whole, is not.
    assert_eq!(
        webhook.post(VALIDATE, review.clone()).await.0,
        StatusCode::OK
    );
    assert_eq!(
        webhook.post("/mutate-etcdcluster", review).await.0,
        StatusCode::BAD_REQUEST
    );
    let read = good().replace("\"size\":3", &format!("\"size\":{deep}"));
    let (status, body) = webhook.post(VALIDATE, read).await;
    assert_eq!(status, StatusCode::OK);
    assert!(String::from_utf8_lossy(&body).contains("\"allowed\":false"));
    // Of a batch, the object is named that cannot be read.
    let conversion = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"u","desiredAPIVersion":"x","objects":[{deep}]}}}}"#
    );
    let (status, body) = webhook.post("/convert", conversion).await;
    assert_eq!(status, StatusCode::OK);
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let message = answer["response"]["result"]["message"].as_str().unwrap();
    assert!(message.starts_with("objects[0] (?/?): "), "{message}");
    still_answers(&webhook).await;
}

#[tokio::test]
async fn a_head_without_end_is_431_or_a_closed_door() {
    let webhook = start(quick(), None).await;
    let mut stream = webhook.tls(&["http/1.1"]).await;
    let start = format!("POST {VALIDATE} HTTP/1.1\r\nhost: x\r\nfiller: ");
    stream.write_all(start.as_bytes()).await.unwrap();
    let filler = vec![b'a'; 16 * 1024];
    for _ in 0..64 {
        if stream.write_all(&filler).await.is_err() {
            break;
        }
    }
    let mut answer = vec![0; 64];
    let read = stream.read(&mut answer).await.unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    still_answers(&webhook).await;
}

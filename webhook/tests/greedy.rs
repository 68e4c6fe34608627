//! Peers that would make us hold too much: objects full of faults, objects larger than any that is stored, answers that nobody takes.
//! Each is bounded, ended in time, counted, and the next is answered.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "rig/reviews.rs"]
mod reviews;
mod rig;

use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reviews::{cluster, create};
use rig::{NAME, Webhook, quick, start};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MUTATE: &str = "/mutate-etcdcluster";
const VALIDATE: &str = "/validate-etcdcluster";
/// Far more than any of these takes; what is waited for is a condition.
const LONG: Duration = Duration::from_mins(1);

fn good() -> String {
    create(cluster(json!({"size": 3}))).to_string()
}

fn metric(webhook: &Webhook, line: &str) -> u64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &webhook.registry).unwrap();
    let value = text
        .lines()
        .find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {line} in {text}"))
}

fn turned_away(webhook: &Webhook, reason: &str) -> u64 {
    let line = format!("etcd_operator_webhook_turned_away_total{{reason=\"{reason}\"}}");
    metric(webhook, &line)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let met = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, met).await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_hundred_thousand_faults_are_answered_with_the_first_fifty_and_a_count() {
    let webhook = start(quick(), None).await;
    let many = |value: &str| -> Value {
        let entries = (0..100_000).map(|index| (format!("-{index}"), json!(value)));
        Value::Object(entries.collect::<Map<_, _>>())
    };
    let env: Vec<Value> = (0..60_000)
        .map(|index| json!({"name": format!("ETCD_X{index}")}))
        .collect();
    for spec in [
        json!({"pod": {"labels": many("")}}),
        json!({"options": {"extraArgs": many("1")}}),
        json!({"pod": {"etcdEnv": env}}),
    ] {
        for path in [MUTATE, VALIDATE] {
            let review = create(cluster(spec.clone())).to_string();
            let (status, body) = webhook.post(path, review).await;
            assert_eq!(status, StatusCode::OK);
            assert!(body.len() < 64 << 10, "{} bytes", body.len());
            let answer: Value = serde_json::from_slice(&body).unwrap();
            let status = &answer["response"]["status"];
            let causes = status["details"]["causes"].as_array().unwrap();
            assert_eq!(causes.len(), 51);
            let more = causes[50]["message"].as_str().unwrap();
            assert!(
                more.starts_with("and ") && more.ends_with("50 more faults"),
                "{more}"
            );
            assert!(status["message"].as_str().unwrap().contains(more));
        }
    }
}

#[tokio::test]
async fn what_a_fault_quotes_is_cut() {
    let webhook = start(quick(), None).await;
    let long = "ä".repeat(1 << 20);
    let label = create(cluster(json!({"pod": {"labels": {long.clone(): ""}}}))).to_string();
    let (status, body) = webhook.post(VALIDATE, label).await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.len() < 16 << 10, "{} bytes", body.len());
    let other = good().replace("AdmissionReview", &long);
    let (status, body) = webhook.post(VALIDATE, other).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.len() < 16 << 10, "{} bytes", body.len());
}

fn conversion(objects: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"u",
            "desiredAPIVersion":"etcd.database.coreos.com/v1alpha1","objects":[{objects}]}}}}"#
    )
}

#[tokio::test]
async fn an_object_larger_than_any_that_is_stored_is_named_and_not_converted() {
    let webhook = start(quick(), None).await;
    let mut large = cluster(json!({"size": 3}));
    large["metadata"]["annotations"] = json!({"a": "x".repeat(3 << 20)});
    let small = cluster(json!({"size": 3}));
    let (status, body) = webhook
        .post("/convert", conversion(&format!("{small},{large}")))
        .await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"]["convertedObjects"], json!([]));
    assert_eq!(
        answer["response"]["result"],
        json!({"status": "Failure", "message":
            "objects[1] (ns/c): must not be larger than 3145728 bytes: nothing larger can be stored"})
    );
    // Many that are no objects at all are named by the first.
    let (status, body) = webhook
        .post("/convert", conversion(&vec!["1"; 1 << 20].join(",")))
        .await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.len() < 4 << 10, "{} bytes", body.len());
}

/// A conversion whose answer no socket buffer takes whole.
fn long_conversion() -> String {
    let mut object = cluster(json!({"size": 3}));
    object["metadata"]["annotations"] = json!({"a": "x".repeat(1 << 20)});
    conversion(&vec![object.to_string(); 15].join(","))
}

#[tokio::test]
async fn who_reads_no_answer_over_http1_is_ended_and_loses_its_place() {
    let mut limits = quick();
    limits.connections = 1;
    limits.body = LONG;
    limits.answer = Duration::from_millis(300);
    let webhook = start(limits, None).await;
    let mut stream = webhook.tls(&["http/1.1"]).await;
    let body = long_conversion();
    let head = format!(
        "POST /convert HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    // The only place is taken by one who never reads, until it is given to another.
    let answered = tokio::time::timeout(LONG, webhook.post(VALIDATE, good())).await;
    assert_eq!(answered.unwrap().0, StatusCode::OK);
    assert_eq!(turned_away(&webhook, "AnswerUnread"), 1);
    let mut rest = Vec::new();
    let _cut = stream.read_to_end(&mut rest).await;
    assert!(rest.len() < body.len(), "the answer came whole");
}

#[tokio::test]
async fn who_opens_no_window_over_http2_is_ended_and_loses_its_place() {
    let mut limits = quick();
    limits.connections = 1;
    limits.body = LONG;
    limits.answer = Duration::from_millis(300);
    let webhook = start(limits, None).await;
    let io = TokioIo::new(webhook.tls(&["h2"]).await);
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake::<_, Full<Bytes>>(io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("https://{NAME}{VALIDATE}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(good())))
        .unwrap();
    // The head needs no window.
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let answered = tokio::time::timeout(LONG, webhook.post(VALIDATE, good())).await;
    assert_eq!(answered.unwrap().0, StatusCode::OK);
    assert_eq!(turned_away(&webhook, "AnswerUnread"), 1);
    let _ended = tokio::time::timeout(LONG, connection).await.unwrap();
}

#[tokio::test]
async fn answers_that_nobody_takes_keep_their_room_until_their_peer_is_ended() {
    let mut limits = quick();
    limits.body_budget = 20 << 20;
    limits.body = LONG;
    limits.answer = Duration::from_secs(1);
    let webhook = start(limits, None).await;
    let body = long_conversion();
    let head = format!(
        "POST /convert HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut unread = webhook.tls(&["http/1.1"]).await;
    unread.write_all(head.as_bytes()).await.unwrap();
    unread.write_all(body.as_bytes()).await.unwrap();
    unread.flush().await.unwrap();
    // There is room for one of them: the second waits for it, and is answered once the first peer is ended.
    let (status, answer) = webhook.post("/convert", body).await;
    assert_eq!(status, StatusCode::OK);
    assert!(answer.len() > 15 << 20);
    assert_eq!(turned_away(&webhook, "AnswerUnread"), 1);
}

#[tokio::test]
async fn what_is_in_flight_and_what_a_limit_has_ended_is_counted() {
    let mut limits = quick();
    limits.body = Duration::from_secs(2);
    limits.head = Duration::from_secs(2);
    limits.handshake = Duration::from_secs(2);
    let webhook = start(limits, None).await;
    for reason in ["HandshakeTooSlow", "NoRoom", "AnswerUnread"] {
        assert_eq!(turned_away(&webhook, reason), 0, "{reason}");
    }
    let in_flight =
        format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{VALIDATE}\"}}");
    let mut slow = webhook.tls(&["http/1.1"]).await;
    let head = format!(
        "POST {VALIDATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 64];
    let read = slow.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 408"));
    assert_eq!(turned_away(&webhook, "BodyTooSlow"), 1);
    until("nothing to be in flight", || {
        metric(&webhook, &in_flight) == 0
    })
    .await;

    let huge = vec![b' '; (3 << 20) + 1];
    assert_eq!(
        webhook.post(VALIDATE, huge).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(turned_away(&webhook, "BodyTooLarge"), 1);

    let mut half = webhook.tls(&["http/1.1"]).await;
    half.write_all(b"POST /").await.unwrap();
    half.flush().await.unwrap();
    let silent = tokio::net::TcpStream::connect(webhook.address)
        .await
        .unwrap();
    until("the slow head to be ended", || {
        turned_away(&webhook, "HeadTooSlow") == 1
    })
    .await;
    until("the silent handshake to be ended", || {
        turned_away(&webhook, "HandshakeTooSlow") == 1
    })
    .await;
    drop(silent);
}

#[tokio::test]
async fn a_request_that_waits_is_in_flight_and_is_turned_away_where_room_never_comes() {
    let mut limits = quick();
    limits.body_budget = 4 << 10;
    limits.body = Duration::from_secs(4);
    let webhook = start(limits, None).await;
    let in_flight =
        format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{VALIDATE}\"}}");
    let mut sender = webhook.http1().await;
    // More than all the room there is.
    let request = tokio::spawn(async move {
        let large = rig::post(VALIDATE, vec![b' '; 8 << 10]);
        sender
            .send_request(large)
            .await
            .map(|answer| answer.status())
    });
    until("the request to be in flight", || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &webhook.registry).unwrap();
        text.contains(&format!("{in_flight} 1"))
    })
    .await;
    let status = request.await.unwrap().unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(turned_away(&webhook, "NoRoom"), 1);
    assert_eq!(metric(&webhook, &in_flight), 0);
    assert_eq!(webhook.post(VALIDATE, good()).await.0, StatusCode::OK);
}

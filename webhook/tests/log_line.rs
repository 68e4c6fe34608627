//! One log line per decision tells an auditor who, what, the verdict and why; a level further says it in words.

#![allow(clippy::unwrap_used)]

#[path = "rig/reviews.rs"]
mod reviews;
mod rig;

use std::io;
use std::sync::{Arc, Mutex};

use reviews::{cluster, create, scale};
use rig::{AUTOSCALER, quick, start};
use serde_json::{Value, json};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The lines that one request leaves.
async fn logged(level: tracing::Level, path: &str, review: &Value) -> Vec<Value> {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(level)
        .with_writer(log.clone())
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let webhook = start(quick(), None).with_current_subscriber().await;
    webhook.review(path, review).await;
    let written = log.0.lock().unwrap().clone();
    String::from_utf8(written)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["target"] == "etcd_operator_webhook::admission")
        .collect()
}

#[tokio::test]
async fn a_refusal_leaves_one_line_with_who_what_and_why() {
    let mut review = create(cluster(json!({"size": 4, "version": "3.5.1"})));
    review["request"]["dryRun"] = json!(true);
    review["request"]["userInfo"]["username"] = json!("jane\nverdict=allowed");
    let lines = logged(tracing::Level::INFO, "/validate-etcdcluster", &review).await;
    let [line] = lines.as_slice() else {
        unreachable!("one line, not {lines:?}");
    };
    for (field, value) in [
        ("webhook", json!("/validate-etcdcluster")),
        ("user", json!("jane\nverdict=allowed")),
        ("operation", json!("Create")),
        ("kind", json!("EtcdCluster")),
        ("object", json!("ns/c")),
        ("dry_run", json!(true)),
        ("verdict", json!("refused")),
        ("uid", review["request"]["uid"].clone()),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    let reasons = line["reasons"].as_str().unwrap();
    assert!(
        reasons.contains("spec.size ") && reasons.contains("spec.version "),
        "{reasons}"
    );
    assert!(
        line["micros"]
            .as_u64()
            .is_some_and(|micros| micros < 10_000_000),
        "{line}"
    );
}

#[tokio::test]
async fn debug_says_in_words_what_was_refused_and_which_fields_were_filled() {
    let review = create(cluster(json!({"size": 4})));
    let lines = logged(tracing::Level::DEBUG, "/validate-etcdcluster", &review).await;
    let told = |words: &str| lines.iter().any(|line| line.to_string().contains(words));
    assert!(
        told("must be") && told("\"field\":\"spec.size\""),
        "{lines:?}"
    );

    let lines = logged(
        tracing::Level::DEBUG,
        "/mutate-scale",
        &scale(AUTOSCALER, 4, 3),
    )
    .await;
    let told = |words: &str| lines.iter().any(|line| line.to_string().contains(words));
    assert!(
        told("/spec/replicas") && told("rounded up") && told("\"verdict\":\"patched\""),
        "{lines:?}"
    );
}

//! Several keepers on one cluster: created once, published everywhere, repaired, rotated without a gap, and at rest silent.

#![allow(clippy::unwrap_used)]

mod village;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use etcd_operator_certs::kubernetes::{Keeper, Place, Settings, Standing};
use etcd_operator_certs::{HotResolver, Jitter, RotationPolicy, certificates_in};
use jiff::Timestamp;
use serde_json::{Value, json};
use village::Village;

const SECRETS: &str = "/api/v1/namespaces/ns/secrets";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

#[derive(Clone)]
struct Clock(Arc<Mutex<Timestamp>>);

impl Clock {
    fn new() -> Self {
        let start = "2026-03-01T12:00:00Z".parse().unwrap();
        Self(Arc::new(Mutex::new(start)))
    }

    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    fn jump(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

type Told = Arc<Mutex<Option<Standing>>>;

fn configuration(bundle: Option<&str>) -> Value {
    let client = bundle.map_or_else(|| json!({}), |bundle| json!({"caBundle": bundle}));
    json!({"metadata": {"name": "m", "uid": "u"}, "webhooks": [
        {"name": "a", "clientConfig": client}, {"name": "b", "clientConfig": client}]})
}

async fn keeper(village: &Village, clock: &Clock, jitter: f64) -> Told {
    let settings = Settings {
        namespace: "ns".to_owned(),
        secret_name: "ca".to_owned(),
        service_name: "w".to_owned(),
        places: vec![Place::MutatingWebhookConfiguration("m".to_owned())],
        rotation: RotationPolicy::default(),
        leaf_lifetime: Duration::from_hours(24),
        jitter: Jitter::new(jitter),
    };
    let at = clock.clone();
    let keeper = Keeper::start(village.client(), settings, HotResolver::new(), move || {
        at.now()
    })
    .await
    .unwrap();
    let told = Told::default();
    let report = Arc::clone(&told);
    tokio::spawn(keeper.run(move |standing: &Standing| {
        *report.lock().unwrap() = Some(standing.clone());
    }));
    told
}

fn is_ready(told: &Told) -> bool {
    let told = told.lock().unwrap();
    told.as_ref()
        .is_some_and(|standing| standing.problem.is_none())
}

/// In virtual time: the keepers' own pauses pass at once.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(holds(), "never: {what}");
}

fn published(village: &Village) -> Vec<usize> {
    let object = village.get(MUTATING, "m").unwrap();
    let entries = object["webhooks"].as_array().unwrap();
    let bundle = |entry: &Value| {
        let text = entry["clientConfig"]["caBundle"]
            .as_str()
            .unwrap_or_default();
        STANDARD.decode(text).unwrap()
    };
    entries
        .iter()
        .map(|entry| certificates_in(&bundle(entry)).unwrap().len())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn replicas_started_together_make_one_authority_publish_it_once_each_and_then_rest() {
    let (village, clock) = (Village::default(), Clock::new());
    village.set(MUTATING, "m", configuration(None));
    let keepers = [
        keeper(&village, &clock, 0.0).await,
        keeper(&village, &clock, 0.5).await,
        keeper(&village, &clock, 1.0).await,
    ];
    until("ready", || keepers.iter().all(is_ready)).await;
    assert_eq!(published(&village), [1, 1]);
    let writes = village.writes();
    assert!(writes <= 1 + keepers.len(), "{writes}");
    tokio::time::sleep(Duration::from_hours(6)).await;
    assert_eq!(village.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_bundle_that_someone_removes_or_changes_is_put_back_and_nothing_else_is_touched() {
    let (village, clock) = (Village::default(), Clock::new());
    village.set(MUTATING, "m", configuration(None));
    let told = keeper(&village, &clock, 0.0).await;
    until("ready", || is_ready(&told)).await;
    let right = village.get(MUTATING, "m").unwrap()["webhooks"].clone();
    for meddled in [configuration(None), configuration(Some("Z2FyYmFnZQ=="))] {
        village.set(MUTATING, "m", meddled);
        until("put back", || {
            village.get(MUTATING, "m").unwrap()["webhooks"] == right
        })
        .await;
    }
    // Nobody calls through what is gone, so its absence turns nobody away who calls otherwise.
    village.delete(MUTATING, "m");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_ready(&told));
    village.set(MUTATING, "m", configuration(None));
    until("put back into what was made anew", || {
        village.get(MUTATING, "m").unwrap()["webhooks"] == right
    })
    .await;
    until("ready", || is_ready(&told)).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_is_made_anew_with_the_old_authority_still_trusted() {
    let (village, clock) = (Village::default(), Clock::new());
    village.set(MUTATING, "m", configuration(None));
    let keepers = [
        keeper(&village, &clock, 0.0).await,
        keeper(&village, &clock, 1.0).await,
    ];
    until("ready", || keepers.iter().all(is_ready)).await;
    let before = village.get(SECRETS, "ca").unwrap()["data"]["ca.crt"].clone();
    village.delete(SECRETS, "ca");
    until("both published", || published(&village) == [2, 2]).await;
    let after = village.get(SECRETS, "ca").unwrap()["data"].clone();
    assert_ne!(after["ca.crt"], before);
    assert_eq!(after["previous.crt"], before);
    until("ready", || keepers.iter().all(is_ready)).await;
}

#[tokio::test(start_paused = true)]
async fn the_authority_rotates_by_wall_clock_with_overlap_and_no_replica_is_ever_unready() {
    let (village, clock) = (Village::default(), Clock::new());
    village.set(MUTATING, "m", configuration(None));
    let keepers = [
        keeper(&village, &clock, 0.0).await,
        keeper(&village, &clock, 0.9).await,
    ];
    until("ready", || keepers.iter().all(is_ready)).await;
    let first = village.get(SECRETS, "ca").unwrap()["data"]["ca.crt"].clone();
    let (mut overlapped, mut settled) = (false, false);
    for turn in 0..400 {
        // A laptop that sleeps for days at a time, and then for minutes.
        let sleeps = if turn < 300 { 20 } else { 1 };
        clock.jump(Duration::from_hours(sleeps));
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert!(keepers.iter().all(is_ready), "{turn}: {keepers:?}");
        overlapped |= published(&village) == [2, 2];
        let data = village.get(SECRETS, "ca").unwrap()["data"].clone();
        settled |= data["ca.crt"] != first && published(&village) == [1, 1];
    }
    assert!(overlapped && settled, "{overlapped} {settled}");
}

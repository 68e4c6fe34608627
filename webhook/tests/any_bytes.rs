//! Whatever comes, an answer goes back and nothing panics: random bytes, random JSON, and reviews with random holes.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "rig/reviews.rs"]
mod reviews;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use etcd_operator_api::Policy;
use etcd_operator_webhook::server::{Answer, Handler};
use etcd_operator_webhook::{Admission, Endpoint, Metrics};
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Nothing in an answer waits without surroundings, so one poll is enough, and millions of bodies need no runtime each.
fn answer(endpoint: Endpoint, body: Vec<u8>) -> Answer {
    static ADMISSION: LazyLock<Admission> = LazyLock::new(|| Admission {
        policy: Policy::default(),
        autoscalers: BTreeSet::new(),
        metrics: Metrics::register(&mut Registry::default()),
        surroundings: None,
    });
    let answering = pin!(ADMISSION.answer(endpoint, body.into()));
    match answering.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("an answer waited"),
    }
}

/// A review that is answered is whole: it has the uid and a verdict.
fn sound(endpoint: Endpoint, body: Vec<u8>) {
    if let Answer::Review(json) = answer(endpoint, body) {
        let answer: Value = serde_json::from_slice(&json).unwrap();
        let response = &answer["response"];
        assert!(response["uid"].is_string(), "{answer}");
        if endpoint != Endpoint::Convert {
            assert!(response["allowed"].is_boolean(), "{answer}");
        }
    }
}

/// How many bodies of each sort, from `FUZZ_CASES`; a few by default.
fn cases() -> u32 {
    std::env::var("FUZZ_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(256)
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    prop::sample::select(Endpoint::ALL.to_vec())
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        prop::sample::select(vec![
            "8Gi",
            "-1",
            "3.6.1",
            "v3.5.0",
            "1h",
            "Auto",
            "0",
            "1e400",
            "S3",
            "b/k",
            "*/5 * * * *",
            "@daily",
            "0 0 31 2 *",
            "Europe/Berlin"
        ])
        .prop_map(Value::from),
    ];
    let key = prop_oneof![
        ".{0,8}",
        prop::sample::select(vec![
            "size",
            "version",
            "storage",
            "className",
            "ephemeral",
            "pod",
            "labels",
            "options",
            "extraArgs",
            "TLS",
            "static",
            "security",
            "peerTLS",
            "clientTLS",
            "mode",
            "etcdEnv",
            "name",
            "value",
            "quotaBackend",
            "resources",
            "requests",
            "limits",
            "memory",
            "replicas",
            "persistentVolumeClaimSpec",
            "recovery",
            "unreachableAfter",
            "maintenance",
            "defragment",
            "onNoSpace",
            "repository",
            "clusterName",
            "etcdEndpoints",
            "storageType",
            "backupStorageType",
            "s3",
            "gcs",
            "abs",
            "pvc",
            "path",
            "schedule",
            "timeZone",
            "retention",
            "backupPolicy",
            "backupIntervalInSecond",
            "backupName",
            "newCluster",
            "etcdCluster",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn random_bytes_never_panic(endpoint in endpoint(), body in prop::collection::vec(any::<u8>(), 0..2048)) {
        sound(endpoint, body);
    }

    #[test]
    fn a_random_backup_or_restore_never_panics(spec in json(), restores in any::<bool>(), mutates in any::<bool>()) {
        let kind = if restores { "EtcdRestore" } else { "EtcdBackup" };
        let path = format!("/{}-{}", if mutates { "mutate" } else { "validate" }, kind.to_lowercase());
        let review = reviews::create_other(kind, spec);
        sound(Endpoint::at(&path).unwrap(), review.to_string().into_bytes());
    }

    #[test]
    fn a_random_spec_never_panics(endpoint in endpoint(), spec in json(), old in json(), updates in any::<bool>()) {
        let object = reviews::cluster(spec);
        let review = if updates {
            reviews::update(object, reviews::cluster(old))
        } else {
            reviews::create(object)
        };
        sound(endpoint, review.to_string().into_bytes());
    }

    #[test]
    fn a_random_object_in_place_of_the_review_never_panics(endpoint in endpoint(), object in json(), field in 0..4usize) {
        let mut review = reviews::create(reviews::cluster(json!({})));
        match field {
            0 => review = object,
            1 => review["request"] = object,
            2 => review["request"]["object"] = object,
            _ => review["request"]["userInfo"] = object,
        }
        sound(endpoint, review.to_string().into_bytes());
    }

    #[test]
    fn a_conversion_of_random_objects_never_panics_and_keeps_their_count(objects in prop::collection::vec(json(), 0..4), spec in json(), to in 0..3usize) {
        let mut objects = objects;
        objects.push(reviews::cluster(spec));
        let desired = ["v1alpha1", "v1beta2", "v9"][to];
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
            "uid": "u", "desiredAPIVersion": format!("etcd.database.coreos.com/{desired}"), "objects": objects}});
        let Answer::Review(answer) = answer(Endpoint::Convert, review.to_string().into_bytes()) else {
            panic!("a whole review was not answered");
        };
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let converted = answer["response"]["convertedObjects"].as_array().unwrap().len();
        let wanted = if answer["response"]["result"]["status"] == "Success" { objects.len() } else { 0 };
        assert_eq!(converted, wanted, "{answer}");
    }

    #[test]
    fn a_truncated_or_flipped_review_never_panics(endpoint in endpoint(), cut in any::<prop::sample::Index>(), flip in any::<u8>()) {
        let mut body = reviews::create(reviews::cluster(json!({"size": 4, "version": "3.5.1"}))).to_string().into_bytes();
        let at = cut.index(body.len());
        sound(endpoint, body[..at].to_vec());
        body[at] ^= flip;
        sound(endpoint, body);
    }
}

//! What the API server is answered: reviews in, answers out, over TLS.

#![allow(clippy::unwrap_used)]

#[path = "rig/reviews.rs"]
mod reviews;
mod rig;

use std::future::ready;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use etcd_operator_api::v1beta2::EtcdClusterStatus;
use etcd_operator_webhook::surroundings::{Found, Looking, SecretData, Surroundings};
use reviews::{cluster, create, create_other, delete, scale, update};
use rig::{AUTOSCALER, quick, start};
use serde_json::{Value, json};

const MUTATE: &str = "/mutate-etcdcluster";
const VALIDATE: &str = "/validate-etcdcluster";
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

fn patched(object: &Value, response: &Value) -> Value {
    let mut object = object.clone();
    if let Some(patch) = response["patch"].as_str() {
        assert_eq!(response["patchType"], "JSONPatch");
        let patch: json_patch::Patch =
            serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}

fn cause_fields(response: &Value) -> Vec<&str> {
    let causes = response["status"]["details"]["causes"].as_array().unwrap();
    causes
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn an_empty_spec_gets_its_defaults_and_a_second_pass_changes_nothing() {
    let webhook = start(quick(), None).await;
    let object = cluster(json!({}));
    let response = webhook.review(MUTATE, &create(object.clone())).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response["uid"], UID);
    let stored = patched(&object, &response);
    assert_eq!(stored["spec"]["size"], 3);
    assert!(stored["spec"]["version"].is_string(), "{stored}");
    assert_eq!(stored["spec"]["storage"]["size"], "8Gi");
    assert_eq!(stored["metadata"], object["metadata"]);

    let again = webhook.review(MUTATE, &create(stored.clone())).await;
    assert_eq!(again["allowed"], true);
    assert_eq!(again.get("patch"), None, "{again}");
    let judged = webhook.review(VALIDATE, &create(stored)).await;
    assert_eq!(judged["allowed"], true, "{judged}");
}

#[tokio::test]
async fn defaults_never_touch_what_the_user_wrote_nor_what_we_do_not_know() {
    let webhook = start(quick(), None).await;
    let written = json!({"size": 5, "version": "v3.6.16", "unheardOf": {"deep": [1, {"a": null}]},
        "storage": {"size": "10240Mi", "new": true}, "options": {"quotaBackend": "2048Mi"}});
    let object = cluster(written.clone());
    let response = webhook.review(MUTATE, &create(object.clone())).await;
    assert_eq!(response["allowed"], true, "{response}");
    let stored = patched(&object, &response);
    for (key, value) in written.as_object().unwrap() {
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    assert_eq!(&stored["spec"][key][field], value, "{key}.{field}");
                }
            }
            value => assert_eq!(&stored["spec"][key], value, "{key}"),
        }
    }
}

#[tokio::test]
async fn every_violation_is_told_at_once_with_code_reason_and_a_cause_per_field() {
    let webhook = start(quick(), None).await;
    let bad = cluster(json!({"size": 4, "version": "3.99.0", "storage": {"size": "-1Gi"}}));
    for path in [MUTATE, VALIDATE] {
        let response = webhook.review(path, &create(bad.clone())).await;
        assert_eq!(response["allowed"], false);
        assert_eq!(response["uid"], UID);
        let status = &response["status"];
        assert_eq!(status["code"], 422);
        assert_eq!(status["reason"], "Invalid");
        assert_eq!(status["details"]["kind"], "EtcdCluster");
        assert_eq!(status["details"]["name"], "c");
        let fields = cause_fields(&response);
        let message = status["message"].as_str().unwrap();
        for field in ["spec.size", "spec.version", "spec.storage.size"] {
            assert!(fields.contains(&field), "{path} {fields:?}");
            assert!(message.contains(field), "{message}");
        }
        assert!(message.contains("use 3 or 5"), "{message}");
        assert!(response.get("patch").is_none());
    }
}

#[tokio::test]
async fn what_our_types_cannot_decode_is_left_to_the_schema_and_never_stored() {
    let webhook = start(quick(), None).await;
    let odd = cluster(json!({"size": "three"}));
    let response = webhook.review(MUTATE, &create(odd.clone())).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response.get("patch"), None);
    let response = webhook.review(VALIDATE, &create(odd)).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 422);
}

#[tokio::test]
async fn an_update_with_an_unchanged_spec_or_of_a_dying_object_is_never_refused_nor_patched() {
    let webhook = start(quick(), None).await;
    let unsound = cluster(json!({"size": 4}));
    let mut labelled = unsound.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let mut dying = cluster(json!({"size": 6}));
    dying["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut broken = dying.clone();
    broken["spec"]["size"] = json!("six");
    for path in [MUTATE, VALIDATE] {
        for object in [&labelled, &dying, &broken] {
            let response = webhook
                .review(path, &update(object.clone(), unsound.clone()))
                .await;
            assert_eq!(response["allowed"], true, "{path} {object}");
            assert_eq!(response.get("patch"), None, "{path} {object}");
        }
        let response = webhook
            .review(path, &update(cluster(json!({"size": 6})), unsound.clone()))
            .await;
        assert_eq!(response["allowed"], false, "{path}");
    }
}

#[tokio::test]
async fn risky_but_legal_settings_come_back_as_short_warnings() {
    let webhook = start(quick(), None).await;
    let response = webhook
        .review(VALIDATE, &create(cluster(json!({"size": 1}))))
        .await;
    assert_eq!(response["allowed"], true);
    let warnings: Vec<&str> = response["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w.as_str().unwrap())
        .collect();
    assert!(
        warnings.iter().any(|w| w.starts_with("spec.size: ")),
        "{warnings:?}"
    );
    assert!(
        warnings.iter().all(|w| w.chars().count() <= 120),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn a_protected_cluster_is_not_deleted_and_the_refusal_says_how_to_lift_it() {
    let webhook = start(quick(), None).await;
    let protected = cluster(json!({"deletionProtection": true}));
    let response = webhook.review(VALIDATE, &delete(protected)).await;
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("kubectl -n ns patch etcdcluster c"),
        "{message}"
    );
    let response = webhook.review(VALIDATE, &delete(cluster(json!({})))).await;
    assert_eq!(response["allowed"], true);
}

#[tokio::test]
async fn scaling_to_an_even_size_is_refused_unless_an_autoscaler_asks_and_then_it_is_rounded_up() {
    let webhook = start(quick(), None).await;
    for (user, replicas, before, becomes) in [
        ("jane", 4, 3, None),
        ("jane", 5, 3, None),
        (AUTOSCALER, 4, 3, Some(5)),
        (AUTOSCALER, 2, 3, Some(3)),
        (AUTOSCALER, 8, 7, Some(7)),
        (AUTOSCALER, 5, 3, None),
    ] {
        let review = scale(user, replicas, before);
        let response = webhook.review("/mutate-scale", &review).await;
        assert_eq!(response["allowed"], true, "{user} {replicas}");
        let stored = patched(&review["request"]["object"], &response);
        assert_eq!(
            stored["spec"]["replicas"],
            becomes.unwrap_or(replicas),
            "{user} {replicas}"
        );
    }
    for (replicas, before, allowed) in [
        (4, 3, false),
        (9, 3, false),
        (0, 3, false),
        (5, 3, true),
        (4, 4, true),
    ] {
        let response = webhook
            .review("/validate-scale", &scale("jane", replicas, before))
            .await;
        assert_eq!(response["allowed"], allowed, "{replicas}");
    }
    let response = webhook
        .review("/validate-scale", &scale("jane", 4, 3))
        .await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("use 3 or 5"), "{message}");
    assert_eq!(cause_fields(&response), ["spec.replicas"]);
}

/// Surroundings with one default class, one priority class, and one cluster.
struct Village;

impl Surroundings for Village {
    fn storage_class<'a>(&'a self, name: &'a str) -> Looking<'a> {
        Box::pin(ready(match name {
            "fast" => Found::Yes(()),
            "secret" => Found::Unknown,
            _ => Found::No,
        }))
    }

    fn default_storage_class(&self) -> Looking<'_> {
        Box::pin(ready(Found::No))
    }

    fn priority_class<'a>(&'a self, name: &'a str) -> Looking<'a> {
        Box::pin(ready(if name == "high" {
            Found::Yes(())
        } else {
            Found::No
        }))
    }

    fn cluster<'a>(&'a self, _: &'a str, name: &'a str) -> Looking<'a> {
        Box::pin(ready(if name == "a" || name == "b-client" {
            Found::Yes(())
        } else {
            Found::No
        }))
    }

    fn cluster_status<'a>(&'a self, _: &'a str, name: &'a str) -> Looking<'a, EtcdClusterStatus> {
        let status = |serves: &str| {
            serde_json::from_value(json!({"clusterID": "c1", "conditions": [{
                "type": "Available", "status": serves, "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}))
            .unwrap()
        };
        Box::pin(ready(match name {
            "a" => Found::Yes(status("True")),
            "lost" => Found::Yes(status("False")),
            "hidden" => Found::Unknown,
            _ => Found::No,
        }))
    }

    fn backup<'a>(&'a self, _: &'a str, name: &'a str) -> Looking<'a> {
        Box::pin(ready(if name == "nightly" {
            Found::Yes(())
        } else {
            Found::No
        }))
    }

    fn secret<'a>(&'a self, _: &'a str, name: &'a str) -> Looking<'a, SecretData> {
        Box::pin(ready(match name {
            "aws" => Found::Yes(SecretData::from([(
                "credentials".to_owned(),
                b"x".to_vec(),
            )])),
            "empty" => Found::Yes(SecretData::new()),
            "hidden" => Found::Unknown,
            _ => Found::No,
        }))
    }
}

#[tokio::test]
async fn what_is_missing_around_a_new_cluster_is_a_warning_and_only_a_collision_is_refused() {
    let webhook = start(quick(), Some(Arc::new(Village))).await;
    for (spec, word) in [
        (json!({}), Some("no StorageClass is the default")),
        (json!({"storage": {"className": "fast"}}), None),
        (
            json!({"storage": {"className": "slow"}}),
            Some("StorageClass `slow` does not exist"),
        ),
        (json!({"storage": {"className": "secret"}}), None),
        (json!({"storage": {"ephemeral": true}}), None),
        (
            json!({"storage": {"className": "fast"}, "pod": {"priorityClassName": "low"}}),
            Some("PriorityClass `low` does not exist"),
        ),
        (
            json!({"storage": {"className": "fast"}, "pod": {"priorityClassName": "high"}}),
            None,
        ),
    ] {
        let response = webhook
            .review(VALIDATE, &create(cluster(spec.clone())))
            .await;
        assert_eq!(response["allowed"], true, "{spec} {response}");
        let warnings = response["warnings"].to_string();
        match word {
            Some(word) => assert!(warnings.contains(word), "{spec} {warnings}"),
            None => assert!(!warnings.contains("Class"), "{spec} {warnings}"),
        }
    }
    for (name, allowed) in [
        ("a-client", false),
        ("b", false),
        ("d-client", true),
        ("ab", true),
    ] {
        let mut object = cluster(json!({}));
        object["metadata"]["name"] = json!(name);
        let response = webhook.review(VALIDATE, &create(object)).await;
        assert_eq!(response["allowed"], allowed, "{name} {response}");
    }
}

#[tokio::test]
async fn secrets_clusters_and_backups_that_an_object_names_are_looked_for() {
    let webhook = start(quick(), Some(Arc::new(Village))).await;
    let peer = |secret: &str| json!({"storage": {"className": "fast"}, "security": {"peerTLS": {"secretName": secret}}});
    let s3 = |secret: &str| json!({"path": "bucket/key", "awsSecret": secret});
    let cases = [
        (
            VALIDATE,
            create(cluster(peer("missing"))),
            Some("Secret `missing` does not exist"),
        ),
        (
            VALIDATE,
            create(cluster(peer("empty"))),
            Some("Secret `empty` has no `tls.crt`"),
        ),
        (VALIDATE, create(cluster(peer("hidden"))), None),
        // A change is looked at where it names something new.
        (
            VALIDATE,
            update(cluster(peer("missing")), cluster(peer("empty"))),
            Some("`missing`"),
        ),
        (
            VALIDATE,
            update(cluster(peer("missing")), cluster(peer("missing"))),
            None,
        ),
        (
            "/validate-etcdbackup",
            create_other("EtcdBackup", json!({"clusterName": "a", "s3": s3("aws")})),
            None,
        ),
        (
            "/validate-etcdbackup",
            create_other("EtcdBackup", json!({"clusterName": "z", "s3": s3("aws")})),
            Some("spec.clusterName: EtcdCluster `z` does not exist"),
        ),
        (
            "/validate-etcdbackup",
            create_other("EtcdBackup", json!({"clusterName": "a", "s3": s3("empty")})),
            Some("Secret `empty` has no `credentials`"),
        ),
        (
            "/validate-etcdrestore",
            create_other(
                "EtcdRestore",
                json!({"backupName": "nightly", "newCluster": {"name": "z"}}),
            ),
            None,
        ),
        (
            "/validate-etcdrestore",
            create_other(
                "EtcdRestore",
                json!({"backupName": "weekly", "newCluster": {"name": "z"}}),
            ),
            Some("EtcdBackup `weekly` does not exist"),
        ),
        (
            "/validate-etcdrestore",
            create_other(
                "EtcdRestore",
                json!({"backupName": "nightly", "newCluster": {"name": "a"}}),
            ),
            Some("EtcdCluster `a` exists already"),
        ),
        (
            "/validate-etcdrestore",
            create_other(
                "EtcdRestore",
                json!({"backupName": "nightly", "etcdCluster": {"name": "z"}}),
            ),
            Some("spec.etcdCluster.name: EtcdCluster `z` does not exist"),
        ),
    ];
    for (path, review, words) in cases {
        let response = webhook.review(path, &review).await;
        assert_eq!(response["allowed"], true, "{review} {response}");
        let told = response["warnings"].to_string();
        match words {
            Some(words) => assert!(told.contains(words), "{review} {told}"),
            None => assert!(
                !told.contains("exist") && !told.contains("has no"),
                "{review} {told}"
            ),
        }
    }
}

#[tokio::test]
async fn decisions_are_counted_under_the_names_dashboards_know() {
    let webhook = start(quick(), None).await;
    webhook
        .review(VALIDATE, &create(cluster(json!({"size": 4}))))
        .await;
    webhook.post(VALIDATE, "{").await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &webhook.registry).unwrap();
    for line in [
        "controller_runtime_webhook_requests_total{webhook=\"/validate-etcdcluster\",code=\"200\"} 1",
        "controller_runtime_webhook_requests_total{webhook=\"/validate-etcdcluster\",code=\"400\"} 1",
        "controller_runtime_webhook_latency_seconds_count{webhook=\"/validate-etcdcluster\"} 2",
        "etcd_operator_admission_refusals_total{webhook=\"/validate-etcdcluster\",reason=\"SizeNotAllowed\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn backups_and_restores_are_filled_in_and_judged_at_paths_of_their_own() {
    let webhook = start(quick(), None).await;
    let stores = json!({"s3": {"path": "bucket/key", "awsSecret": "s"}});
    let mut backup = stores.clone();
    backup["clusterName"] = json!("c");
    let review = create_other("EtcdBackup", backup);
    let filled = webhook.review("/mutate-etcdbackup", &review).await;
    assert_eq!(filled["allowed"], true, "{filled}");
    let stored = patched(&review["request"]["object"], &filled);
    assert_eq!(stored["spec"]["storageType"], "S3");
    let mut again = review.clone();
    again["request"]["object"] = stored;
    assert_eq!(
        webhook
            .review("/mutate-etcdbackup", &again)
            .await
            .get("patch"),
        None
    );
    assert_eq!(
        webhook.review("/validate-etcdbackup", &again).await["allowed"],
        true
    );

    let no_target = create_other("EtcdRestore", stores);
    for path in ["/mutate-etcdrestore", "/validate-etcdrestore"] {
        let refused = webhook.review(path, &no_target).await;
        assert_eq!(refused["allowed"], false, "{refused}");
        assert_eq!(refused["status"]["details"]["kind"], "EtcdRestore");
    }
    // One kind's path is no place for another.
    let (status, _) = webhook
        .post("/validate-etcdrestore", again.to_string())
        .await;
    assert_eq!(status.as_u16(), 400);
}

#[tokio::test]
async fn a_recovery_from_a_backup_is_refused_for_another_cluster_and_while_a_quorum_serves() {
    let webhook = start(quick(), Some(Arc::new(Village))).await;
    for (name, id, refusal) in [
        ("lost", Some("c1"), None),
        ("lost", Some("c2"), Some("this one is c1")),
        ("a", Some("c1"), Some("while a quorum serves")),
        // A plain restore in place is a declared one; what cannot be read says nothing, the controller asks again.
        ("a", None, None),
        ("hidden", Some("c1"), None),
    ] {
        let spec = json!({"backupName": "nightly", "etcdCluster": {"name": name, "clusterID": id}});
        let response = webhook
            .review("/validate-etcdrestore", &create_other("EtcdRestore", spec))
            .await;
        assert_eq!(response["allowed"], refusal.is_none(), "{name} {id:?}");
        if let Some(words) = refusal {
            let message = response["status"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{message}");
            assert_eq!(cause_fields(&response), ["spec.etcdCluster.clusterID"]);
        }
    }
}

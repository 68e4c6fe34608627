//! Defaults fill what is unset, once, and never what is said.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::examples::cluster;

fn defaulted(spec: &Value) -> Value {
    let mut typed: EtcdCluster = serde_json::from_value(cluster(spec.clone())).unwrap();
    default_cluster(&mut typed, &Policy::default());
    serde_json::to_value(&typed.spec).unwrap()
}

#[test]
fn an_empty_spec_shows_what_it_means() {
    let expected = json!({
        "size": 3,
        "version": crate::versions::newest().to_string(),
        "repository": "gcr.io/etcd-development/etcd",
        "storage": {"size": "8Gi", "reclaim": "Delete"},
        "security": {"peerTLS": {"mode": "Auto"}, "clientTLS": {"mode": "Off"}},
        "options": {
            "quotaBackend": "2Gi",
            "heartbeatInterval": "100ms",
            "electionTimeout": "1s",
            "autoCompaction": {"mode": "Periodic", "retention": "1h"},
        },
        "recovery": {"unreachableAfter": "5m"},
        "maintenance": {"defragment": "Auto", "onNoSpace": "Heal"},
    });
    assert_eq!(defaulted(&json!({})), expected);
}

#[test]
fn who_keeps_all_revisions_is_asked_before_they_are_dropped() {
    let spec = defaulted(&json!({"options": {"autoCompaction": {"mode": "Off"}}}));
    assert_eq!(
        spec["maintenance"],
        json!({"defragment": "Auto", "onNoSpace": "Report"})
    );
    let spec = defaulted(&json!({
        "options": {"autoCompaction": {"mode": "Off"}},
        "maintenance": {"onNoSpace": "Heal"},
    }));
    assert_eq!(spec["maintenance"]["onNoSpace"], "Heal");
}

#[test]
fn a_cluster_that_relies_on_a_backup_shows_how() {
    assert_eq!(
        defaulted(&json!({"backup": {"backupName": "nightly"}}))["backup"],
        json!({"backupName": "nightly", "beforeRisk": "Always", "maxAge": "26h"})
    );
}

#[test]
fn old_versions_come_from_where_they_were_published() {
    let spec = defaulted(&json!({"version": "v3.2.13"}));
    assert_eq!(
        (&spec["version"], &spec["repository"]),
        (&json!("v3.2.13"), &json!("quay.io/coreos/etcd"))
    );
}

#[test]
fn coreos_manifests_keep_their_meaning() {
    let tls = json!({"static": {"member": {"peerSecret": "p"}}});
    let spec = defaulted(&json!({"TLS": tls}));
    assert_eq!(spec.get("security"), None);

    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let spec = defaulted(&json!({"pod": {"persistentVolumeClaimSpec": claim}}));
    assert_eq!(spec.get("storage"), None);
    assert_eq!(spec["options"]["quotaBackend"], "512Mi");

    let env = json!([{"name": "ETCD_AUTO_COMPACTION_RETENTION", "value": "1"}, {"name": "ETCD_QUOTA_BACKEND_BYTES", "value": "1"}]);
    let spec = defaulted(&json!({"pod": {"etcdEnv": env}}));
    assert_eq!(
        spec["options"],
        json!({"heartbeatInterval": "100ms", "electionTimeout": "1s"})
    );
}

#[test]
fn ephemeral_members_get_no_volume() {
    assert_eq!(
        defaulted(&json!({"storage": {"ephemeral": true}}))["storage"],
        json!({"ephemeral": true})
    );
}

#[test]
fn a_secret_without_a_mode_means_secret() {
    let spec = defaulted(
        &json!({"security": {"peerTLS": {"secretName": "p"}, "clientTLS": {"secretName": "c"}}}),
    );
    assert_eq!(spec["security"]["peerTLS"]["mode"], "Secret");
    assert_eq!(spec["security"]["clientTLS"]["mode"], "Secret");
}

#[test]
fn a_slow_heartbeat_brings_a_slow_election_within_etcds_limit() {
    let election = |heartbeat: &str| {
        defaulted(&json!({"options": {"heartbeatInterval": heartbeat}}))["options"]["electionTimeout"].clone()
    };
    assert_eq!(election("300ms"), "3s");
    assert_eq!(election("50ms"), "1s");
    assert_eq!(election("10s"), "50s");
    assert_eq!(election("nonsense"), "1s");
}

#[test]
fn a_cluster_that_runs_keeps_its_version_whatever_the_default_has_become() {
    let mut object = cluster(json!({}));
    object["status"] = json!({"currentVersion": "3.5.35"});
    let mut typed: EtcdCluster = serde_json::from_value(object).unwrap();
    default_cluster(&mut typed, &Policy::default());
    assert_eq!(typed.spec.version.as_deref(), Some("3.5.35"));
}

#[test]
fn every_default_is_sound() {
    for spec in [
        json!({}),
        json!({"storage": {"ephemeral": true}}),
        json!({"version": "3.1.20"}),
        json!({"storage": {"size": "100Mi"}}),
    ] {
        let object: EtcdCluster = serde_json::from_value(cluster(spec.clone())).unwrap();
        assert_eq!(
            crate::judge(&object, None, &Policy::default()).violations,
            [],
            "{spec}"
        );
    }
}

/// Whatever is in `said` is in `shown`, unchanged.
fn contains(shown: &Value, said: &Value) -> bool {
    match (shown, said) {
        (Value::Object(shown), Value::Object(said)) => said
            .iter()
            .all(|(key, said)| shown.get(key).is_some_and(|shown| contains(shown, said))),
        _ => shown == said,
    }
}

fn any_spec() -> impl Strategy<Value = Value> {
    let pick = |name: &'static str, values: Vec<Value>| {
        proptest::option::of(proptest::sample::select(values)).prop_map(move |value| (name, value))
    };
    let claim =
        json!({"persistentVolumeClaimSpec": {"resources": {"requests": {"storage": "1Gi"}}}});
    (
        pick("size", vec![json!(1), json!(4), json!(7)]),
        pick(
            "version",
            vec![json!("3.5.35"), json!("v3.2.13"), json!("nonsense")],
        ),
        pick("repository", vec![json!("example.com/etcd")]),
        pick(
            "storage",
            vec![
                json!({}),
                json!({"size": "1Gi"}),
                json!({"ephemeral": true}),
                json!({"className": "x", "reclaim": "Retain"}),
            ],
        ),
        pick(
            "security",
            vec![
                json!({}),
                json!({"peerTLS": {"mode": "Off"}}),
                json!({"clientTLS": {"secretName": "s"}}),
            ],
        ),
        pick("TLS", vec![json!({}), json!({"static": {}})]),
        pick(
            "options",
            vec![
                json!({}),
                json!({"quotaBackend": "1Gi"}),
                json!({"autoCompaction": {"mode": "Off"}}),
                json!({"electionTimeout": "9s"}),
            ],
        ),
        pick(
            "pod",
            vec![
                json!({}),
                claim,
                json!({"etcdEnv": [{"name": "ETCD_HEARTBEAT_INTERVAL", "value": "200"}]}),
            ],
        ),
        pick(
            "recovery",
            vec![json!({}), json!({"unreachableAfter": "1h"})],
        ),
        pick(
            "maintenance",
            vec![
                json!({}),
                json!({"defragment": "Off"}),
                json!({"onNoSpace": "Report"}),
            ],
        ),
        pick(
            "backup",
            vec![
                json!({"backupName": "nightly"}),
                json!({"backupName": "nightly", "beforeRisk": "Never", "maxAge": "1h"}),
            ],
        ),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, j, k)| {
            let said = [a, b, c, d, e, f, g, h, i, j, k]
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)));
            Value::Object(said.collect())
        })
}

proptest! {
    #[test]
    fn what_is_said_is_kept_and_a_second_time_changes_nothing(spec in any_spec()) {
        let once = defaulted(&spec);
        prop_assert!(contains(&once, &spec), "{spec} became {once}");
        prop_assert_eq!(defaulted(&once), once.clone());
    }
}

#[test]
fn what_is_unset_means_what_coreos_meant_where_its_operator_made_the_cluster() {
    let meant = |spec: Value, status: Value| {
        let mut object = cluster(spec);
        object["status"] = status;
        let mut typed: EtcdCluster = serde_json::from_value(object).unwrap();
        default_cluster(&mut typed, &Policy::default());
        let spec = serde_json::to_value(&typed.spec).unwrap();
        json!([spec["storage"], spec["security"], spec["version"]])
    };
    let left = json!({
        "phase": "Running", "size": 3, "currentVersion": "3.2.13", "targetVersion": "",
        "conditions": [{"type": "Available", "status": "True", "lastUpdateTime": "2019-05-01T10:00:00Z",
            "lastTransitionTime": "2019-05-01T10:00:00Z", "reason": "Cluster available"}],
    });
    let plain = json!({"peerTLS": {"mode": "Off"}, "clientTLS": {"mode": "Off"}});
    assert_eq!(
        meant(json!({"size": 3}), left.clone()),
        json!([{"ephemeral": true}, plain, "3.2.13"])
    );
    let origin = json!({"origin": "CoreOS", "currentVersion": "3.2.13", "summary": "Healthy", "phase": "Running"});
    assert_eq!(
        meant(json!({}), origin),
        json!([{"ephemeral": true}, plain, "3.2.13"])
    );
    // What is said is not touched.
    assert_eq!(
        meant(json!({"storage": {"size": "2Gi"}}), left.clone()),
        json!([{"size": "2Gi", "reclaim": "Delete"}, plain, "3.2.13"])
    );
    let secrets = json!({"TLS": {"static": {"member": {"peerSecret": "p"}}}});
    assert_eq!(meant(secrets, left)[1], Value::Null);
    // A cluster of this operator's own has more than a phase in its status.
    let ours = json!({"phase": "Running", "summary": "Healthy", "clusterID": "c1", "bootstrap": {"token": "t"}});
    assert_eq!(meant(json!({}), ours)[1]["peerTLS"]["mode"], "Auto");
}

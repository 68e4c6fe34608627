//! The rules as tables: what is accepted, what is rejected and why, what is warned of.

#![allow(clippy::needless_pass_by_value)] // `json!` literals read best by value.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::examples::{self, cluster};
use crate::policy::EndOfLife;

fn typed(value: &Value) -> EtcdCluster {
    serde_json::from_value(value.clone()).unwrap()
}

fn judged(spec: Value) -> Judgement {
    judge(&typed(&cluster(spec)), None, &Policy::default())
}

fn accepts(spec: Value) {
    let judgement = judged(spec.clone());
    assert_eq!(judgement.violations, [], "{spec}");
}

fn rejects(spec: Value, field: &str, reason: Reason, words: &str) {
    let violations = judged(spec.clone()).violations;
    let [violation] = violations.as_slice() else {
        panic!("{spec}: {violations:?}");
    };
    assert_eq!(
        (violation.field.as_str(), violation.reason),
        (field, reason),
        "{spec}"
    );
    assert!(
        violation.message.contains(words),
        "{spec}: {}",
        violation.message
    );
}

fn warns(spec: Value, line: &str) {
    let lines: Vec<String> = judged(spec.clone())
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        lines.iter().any(|warning| warning.contains(line)),
        "{spec}: {lines:?}"
    );
}

mod changes;

#[test]
fn an_empty_spec_is_sound() {
    accepts(json!({}));
}

#[test]
fn every_example_breaks_its_rule_and_no_other() {
    for example in examples::breaking() {
        let judgement = example.judge(&Policy::default()).unwrap();
        let reasons: BTreeSet<Reason> = judgement
            .violations
            .iter()
            .map(|violation| violation.reason)
            .collect();
        assert_eq!(
            reasons,
            BTreeSet::from([example.reason]),
            "{}: {:?}",
            example.what,
            judgement.violations
        );
    }
}

#[test]
fn what_stood_before_an_example_was_sound() {
    for example in examples::breaking() {
        if let Some(before) = example.before() {
            let judgement = before.judge(&Policy::default()).unwrap();
            assert_eq!(judgement.violations, [], "{}", example.what);
        }
    }
}

#[test]
fn every_reason_has_an_example() {
    let shown: BTreeSet<Reason> = examples::breaking()
        .iter()
        .map(|example| example.reason)
        .collect();
    // These need more than an object: the owner's policy, a DELETE, an object that was never stored, a cluster that runs.
    let elsewhere = [
        Reason::RecoveryOfAnother,
        Reason::RecoveryNotNeeded,
        Reason::VersionEndOfLife,
        Reason::DeletionProtected,
        Reason::MetadataIncomplete,
    ];
    for reason in Reason::ALL {
        assert!(
            shown.contains(reason) || elsewhere.contains(reason),
            "{reason}"
        );
    }
}

#[test]
fn every_message_says_must_and_every_warning_is_short() {
    for example in examples::breaking() {
        let judgement = example.judge(&Policy::default()).unwrap();
        for violation in &judgement.violations {
            assert!(violation.message.starts_with("must"), "{violation}");
        }
        for warning in &judgement.warnings {
            let untrimmed = warning.field.len() + 2 + warning.message.len();
            assert!(untrimmed <= LONGEST_WARNING, "{warning}");
        }
    }
}

#[test]
fn a_long_warning_is_cut_and_not_dropped() {
    let warning = Warning {
        field: "spec".to_owned(),
        message: "ä".repeat(200),
    };
    assert_eq!(warning.to_string().chars().count(), LONGEST_WARNING);
}

#[test]
fn all_violations_come_at_once() {
    let spec = json!({
        "size": 2,
        "version": "3.5.0",
        "storage": {"size": "-1Gi"},
        "options": {"heartbeatInterval": "1s", "electionTimeout": "2s", "extraArgs": {"name": "x", "--a": "b"}},
        "pod": {"labels": {"app": "x"}, "terminationGracePeriodSeconds": -1},
    });
    let violations = judged(spec).violations;
    let reasons: BTreeSet<Reason> = violations
        .iter()
        .map(|violation| violation.reason)
        .collect();
    let expected = [
        Reason::SizeNotAllowed,
        Reason::VersionKnownBad,
        Reason::QuantityNotPositive,
        Reason::ElectionTooShort,
        Reason::FlagOwned,
        Reason::FlagMalformed,
        Reason::LabelReserved,
        Reason::GraceOutOfBounds,
    ];
    assert_eq!(reasons, BTreeSet::from(expected), "{violations:?}");
}

#[test]
fn an_even_size_is_rejected_naming_its_neighbours() {
    for size in [1, 3, 5, 7] {
        accepts(json!({"size": size}));
    }
    rejects(
        json!({"size": 4}),
        "spec.size",
        Reason::SizeNotAllowed,
        "use 3 or 5",
    );
    rejects(
        json!({"size": 2}),
        "spec.size",
        Reason::SizeNotAllowed,
        "use 1 or 3",
    );
    rejects(
        json!({"size": 8}),
        "spec.size",
        Reason::SizeNotAllowed,
        "at most 7",
    );
    rejects(
        json!({"size": -1}),
        "spec.size",
        Reason::SizeNotAllowed,
        "at least 1",
    );
    warns(
        json!({"size": 1}),
        "spec.size: one member tolerates no failure",
    );
}

#[test]
fn scaling_is_judged_in_the_same_words() {
    assert!(judge_scale(5).allowed());
    let by_scale = judge_scale(4).violations;
    let by_apply = judged(json!({"size": 4})).violations;
    assert_eq!(by_scale[0].field, "spec.replicas");
    assert_eq!(by_scale[0].message, by_apply[0].message);
}

#[test]
fn generated_names_leave_room_for_their_suffix() {
    let mut object = cluster(json!({}));
    for (prefix, sound) in [
        ("a".repeat(35), true),
        ("a".repeat(36), false),
        ("test-".to_owned(), true),
        ("-".to_owned(), false),
    ] {
        object["metadata"] = json!({"generateName": prefix});
        let judgement = judge(&typed(&object), None, &Policy::default());
        assert_eq!(judgement.allowed(), sound, "{prefix}");
    }
}

#[test]
fn manifests_of_2018_still_apply() {
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    for spec in [
        json!({"size": 3}),
        json!({"size": 3, "version": "3.2.13"}),
        json!({"size": 3, "version": "3.1.10", "repository": ""}),
        json!({"size": 3, "pod": {"resources": {"limits": {"cpu": "300m", "memory": "200Mi"}, "requests": {"cpu": "200m", "memory": "100Mi"}}}}),
        json!({"size": 3, "version": "3.2.13", "pod": {"etcdEnv": [{"name": "ETCD_AUTO_COMPACTION_RETENTION", "value": "1"}]}}),
        json!({"size": 3, "pod": {"annotations": {"prometheus.io/scrape": "true"}, "antiAffinity": true}}),
        json!({"size": 3, "pod": {"securityContext": {"runAsNonRoot": true, "runAsUser": 9000, "fsGroup": 9000}}}),
        json!({"size": 3, "pod": {"persistentVolumeClaimSpec": claim}}),
        json!({"size": 3, "TLS": {"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}}),
        json!({"size": 3, "pod": {"busyboxImage": "busybox:1.28", "DNSTimeoutInSecond": 30, "ClusterDomain": "cluster.local"}}),
    ] {
        accepts(spec);
    }
    warns(
        json!({"pod": {"busyboxImage": "busybox"}}),
        "no longer used",
    );
    warns(json!({"pod": {"DNSTimeoutInSecond": 1}}), "no longer used");
}

#[test]
fn what_stands_in_the_environment_is_read_as_an_option() {
    let spec = json!({"version": "3.2.13", "pod": {"etcdEnv": [
        {"name": "ETCD_AUTO_COMPACTION_RETENTION", "value": "2"},
        {"name": "ETCD_QUOTA_BACKEND_BYTES", "value": "1073741824"},
        {"name": "ETCD_HEARTBEAT_INTERVAL", "value": "300"},
        {"name": "ETCD_MAX_WALS", "value": "5"},
        {"name": "GOMAXPROCS", "value": "2"},
    ]}});
    let mut object = cluster(spec);
    object["metadata"]["uid"] = json!("u");
    let validated = ValidatedCluster::new(&typed(&object), &Policy::default()).unwrap();
    let options = validated.options;
    assert_eq!(
        options.auto_compaction,
        crate::validated::AutoCompaction::Periodic(Duration::from_hours(2))
    );
    assert_eq!(options.quota_bytes, 1 << 30);
    assert_eq!((options.heartbeat_ms, options.election_ms), (300, 3000));
    // What became a flag must not also be a variable: etcd dies of both.
    let names: Vec<&str> = validated
        .pod
        .environment
        .iter()
        .map(|env| env.name.as_str())
        .collect();
    assert_eq!(names, ["ETCD_MAX_WALS", "GOMAXPROCS"]);
}

#[test]
fn flags_are_judged_by_minor_and_near_misses_are_named() {
    let args = |version: &str, flag: &str| json!({"version": version, "options": {"extraArgs": {flag: "x"}}});
    let field = |flag: &str| format!("spec.options.extraArgs[{flag}]");
    accepts(args("3.6.16", "max-wals"));
    accepts(args("3.6.16", "experimental-compaction-batch-limit"));
    accepts(args("3.6.16", "cipher-suites"));
    let flag = "experimental-compaction-batch-limit";
    rejects(
        args("3.7.3", flag),
        &field(flag),
        Reason::FlagNotInMinor,
        "removed after 3.6; use `compaction-batch-limit`",
    );
    rejects(
        args("3.5.35", "max-learners"),
        &field("max-learners"),
        Reason::FlagNotInMinor,
        "exists from 3.6 on",
    );
    rejects(
        args("3.6.16", "max-walls"),
        &field("max-walls"),
        Reason::FlagUnknown,
        "did you mean `max-wals`?",
    );
    rejects(
        args("3.6.16", "unsafe-no-fsync"),
        &field("unsafe-no-fsync"),
        Reason::FlagOwned,
        "the operator owns",
    );
    rejects(
        args("3.6.16", "log-level"),
        &field("log-level"),
        Reason::FlagHasField,
        "use `spec.options.logLevel`",
    );
}

#[test]
fn feature_gates_pass_but_for_the_operators_own() {
    let gates = |version: &str, gates: &str| json!({"version": version, "options": {"extraArgs": {"feature-gates": gates}}});
    let field = "spec.options.extraArgs[feature-gates]";
    accepts(gates("3.6.16", "StopGRPCServiceOnDefrag=true"));
    rejects(
        gates("3.6.16", "InitialCorruptCheck=false"),
        field,
        Reason::FlagOwned,
        "the operator sets them",
    );
    rejects(
        gates("3.6.16", "nonsense"),
        field,
        Reason::OptionInvalid,
        "Name=true",
    );
    rejects(
        gates("3.5.35", "A=true"),
        field,
        Reason::FlagNotInMinor,
        "exists from 3.6 on",
    );
}

#[test]
fn risky_settings_warn() {
    warns(json!({}), "spec.security.clientTLS.mode: Off");
    warns(
        json!({"security": {"peerTLS": {"mode": "Off"}}}),
        "spec.security.peerTLS.mode: Off",
    );
    warns(json!({"storage": {"ephemeral": true}}), "loses its data");
    warns(
        json!({"storage": {"size": "100Gi"}, "options": {"quotaBackend": "9Gi"}}),
        "more than 8Gi",
    );
    warns(
        json!({"pod": {"resources": {"limits": {"memory": "1Gi"}}}}),
        "less than the quota of 2Gi",
    );
    warns(
        json!({"pod": {"terminationGracePeriodSeconds": 5}}),
        "less than 30",
    );
    warns(
        json!({"options": {"maxRequestBytes": 20_000_000}}),
        "more than 10 MiB",
    );
    warns(
        json!({"service": {"client": {"type": "LoadBalancer"}}}),
        "LoadBalancer: reachable from outside",
    );
}

#[test]
fn the_controller_reads_what_admission_accepted() {
    let mut object = cluster(
        json!({"version": "v3.6.16", "security": {"clientTLS": {"mode": "Auto", "clientAuth": false}}}),
    );
    object["metadata"]["uid"] = json!("u");
    let validated = ValidatedCluster::new(&typed(&object), &Policy::default()).unwrap();
    assert_eq!(validated.image, "gcr.io/etcd-development/etcd:v3.6.16");
    assert_eq!(validated.size.members(), 3);
    assert_eq!(
        validated.client_tls,
        crate::validated::ClientTls::Auto { client_auth: false }
    );
    assert_eq!(validated.peer_tls, crate::validated::PeerTls::Auto);
    assert_eq!(validated.unreachable_after, Duration::from_mins(5));
    let crate::validated::Storage::Claim(claim) = validated.storage else {
        panic!("no claim")
    };
    assert_eq!((claim.size.0.as_str(), claim.size_bytes), ("8Gi", 8 << 30));
}

#[test]
fn the_controller_holds_what_slipped_past_admission() {
    let mut object = cluster(json!({"size": 4}));
    object["metadata"]["uid"] = json!("u");
    let violations = ValidatedCluster::new(&typed(&object), &Policy::default()).unwrap_err();
    assert_eq!(violations, judged(json!({"size": 4})).violations);
    object["metadata"]["uid"] = Value::Null;
    let violations = ValidatedCluster::new(&typed(&object), &Policy::default()).unwrap_err();
    assert!(
        violations
            .iter()
            .any(|violation| violation.reason == Reason::MetadataIncomplete)
    );
}

/// The words people see, all in one place, to be read by a person when they change.
#[test]
fn every_refusal_reads_well() {
    let mut words = String::new();
    for example in examples::breaking() {
        for violation in example.judge(&Policy::default()).unwrap().violations {
            words.extend([
                violation.reason.as_str(),
                " (",
                example.what,
                ")\n  ",
                &violation.to_string(),
                "\n",
            ]);
        }
    }
    insta::assert_snapshot!(words);
}

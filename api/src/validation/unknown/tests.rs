//! What is told of a manifest, and what it costs.

use serde_json::{Value, json};

use super::*;

fn written(kind: &str, version: &str, spec: &Value) -> String {
    json!({
        "apiVersion": format!("{GROUP}/{version}"),
        "kind": kind,
        "metadata": {"name": "c", "namespace": "ns", "annotations": {}},
        "spec": spec,
    })
    .to_string()
}

fn told(kind: &str, manifest: &str) -> Vec<String> {
    judge_unknown(kind, manifest)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn of_cluster(spec: &Value) -> Vec<String> {
    told("EtcdCluster", &written("EtcdCluster", "v1beta2", spec))
}

#[track_caller]
fn accepts(spec: &Value) {
    assert_eq!(of_cluster(spec), Vec::<String>::new(), "{spec}");
}

#[track_caller]
fn warns(spec: &Value, lines: &[&str]) {
    assert_eq!(of_cluster(spec), lines, "{spec}");
}

#[test]
fn accepts_what_the_schema_knows() {
    accepts(&json!({}));
    accepts(&json!(null));
    accepts(
        &json!({"size": 3, "version": "3.6.1", "storage": {"size": "8Gi"}, "options": {"quotaBackend": "2Gi"}}),
    );
    // Kubernetes' own types, lists and maps of them.
    accepts(&json!({"pod": {
        "labels": {"anything": "goes"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}],
        }}},
    }}));
    accepts(&json!({"options": {"extraArgs": {"max-wals": "5"}}}));
}

#[test]
fn accepts_every_manifest_that_the_rules_are_shown_with() {
    for example in crate::examples::breaking() {
        let kind = example.new["kind"].as_str().unwrap();
        let told = told(kind, &example.new.to_string());
        assert_eq!(told, Vec::<String>::new(), "{}", example.what);
    }
}

#[test]
fn warns_of_a_near_miss_with_what_was_meant() {
    warns(
        &json!({"sise": 3}),
        &["spec.sise: unknown field, ignored; did you mean spec.size?"],
    );
    warns(
        &json!({"options": {"quotaBackEnd": "2Gi"}}),
        &[
            "spec.options.quotaBackEnd: unknown field, ignored; did you mean spec.options.quotaBackend?",
        ],
    );
    warns(
        &json!({"tls": {}}),
        &["spec.tls: unknown field, ignored; did you mean spec.TLS?"],
    );
    warns(
        &json!({"pod": {"tolerations": [{"key": "a"}, {"kee": "b"}]}}),
        &[
            "spec.pod.tolerations[1].kee: unknown field, ignored; did you mean spec.pod.tolerations[1].key?",
        ],
    );
}

#[test]
fn warns_of_what_nobody_could_have_meant_without_a_guess() {
    warns(
        &json!({"unheardOf": {"size": 3}}),
        &["spec.unheardOf: unknown field, ignored"],
    );
}

#[test]
fn warns_in_every_kind_and_version_by_its_own_schema() {
    for (kind, version, spec, line) in [
        (
            "EtcdCluster",
            "v1alpha1",
            json!({"replcas": 3, "storage": "8Gi"}),
            "spec.replcas: unknown field, ignored; did you mean spec.replicas?",
        ),
        (
            "EtcdBackup",
            "v1beta2",
            json!({"clustername": "c"}),
            "spec.clustername: unknown field, ignored; did you mean spec.clusterName?",
        ),
        (
            "EtcdRestore",
            "v1beta2",
            json!({"newCluster": {"spec": {"sizes": 3}}}),
            "spec.newCluster.spec.sizes: unknown field, ignored; did you mean spec.newCluster.spec.size?",
        ),
    ] {
        assert_eq!(told(kind, &written(kind, version, &spec)), [line]);
    }
    let beside =
        format!(r#"{{"apiVersion":"{GROUP}/v1beta2","kind":"EtcdCluster","sepc":{{"sise":3}}}}"#);
    assert_eq!(
        told("EtcdCluster", &beside),
        ["sepc: unknown field, ignored; did you mean spec?"]
    );
}

#[test]
fn names_a_few_and_counts_the_rest() {
    let mut spec = serde_json::Map::new();
    for index in 0..1000 {
        spec.insert(format!("odd{index:04}"), json!(1));
    }
    warns(
        &Value::Object(spec),
        &[
            "spec.odd0000: unknown field, ignored",
            "spec.odd0001: unknown field, ignored",
            "spec.odd0002: unknown field, ignored",
            "997 more: unknown fields, ignored",
        ],
    );
}

#[test]
fn a_line_is_short_and_whole_however_long_the_path_or_the_name() {
    let deep = json!({"pod": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"kee": "k"}]}],
    }}}}});
    warns(&deep, &["….kee: unknown field, ignored; did you mean key?"]);
    for name in ["x".repeat(100_000), "line\nbreak\u{7}".to_owned()] {
        let lines = of_cluster(&json!({name: 1}));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].chars().count() <= LONGEST_WARNING, "{lines:?}");
        assert!(!lines[0].contains(char::is_control), "{lines:?}");
        assert!(lines[0].ends_with("ignored"), "{lines:?}");
    }
}

#[test]
fn is_silent_where_there_is_nothing_to_compare() {
    let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let cluster = |spec: &str| {
        format!(r#"{{"apiVersion":"{GROUP}/v1beta2","kind":"EtcdCluster","spec":{spec}}}"#)
    };
    for manifest in [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        written("EtcdCluster", "v1", &json!({"sise": 3})),
        // Cut off behind an unknown field.
        cluster(r#"{"sise":3"#),
        cluster(r#"{"sise":3}}"#),
        // Of the wrong form, which is the schema's to refuse.
        cluster("[1, {}]"),
        cluster(r#"{"storage":[{"sise":1}],"pod":{"tolerations":{"a":1}}}"#),
        // Too deep where it is read, and where it is passed over.
        cluster(&format!(r#"{{"size":{deep}}}"#)),
        cluster(&format!(r#"{{"pod":{{"tolerations":{deep}}}}}"#)),
        written(
            "EtcdCluster",
            "v1beta2",
            &json!({"x": "x".repeat(LONGEST_MANIFEST)}),
        ),
    ] {
        let told = told("EtcdCluster", &manifest);
        let start: String = manifest.chars().take(200).collect();
        assert_eq!(told, Vec::<String>::new(), "{start}");
    }
    let other = written("Pod", "v1beta2", &json!({"sise": 3}));
    assert_eq!(told("Pod", &other), Vec::<String>::new());
}

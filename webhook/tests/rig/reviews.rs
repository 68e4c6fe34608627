//! AdmissionReviews as an API server sends them.

#![allow(dead_code, clippy::needless_pass_by_value)]

use serde_json::{Value, json};

pub(crate) fn cluster(spec: Value) -> Value {
    json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": spec,
    })
}

fn review(kind: Value, operation: &str, object: Value, old: Value, more: Value) -> Value {
    let mut request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": {"group": "etcd.database.coreos.com", "version": "v1beta2", "resource": "etcdclusters"},
        "requestKind": kind,
        "name": "c",
        "namespace": "ns",
        "operation": operation,
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "object": object,
        "oldObject": old,
        "dryRun": false,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        request[key] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

fn cluster_kind() -> Value {
    json!({"group": "etcd.database.coreos.com", "version": "v1beta2", "kind": "EtcdCluster"})
}

/// One of our other kinds, created.
pub(crate) fn create_other(kind: &str, spec: Value) -> Value {
    let object = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": kind,
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": spec,
    });
    let kind = json!({"group": "etcd.database.coreos.com", "version": "v1beta2", "kind": kind});
    review(kind, "CREATE", object, json!(null), json!({}))
}

pub(crate) fn create(object: Value) -> Value {
    review(cluster_kind(), "CREATE", object, json!(null), json!({}))
}

pub(crate) fn update(object: Value, old: Value) -> Value {
    review(cluster_kind(), "UPDATE", object, old, json!({}))
}

pub(crate) fn delete(old: Value) -> Value {
    review(cluster_kind(), "DELETE", json!(null), old, json!({}))
}

pub(crate) fn scale(user: &str, replicas: i32, before: i32) -> Value {
    let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    let scale = |replicas: i32| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"replicas": replicas}, "status": {"replicas": 3}})
    };
    review(
        kind,
        "UPDATE",
        scale(replicas),
        scale(before),
        json!({"subResource": "scale", "userInfo": {"username": user}}),
    )
}

//! A ConversionReview is answered in order, as a whole, or with the one object that failed.

#![allow(clippy::unwrap_used)]

use etcd_operator_webhook::convert::convert;
use serde_json::{Value, json};

fn review(objects: &[Value]) -> Vec<u8> {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": "g/v2", "objects": objects},
    })
    .to_string()
    .into_bytes()
}

fn object(name: &str) -> Value {
    json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": name, "namespace": "ns", "uid": "x", "labels": {"a": "b"}}})
}

/// Converts, and meddles with metadata on the way; refuses the one called `bad`.
fn meddling(mut object: Value, desired: &str) -> Result<Value, String> {
    if object["metadata"]["name"] == "bad" {
        return Err("has no size".to_owned());
    }
    object["apiVersion"] = json!(desired);
    object["metadata"]["uid"] = json!("forged");
    object["metadata"]["creationTimestamp"] = json!("now");
    object["metadata"]["annotations"] = json!({"kept": "yes"});
    Ok(object)
}

#[test]
fn order_and_count_are_kept_and_metadata_changes_only_in_labels_and_annotations() {
    let objects = [object("a"), object("b"), object("c")];
    let converted = convert(&review(&objects), meddling).unwrap();
    let answer: Value = serde_json::from_slice(&converted.answer).unwrap();
    assert_eq!(answer["response"]["uid"], "u");
    assert_eq!(answer["response"]["result"]["status"], "Success");
    let after = answer["response"]["convertedObjects"].as_array().unwrap();
    assert_eq!(after.len(), 3);
    for (before, after) in objects.iter().zip(after) {
        assert_eq!(after["apiVersion"], "g/v2");
        let mut metadata = before["metadata"].clone();
        metadata["annotations"] = json!({"kept": "yes"});
        assert_eq!(after["metadata"], metadata);
    }
}

#[test]
fn one_object_that_fails_is_named_and_nothing_is_converted() {
    let converted = convert(&review(&[object("a"), object("bad")]), meddling).unwrap();
    let answer: Value = serde_json::from_slice(&converted.answer).unwrap();
    assert_eq!(answer["response"]["result"]["status"], "Failure");
    assert_eq!(
        answer["response"]["result"]["message"],
        "objects[1] (ns/bad): has no size"
    );
    assert_eq!(answer["response"]["convertedObjects"], json!([]));
}

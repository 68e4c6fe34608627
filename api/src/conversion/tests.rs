//! Conversion loses nothing, whatever the object.

#![allow(clippy::needless_pass_by_value)] // `json!` literals read best by value.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn beta(spec: Value) -> Value {
    json!({"apiVersion": v1beta2::API_VERSION, "kind": "EtcdCluster", "metadata": {"name": "c", "uid": "u"}, "spec": spec})
}

fn there_and_back(object: &Value, there: &str, back: &str) -> Value {
    convert(convert(object.clone(), there).unwrap(), back).unwrap()
}

#[test]
fn the_three_fields_are_translated() {
    let object = beta(json!({"size": 5, "version": "3.6.16", "storage": {"size": "10Gi"}}));
    let alpha = convert(object.clone(), v1alpha1::API_VERSION).unwrap();
    assert_eq!(
        alpha["spec"],
        json!({"replicas": 5, "version": "3.6.16", "storage": "10Gi"})
    );
    assert_eq!(alpha["metadata"], object["metadata"]);
    assert_eq!(convert(alpha, v1beta2::API_VERSION).unwrap(), object);
}

#[test]
fn what_v1alpha1_cannot_say_survives_an_edit_there() {
    let object =
        beta(json!({"size": 3, "storage": {"size": "10Gi", "className": "fast"}, "paused": true}));
    let mut alpha = convert(object, v1alpha1::API_VERSION).unwrap();
    alpha["spec"]["replicas"] = json!(5);
    alpha["spec"]["storage"] = json!("20Gi");
    let back = convert(alpha, v1beta2::API_VERSION).unwrap();
    let expected =
        json!({"size": 5, "storage": {"size": "20Gi", "className": "fast"}, "paused": true});
    assert_eq!(back["spec"], expected);
    assert_eq!(back["metadata"].get("annotations"), None);
}

#[test]
fn a_field_removed_in_v1alpha1_is_removed() {
    let object = beta(
        json!({"size": 3, "version": "3.6.16", "storage": {"size": "10Gi", "className": "fast"}}),
    );
    let mut alpha = convert(object, v1alpha1::API_VERSION).unwrap();
    alpha["spec"] = json!({});
    let back = convert(alpha, v1beta2::API_VERSION).unwrap();
    assert_eq!(back["spec"], json!({"storage": {"className": "fast"}}));
}

#[test]
fn an_annotation_that_is_not_ours_is_put_back() {
    let mut object = beta(json!({"paused": true}));
    object["metadata"]["annotations"] = json!({KEPT_FROM_BETA: "copied by hand", "a": "b"});
    let back = there_and_back(&object, v1alpha1::API_VERSION, v1beta2::API_VERSION);
    assert_eq!(back, object);
}

#[test]
fn a_broken_annotation_is_named() {
    let object = json!({"apiVersion": v1alpha1::API_VERSION, "metadata": {"annotations": {KEPT_FROM_BETA: "{"}}, "spec": {}});
    let error = convert(object, v1beta2::API_VERSION)
        .unwrap_err()
        .to_string();
    assert!(error.contains(KEPT_FROM_BETA), "{error}");
}

#[test]
fn unknown_versions_and_shapes_are_errors() {
    assert!(convert(beta(json!({})), "etcd.database.coreos.com/v2").is_err());
    assert!(
        convert(
            json!({"apiVersion": "v1", "kind": "Pod"}),
            v1beta2::API_VERSION
        )
        .is_err()
    );
    assert!(convert(json!([]), v1beta2::API_VERSION).is_err());
    assert!(convert(json!({}), v1beta2::API_VERSION).is_err());
    assert!(convert(beta(json!([])), v1alpha1::API_VERSION).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z0-9 ä\"{}]{0,12}".prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(any_key(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Names that matter to the translation, and others.
fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "size",
            "replicas",
            "version",
            "storage",
            "spec",
            "shadowed",
            "pod",
            "className"
        ])
        .prop_map(ToOwned::to_owned),
        "[a-zA-Z]{1,6}",
    ]
}

fn any_fields() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map(any_key(), any_json(), 0..6)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

prop_compose! {
    fn any_object()(
        beta in any::<bool>(),
        spec in proptest::option::of(any_fields()),
        status in proptest::option::of(any_fields()),
        annotations in proptest::collection::btree_map(
            prop_oneof![Just(KEPT_FROM_BETA.to_owned()), Just(KEPT_FROM_ALPHA.to_owned()), "[a-z]{1,5}"],
            "[a-z{}\":]{0,8}",
            1..4,
        ),
        annotated in any::<bool>(),
    ) -> Value {
        let version = if beta { v1beta2::API_VERSION } else { v1alpha1::API_VERSION };
        let mut object = json!({"apiVersion": version, "kind": "EtcdCluster", "metadata": {"name": "c"}, "extra": 1});
        for (name, value) in [("spec", spec), ("status", status)] {
            if let Some(value) = value {
                object[name] = value;
            }
        }
        if annotated {
            // The one name under which an object of this version may hold what we kept must be ours to be sound.
            let ours = if beta { KEPT_FROM_ALPHA } else { KEPT_FROM_BETA };
            let foreign: Map<String, Value> =
                annotations.into_iter().filter(|(key, _)| key != ours).map(|(k, v)| (k, v.into())).collect();
            if !foreign.is_empty() {
                object["metadata"]["annotations"] = Value::Object(foreign);
            }
        }
        object
    }
}

proptest! {
    #[test]
    fn a_round_trip_changes_nothing(object in any_object()) {
        let home = object["apiVersion"].as_str().unwrap().to_owned();
        let away = if home == v1beta2::API_VERSION { v1alpha1::API_VERSION } else { v1beta2::API_VERSION };
        // What no schema lets in may be refused, but never changed.
        if let Ok(there) = convert(object.clone(), away) {
            prop_assert_eq!(convert(there, &home).unwrap(), object);
        }
    }

    #[test]
    fn only_annotations_change_in_the_metadata(object in any_object()) {
        let home = object["apiVersion"].as_str().unwrap().to_owned();
        let away = if home == v1beta2::API_VERSION { v1alpha1::API_VERSION } else { v1beta2::API_VERSION };
        if let Ok(there) = convert(object.clone(), away) {
            let without = |object: &Value| {
                let mut metadata = object["metadata"].clone();
                metadata.as_object_mut().unwrap().remove("annotations");
                metadata
            };
            prop_assert_eq!(without(&there), without(&object));
            prop_assert_eq!(there.get("status"), object.get("status"));
        }
    }

    #[test]
    fn nothing_makes_it_panic(object in any_json(), to in "[a-z/0-9.]{0,40}") {
        let _ = convert(object.clone(), &to);
        let _ = convert(object, v1beta2::API_VERSION);
    }
}

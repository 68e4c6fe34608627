//! Fields that were misspelt: the API server has dropped them, and the person who wrote them is told.

#![allow(clippy::unwrap_used)]

#[path = "rig/reviews.rs"]
mod reviews;
mod rig;

use reviews::{cluster, create, create_other, update};
use rig::{quick, start};
use serde_json::{Value, json};

const AS_WRITTEN: &str = "kubectl.kubernetes.io/last-applied-configuration";
const TOLD: &str = "spec.sise: unknown field, ignored; did you mean spec.size?";

/// An object of that spec, and in its annotation the manifest with this one.
fn applied(spec: Value, written: Value) -> Value {
    let mut object = cluster(spec);
    object["metadata"]["annotations"] = json!({AS_WRITTEN: cluster(written).to_string()});
    object
}

fn warnings(response: &Value) -> Vec<&str> {
    let warnings = response["warnings"].as_array();
    warnings
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[tokio::test]
async fn a_misspelt_field_is_told_of_when_the_manifest_is_written_and_not_again() {
    let webhook = start(quick(), None).await;
    let path = "/validate-etcdcluster";
    let misspelt = applied(json!({}), json!({"sise": 5}));
    let created = webhook.review(path, &create(misspelt.clone())).await;
    assert_eq!(created["allowed"], true);
    assert!(warnings(&created).contains(&TOLD), "{created}");

    // The manifest alone differs: what it misspells did not reach the spec.
    let before = applied(json!({}), json!({}));
    let updated = webhook
        .review(path, &update(misspelt.clone(), before))
        .await;
    assert_eq!(warnings(&updated), [TOLD]);

    let mut labelled = misspelt.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let later = webhook
        .review(path, &update(labelled.clone(), misspelt.clone()))
        .await;
    assert_eq!(warnings(&later), Vec::<&str>::new());

    let mut leaving = misspelt;
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let gone = webhook.review(path, &update(leaving, labelled)).await;
    assert_eq!(warnings(&gone), Vec::<&str>::new());
}

#[tokio::test]
async fn a_refusal_tells_of_misspelt_fields_too_since_they_may_be_why() {
    let webhook = start(quick(), None).await;
    let object = applied(json!({"size": 4}), json!({"size": 4, "sise": 5}));
    for path in ["/mutate-etcdcluster", "/validate-etcdcluster"] {
        let response = webhook.review(path, &create(object.clone())).await;
        assert_eq!(response["allowed"], false);
        assert!(warnings(&response).contains(&TOLD), "{path} {response}");
    }
}

#[tokio::test]
async fn backups_are_read_by_their_own_schema() {
    let webhook = start(quick(), None).await;
    let spec =
        json!({"clusterName": "c", "storageType": "PVC", "pvc": {"claimName": "b", "path": "p"}});
    let mut review = create_other("EtcdBackup", spec);
    let mut written = review["request"]["object"].clone();
    written["spec"]["scheduel"] = json!("@daily");
    review["request"]["object"]["metadata"]["annotations"] =
        json!({AS_WRITTEN: written.to_string()});
    let response = webhook.review("/validate-etcdbackup", &review).await;
    let told = "spec.scheduel: unknown field, ignored; did you mean spec.schedule?";
    assert!(warnings(&response).contains(&told), "{response}");
}

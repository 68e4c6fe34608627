use serde_json::{Value, json};

use crate::crd::tests::refusals;
use crate::examples::{self, Example};
use crate::policy::Policy;
use crate::v1beta2::EtcdCluster;
use crate::validated::ValidatedCluster;
use crate::validation::{Violation, judge};

/// The example's cluster with this spec, as it is stored after the controller has acted on what stood before.
fn stored(example: &Example, spec: &Value) -> EtcdCluster {
    let old = example.old.as_ref().unwrap();
    let mut before = old.clone();
    before["metadata"]["uid"] = json!("u");
    let acted_on = read(&before).unwrap().accepted;
    let mut object = before;
    object["spec"] = spec.clone();
    object["status"]["accepted"] = serde_json::to_value(acted_on).unwrap();
    serde_json::from_value(object).unwrap()
}

fn read(object: &Value) -> Result<ValidatedCluster, Vec<Violation>> {
    let object = serde_json::from_value(object.clone()).unwrap();
    ValidatedCluster::new(&object, &Policy::default())
}

/// Changes of everything but the version, which etcd itself is asked about.
fn changes() -> Vec<Example> {
    let changes: Vec<Example> = examples::breaking()
        .into_iter()
        .filter(|example| example.kind() == "EtcdCluster" && example.old.is_some())
        .filter(|example| !example.reason.as_str().starts_with("Version"))
        .collect();
    assert!(changes.len() >= 12, "only {}", changes.len());
    changes
}

#[test]
fn the_controller_rejects_every_change_that_admission_rejects_in_the_same_words() {
    for example in changes() {
        let slipped = stored(&example, &example.new["spec"]);
        let violations = ValidatedCluster::new(&slipped, &Policy::default()).unwrap_err();
        let refused = example.judge(&Policy::default()).unwrap().violations;
        assert_eq!(violations, refused, "{}", example.what);
    }
}

#[test]
fn what_was_acted_on_can_be_put_back_before_every_guard() {
    for example in changes() {
        let old = example.old.as_ref().unwrap();
        let slipped = stored(&example, &example.new["spec"]);
        let put_back = stored(&example, &old["spec"]);
        assert!(
            ValidatedCluster::new(&put_back, &Policy::default()).is_ok(),
            "{}",
            example.what
        );
        let judgement = judge(&put_back, Some(&slipped), &Policy::default());
        assert_eq!(judgement.violations, [], "{}", example.what);
        let json = |cluster: &EtcdCluster| serde_json::to_value(cluster).unwrap();
        let refused = refusals(&json(&put_back), Some(&json(&slipped)));
        assert_eq!(refused, Vec::<String>::new(), "{}", example.what);
    }
}

#[test]
fn a_third_way_is_rejected_and_an_unrelated_edit_is_not() {
    let class = |class: &str| json!({"storage": {"className": class}});
    let example = changes()
        .into_iter()
        .find(|example| example.old.as_ref().unwrap()["spec"] == class("a"))
        .unwrap();
    let slipped = stored(&example, &class("b"));
    let third = stored(&example, &class("c"));
    let judgement = judge(&third, Some(&slipped), &Policy::default());
    assert!(
        judgement.violations[0]
            .message
            .starts_with("must not change from a:"),
        "{judgement:?}"
    );
    let mut edited = slipped.clone();
    edited.spec.size = Some(5);
    let judgement = judge(&edited, Some(&slipped), &Policy::default());
    assert_eq!(judgement.violations, []);
}

#[test]
fn words_of_a_later_release_are_read_over() {
    let example = changes().remove(0);
    let mut object =
        serde_json::to_value(stored(&example, &example.old.as_ref().unwrap()["spec"])).unwrap();
    object["status"]["accepted"]["peerTLS"] = json!("Quantum");
    assert!(read(&object).is_ok());
    object["status"]["accepted"] = json!("all of it");
    assert!(read(&object).is_ok());
}

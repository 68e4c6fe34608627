//! What Flux and its like make of a cluster at each phase of its life.

// Public where it lives.
#[allow(unreachable_pub)]
#[path = "../../../tests/src/kstatus.rs"]
mod kstatus;

use etcd_operator_api::v1beta2::EtcdCluster;
use jiff::SignedDuration;
use serde_json::{Value, json};

use self::kstatus::Verdict;
use super::{
    fixtures::{cluster, formed, lose_pod, member, nothing, now, object},
    observed::Observed,
    plan::plan,
    status::{held, status},
    step::Reason,
};

const THREE: [&str; 3] = ["c-a", "c-b", "c-d"];

fn at_rest() -> Observed {
    formed(&cluster(json!({})), &THREE)
}

/// The object after one look at `seen`, as the API server returns it.
fn published(spec: &Value, seen: &Observed) -> Value {
    let cluster = cluster(spec.clone());
    let mut object = object(spec.clone());
    object.status = Some(status(&object, &cluster, seen, &plan(&cluster, seen)));
    returned(&object)
}

fn returned(object: &EtcdCluster) -> Value {
    serde_json::to_value(object).unwrap()
}

#[test]
fn before_the_first_look_a_cluster_is_not_taken_for_good() {
    let mut object = returned(&object(json!({})));
    // What the CRD puts there until the controller has looked.
    object["status"] = json!({"observedGeneration": -1});
    assert_eq!(kstatus::verdict(&object), Verdict::InProgress);
}

#[test]
fn kstatus_agrees_with_every_phase_of_a_life() {
    let one_lost = {
        let mut seen = at_rest();
        lose_pod(&mut seen, "c-b");
        seen
    };
    let data_lost = {
        let mut seen = at_rest();
        seen.now = now() + SignedDuration::from_hours(1);
        for name in ["c-b", "c-d"] {
            lose_pod(&mut seen, name);
            member(&mut seen, name).claim = None;
        }
        seen
    };
    for (phase, spec, seen, verdict) in [
        ("being created", json!({}), nothing(), Verdict::InProgress),
        ("as specified", json!({}), at_rest(), Verdict::Current),
        (
            "growing",
            json!({"size": 5}),
            at_rest(),
            Verdict::InProgress,
        ),
        (
            "shrinking",
            json!({"size": 1}),
            at_rest(),
            Verdict::InProgress,
        ),
        ("a pod lost", json!({}), one_lost, Verdict::InProgress),
        (
            "paused with work to do",
            json!({"paused": true, "size": 5}),
            at_rest(),
            Verdict::InProgress,
        ),
        (
            "two of three disks lost",
            json!({}),
            data_lost,
            Verdict::Failed,
        ),
    ] {
        let object = published(&spec, &seen);
        assert_eq!(
            kstatus::verdict(&object),
            verdict,
            "{phase}: {:#}",
            object["status"]["conditions"]
        );
    }
}

#[test]
fn an_edit_that_nobody_has_looked_at_yet_is_in_progress() {
    let mut object = published(&json!({}), &at_rest());
    object["metadata"]["generation"] = json!(2);
    assert_eq!(kstatus::verdict(&object), Verdict::InProgress);
}

#[test]
fn a_spec_that_is_held_has_failed_until_a_person_acts() {
    let mut held_one: EtcdCluster =
        serde_json::from_value(published(&json!({}), &at_rest())).unwrap();
    held_one.status = Some(held(
        &held_one,
        now(),
        Some(true),
        Reason::InvalidSpec,
        "spec.size: must be odd",
    ));
    assert_eq!(kstatus::verdict(&returned(&held_one)), Verdict::Failed);
}

#[test]
fn a_cluster_on_its_way_out_is_terminating_whatever_it_says() {
    let mut object = published(&json!({}), &at_rest());
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
    assert_eq!(kstatus::verdict(&object), Verdict::Terminating);
}

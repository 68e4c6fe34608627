//! What is published, for situations in a line or two.

use etcd_operator_api::v1beta2::{EtcdCluster, Phase, Summary};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use super::{
    fixtures::{cluster, formed, lose_pod, member, nothing, now, object},
    observed::Observed,
    plan::plan,
    status::{Definition, held, status, worth_writing},
    step::Reason,
};

/// The object with the status of its first look.
fn published(seen: &Observed) -> EtcdCluster {
    again(&object(json!({})), seen)
}

/// The object with the status of one more look.
fn again(object: &EtcdCluster, seen: &Observed) -> EtcdCluster {
    let cluster = cluster(json!({}));
    let mut object = object.clone();
    object.status = Some(status(&object, &cluster, seen, &plan(&cluster, seen)));
    object
}

fn condition<'a>(object: &'a EtcdCluster, type_: &str) -> &'a Condition {
    let conditions = &object.status.as_ref().unwrap().conditions;
    conditions
        .iter()
        .find(|known| known.type_ == type_)
        .unwrap()
}

fn at_rest() -> Observed {
    formed(&cluster(json!({})), &["c-a", "c-b", "c-d"])
}

#[test]
fn a_cluster_at_rest_is_ready_available_and_honest_about_its_generation() {
    let object = published(&at_rest());
    let status = object.status.as_ref().unwrap();
    for (type_, value) in [
        ("Ready", "True"),
        ("Available", "True"),
        ("Reconciling", "False"),
        ("Stalled", "False"),
        ("Scaling", "False"),
        ("Upgrading", "False"),
        ("Recovering", "False"),
    ] {
        assert_eq!(condition(&object, type_).status, value, "{type_}");
        assert_eq!(
            condition(&object, type_).observed_generation,
            Some(1),
            "{type_}"
        );
    }
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(status.ready.as_deref(), Some("3/3"));
    assert_eq!(status.leader.as_deref(), Some("c-a"));
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(status.summary, Some(Summary::Healthy));
    assert_eq!(status.selector.as_deref(), Some("app=etcd,etcd_cluster=c"));
}

#[test]
fn the_id_of_a_cluster_is_not_taken_from_those_that_were_set_aside() {
    let mut seen = at_rest();
    seen.cluster_id = None;
    let id = |seen: &Observed| published(seen).status.unwrap().cluster_id;
    assert_eq!(id(&seen).as_deref(), Some("c1"));
    let old = seen.members["c-d"].clone();
    seen.aside.insert("c-old".to_owned(), old);
    assert_eq!(id(&seen), None);
    seen.aside.get_mut("c-old").unwrap().pod = None;
    assert_eq!(id(&seen).as_deref(), Some("c1"));
}

#[test]
fn every_known_condition_is_there_from_the_first_look_on() {
    let object = published(&nothing());
    for type_ in [
        "Ready",
        "Available",
        "Reconciling",
        "Stalled",
        "Scaling",
        "Upgrading",
        "Recovering",
    ] {
        assert!(!condition(&object, type_).message.is_empty(), "{type_}");
    }
    assert_eq!(object.status.unwrap().phase, Some(Phase::Creating));
}

#[test]
fn without_a_quorum_nothing_is_called_ready_or_available() {
    let mut seen = at_rest();
    seen.quorum = None;
    for name in ["c-a", "c-b", "c-d"] {
        lose_pod(&mut seen, name);
        member(&mut seen, name).listed = None;
    }
    let object = published(&seen);
    assert_eq!(condition(&object, "Ready").status, "False");
    assert_eq!(condition(&object, "Available").status, "False");
    assert_eq!(object.status.unwrap().ready.as_deref(), Some("0/3"));
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let first = published(&at_rest());
    let mut seen = at_rest();
    seen.now = now() + SignedDuration::from_hours(1);
    let second = again(&first, &seen);
    assert_eq!(condition(&second, "Ready").last_transition_time.0, now());
    lose_pod(&mut seen, "c-b");
    let third = again(&second, &seen);
    assert_eq!(condition(&third, "Ready").status, "False");
    assert_eq!(condition(&third, "Ready").last_transition_time.0, seen.now);
}

#[test]
fn a_look_at_rest_is_not_worth_a_write_even_while_clients_write() {
    let first = published(&at_rest());
    let mut seen = at_rest();
    seen.now = now() + SignedDuration::from_hours(1);
    for name in ["c-a", "c-b", "c-d"] {
        member(&mut seen, name).answer.as_mut().unwrap().raft_index += 1000;
    }
    let second = again(&first, &seen);
    assert!(!worth_writing(
        first.status.as_ref(),
        second.status.as_ref().unwrap(),
        Definition::Whole,
    ));
    seen.quorum.as_mut().unwrap().leader_id = member(&mut seen, "c-b").listed.as_ref().unwrap().id;
    let third = again(&second, &seen);
    assert!(worth_writing(
        second.status.as_ref(),
        third.status.as_ref().unwrap(),
        Definition::Whole,
    ));
}

#[test]
fn what_was_accepted_is_recorded_once_and_never_where_the_definition_drops_it() {
    let first = published(&at_rest());
    let recorded = first.status.clone().unwrap();
    assert_eq!(
        serde_json::to_value(recorded.accepted.as_ref().unwrap()).unwrap(),
        json!({"size": "8Gi", "peerTLS": "Auto", "clientTLS": "Off"})
    );
    let mut dropped = recorded.clone();
    dropped.accepted = None;
    for (definition, worth) in [
        (Definition::Whole, true),
        (Definition::BeforeAccepted, false),
    ] {
        assert_eq!(worth_writing(Some(&dropped), &recorded, definition), worth);
        assert!(!worth_writing(Some(&recorded), &recorded, definition));
    }
}

#[test]
fn what_is_held_says_why_and_keeps_what_was_last_seen() {
    let mut object = published(&at_rest());
    let wrong = "spec.size: must be odd";
    object.status = Some(held(&object, now(), Some(true), Reason::InvalidSpec, wrong));
    assert_eq!(condition(&object, "Stalled").status, "True");
    assert_eq!(
        condition(&object, "Stalled").message,
        "spec.size: must be odd"
    );
    assert_eq!(condition(&object, "Ready").status, "False");
    for (available, said) in [
        (Some(true), "True"),
        (Some(false), "False"),
        (None, "Unknown"),
    ] {
        object.status = Some(held(&object, now(), available, Reason::InvalidSpec, wrong));
        assert_eq!(condition(&object, "Available").status, said);
    }
    let status = object.status.unwrap();
    assert_eq!(status.member_status.len(), 3);
    assert!(status.accepted.is_some());
}

//! Options, labels, resources and volumes follow the spec.

use serde_json::json;

use super::plans;
use crate::cluster::fixtures::{cluster, formed, healthy_member, member};

#[test]
fn no_member_is_restarted_while_another_is_unwell() {
    let old = cluster(json!({}));
    let new = cluster(json!({"options": {"quotaBackend": "4Gi"}}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    assert!(
        plans(&new, &seen).starts_with("restart c-b: its configuration has changed;"),
        "{}",
        plans(&new, &seen)
    );
    member(&mut seen, "c-d").pod.as_mut().unwrap().ready = false;
    assert_eq!(
        plans(&new, &seen),
        "no step; Recovering WaitingForMembers: waiting for c-d"
    );
}

#[test]
fn the_only_member_without_a_volume_is_not_restarted() {
    let old = cluster(json!({"size": 1, "storage": {"ephemeral": true}}));
    let new = cluster(
        json!({"size": 1, "storage": {"ephemeral": true}, "options": {"quotaBackend": "4Gi"}}),
    );
    let plan = plans(&new, &formed(&old, &["c-a"]));
    assert!(plan.starts_with("no step; stalled WouldLoseData"), "{plan}");
}

#[test]
fn putting_the_spec_right_frees_a_pod_that_could_not_start() {
    let wrong = cluster(json!({"pod": {"nodeSelector": {"disk": "typo"}}}));
    let right = cluster(json!({}));
    let mut seen = formed(&wrong, &["c-a", "c-b", "c-d"]);
    for name in ["c-a", "c-d"] {
        seen.members
            .insert(name.to_owned(), healthy_member(&right, name));
    }
    member(&mut seen, "c-b").answer = None;
    member(&mut seen, "c-b").pod.as_mut().unwrap().ready = false;
    assert!(plans(&wrong, &seen).starts_with("no step; Recovering WaitingForMembers"));
    assert!(plans(&right, &seen).starts_with("restart c-b: its configuration has changed;"));
}

#[test]
fn volumes_grow_with_the_spec_while_members_serve() {
    let cluster = cluster(json!({"storage": {"size": "20Gi"}}));
    let seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    assert_eq!(
        plans(&cluster, &seen),
        "grow the claims of c-a, c-b, c-d to 20Gi; Configuring GrowingStorage: growing 3 volumes to 20Gi"
    );
}

#[test]
fn labels_and_resources_are_changed_in_place_one_member_at_a_time() {
    let old = cluster(json!({}));
    let new = cluster(json!({"pod": {
        "labels": {"team": "a"},
        "resources": {"requests": {"memory": "1Gi"}},
    }}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    assert_eq!(
        plans(&new, &seen),
        "change the pod of c-b in place; Configuring RollingConfiguration: 0 of 3 members have the new labels, annotations \
         and resources"
    );
    for name in ["c-a", "c-b", "c-d"] {
        seen.members
            .insert(name.to_owned(), healthy_member(&new, name));
    }
    assert_eq!(plans(&new, &seen), "no step; settled");
    // Resources that the node has no room for: elsewhere, perhaps.
    member(&mut seen, "c-d").pod.as_mut().unwrap().does_not_fit = true;
    assert!(plans(&new, &seen).starts_with("restart c-d: its configuration has changed;"));
}

//! From one member to two on an etcd that knows no learners.

use etcd_operator_api::ValidatedCluster;
use serde_json::json;

use super::plans;
use crate::cluster::{
    fixtures::{cluster, formed, member},
    observed::{Awaits, Observed, Start},
};

/// One member of 3.2.13, and beside it a pod that waits for this.
fn beside(waits: Awaits) -> (ValidatedCluster, Observed) {
    let cluster = cluster(json!({"version": "3.2.13"}));
    let mut seen = formed(&cluster, &["c-a", "c-n"]);
    seen.starts.remove("c-n");
    let newcomer = member(&mut seen, "c-n");
    (newcomer.listed, newcomer.answer) = (None, None);
    let pod = newcomer.pod.as_mut().unwrap();
    (pod.ready, pod.awaits) = (false, Some(waits));
    (cluster, seen)
}

#[test]
fn a_place_is_made_before_the_second_member_is_added() {
    let cluster = cluster(json!({"version": "3.2.13"}));
    let seen = formed(&cluster, &["c-a"]);
    let plan = plans(&cluster, &seen);
    assert!(plan.starts_with("make a place for c-"), "{plan}");
    assert!(
        plan.contains("; Scaling ScalingUp: 1 of 3 members"),
        "{plan}"
    );
}

#[test]
fn it_gets_its_claim_and_is_waited_for_until_only_the_word_is_missing() {
    let (cluster, mut seen) = beside(Awaits::Place);
    assert_eq!(
        plans(&cluster, &seen),
        "no step; Scaling ScalingUp: 1 of 3 members: waiting until c-n has its node, image and volume"
    );
    member(&mut seen, "c-n").claim = None;
    assert!(plans(&cluster, &seen).starts_with("prepare c-n;"));
    let (cluster, seen) = beside(Awaits::Word);
    assert!(plans(&cluster, &seen).starts_with("add c-n as a voter;"));
}

#[test]
fn it_is_not_added_before_the_first_is_well() {
    let (cluster, mut seen) = beside(Awaits::Word);
    member(&mut seen, "c-a").pod.as_mut().unwrap().ready = false;
    assert!(plans(&cluster, &seen).starts_with("no step; Scaling ScalingUp"));
}

#[test]
fn the_word_is_given_again_while_nobody_serves_and_it_has_not_started() {
    let (cluster, mut seen) = beside(Awaits::Word);
    seen.quorum = None;
    let initial_cluster = "c-a=http://c-a,c-n=http://c-n".to_owned();
    seen.starts
        .insert("c-n".to_owned(), Start::Join { initial_cluster });
    member(&mut seen, "c-a").answer = None;
    assert!(plans(&cluster, &seen).starts_with("let c-n start; Scaling ScalingUp"));
}

#[test]
fn whoever_started_without_being_added_or_is_not_wanted_any_more_is_cleared_away() {
    let (cluster_of_three, mut seen) = beside(Awaits::Word);
    let one = cluster(json!({"version": "3.2.13", "size": 1}));
    let cleared = "delete pod c-n: it is no longer a member;";
    assert!(plans(&one, &seen).starts_with(cleared));
    member(&mut seen, "c-n").pod.as_mut().unwrap().awaits = None;
    assert!(plans(&cluster_of_three, &seen).starts_with(cleared));
}

#[test]
fn a_place_made_for_an_older_spec_is_given_up_but_not_because_an_upgrade_is_asked_for_too() {
    let (_, seen) = beside(Awaits::Word);
    let other = cluster(json!({"version": "3.2.13", "options": {"quotaBackend": "1Gi"}}));
    assert!(plans(&other, &seen).starts_with("delete pod c-n"));
    let newer = cluster(json!({"version": "3.3.27"}));
    assert!(plans(&newer, &seen).starts_with("add c-n as a voter;"));
}

#[test]
fn with_a_second_member_the_third_is_added_as_ever() {
    let cluster = cluster(json!({"version": "3.2.13"}));
    let seen = formed(&cluster, &["c-a", "c-b"]);
    let plan = plans(&cluster, &seen);
    assert!(
        plan.starts_with("add c-") && plan.contains("as a voter"),
        "{plan}"
    );
    // And where learners are known, the first needs no place either.
    let new = self::cluster(json!({"version": "3.4.31"}));
    let seen = formed(&new, &["c-a"]);
    assert!(plans(&new, &seen).contains("as a learner"));
}

#[test]
fn a_leader_that_goes_without_handing_over_leaves_work_under_way_and_nothing_for_a_person() {
    let cluster = cluster(json!({"version": "3.2.13"}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    seen.quorum = None;
    assert!(plans(&cluster, &seen).starts_with("no step; stalled QuorumLost"));
    member(&mut seen, "c-a").pod.as_mut().unwrap().terminating = true;
    assert!(plans(&cluster, &seen).starts_with("no step; Recovering QuorumLost"));
}

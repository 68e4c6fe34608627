//! What was lost comes back or is replaced.

use jiff::SignedDuration;
use serde_json::json;

use super::plans;
use crate::cluster::{
    fixtures::{cluster, formed, healthy_member, lose_pod, member, now},
    observed::{Member, Observed},
};

#[test]
fn a_lost_pod_comes_back_on_its_claim_without_a_change_of_membership() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    lose_pod(&mut seen, "c-b");
    assert_eq!(
        plans(&cluster, &seen),
        "start c-b: its pod was gone; Recovering MembersMissing: starting c-b"
    );
}

#[test]
fn all_pods_lost_at_once_come_back_on_their_claims() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    for name in ["c-a", "c-b", "c-d"] {
        lose_pod(&mut seen, name);
        member(&mut seen, name).listed = None;
    }
    seen.quorum = None;
    assert_eq!(
        plans(&cluster, &seen),
        "start c-a, c-b, c-d: its pod was gone; Recovering MembersMissing: no quorum: bringing members back on their volumes"
    );
}

#[test]
fn a_lost_claim_means_remove_first() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    lose_pod(&mut seen, "c-b");
    member(&mut seen, "c-b").claim = None;
    assert_eq!(
        plans(&cluster, &seen),
        "remove c-b from the cluster: its data is lost; Recovering ReplacingMember: replacing c-b: its data is lost"
    );
}

#[test]
fn nothing_is_started_on_a_claim_that_is_being_deleted() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    lose_pod(&mut seen, "c-b");
    member(&mut seen, "c-b").claim.as_mut().unwrap().terminating = true;
    assert_eq!(
        plans(&cluster, &seen),
        "no step; Recovering WaitingForMembers: waiting for c-b"
    );
}

#[test]
fn what_is_left_of_a_removed_member_goes_pod_first() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    seen.members.insert(
        "c-x".to_owned(),
        Member {
            listed: None,
            ..healthy_member(&cluster, "c-x")
        },
    );
    assert!(plans(&cluster, &seen).starts_with("delete pod c-x: it is no longer a member;"));
    lose_pod(&mut seen, "c-x");
    assert!(plans(&cluster, &seen).starts_with("delete claim c-x: it is no longer a member;"));
}

#[test]
fn a_member_unreachable_for_longer_than_the_spec_waits_is_replaced_and_no_sooner() {
    let cluster = cluster(json!({"recovery": {"unreachableAfter": "5m"}}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    let gone = |seen: &mut Observed, minutes: i64| {
        let since = now() - SignedDuration::from_mins(minutes);
        member(seen, "c-b").answer = None;
        member(seen, "c-b").unwell_since = Some(since);
        let pod = member(seen, "c-b").pod.as_mut().unwrap();
        (pod.ready, pod.since) = (false, since);
    };
    gone(&mut seen, 4);
    let waiting = "no step; Recovering WaitingForMembers: waiting for c-b";
    assert_eq!(plans(&cluster, &seen), waiting);
    gone(&mut seen, 6);
    assert!(
        plans(&cluster, &seen)
            .starts_with("remove c-b from the cluster: it has been unreachable for too long;")
    );

    // After an outage everybody has been unready for long: patience starts when there is a quorum again,
    seen.available_since = Some(now() - SignedDuration::from_mins(1));
    assert_eq!(plans(&cluster, &seen), waiting);
    // or when the member was first seen unwell,
    seen.available_since = Some(now() - SignedDuration::from_hours(1));
    member(&mut seen, "c-b").unwell_since = None;
    assert_eq!(plans(&cluster, &seen), waiting);
    // and a process that is opening a large database is given the time its startup probe gives it.
    gone(&mut seen, 30);
    member(&mut seen, "c-b").pod.as_mut().unwrap().starting = true;
    assert_eq!(plans(&cluster, &seen), waiting);
}

#[test]
fn nothing_is_cleared_away_while_etcd_lists_a_member_that_cannot_be_placed() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    seen.quorum.as_mut().unwrap().strangers = vec![99];
    member(&mut seen, "c-d").listed = None;
    let plan = plans(&cluster, &seen);
    assert!(plan.starts_with("no step; stalled UnknownMember"), "{plan}");
}

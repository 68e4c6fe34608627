//! Who joins and who goes.

use serde_json::json;

use super::plans;
use crate::cluster::{
    fixtures::{cluster, formed, healthy_member, id_of, lose_pod, member, settle},
    names,
    observed::{ClaimFacts, Listed, Member},
};

#[test]
fn a_missing_voter_is_replaced_by_a_learner_that_is_promoted_when_it_has_caught_up() {
    let cluster = cluster(json!({}));
    let seen = formed(&cluster, &["c-a", "c-b"]);
    let newcomer = names::newcomer(&cluster, &seen);
    assert_eq!(
        plans(&cluster, &seen),
        format!(
            "add {newcomer} as a learner; Scaling ScalingUp: 2 of 3 members: adding {newcomer}"
        )
    );

    let mut seen = formed(&cluster, &["c-a", "c-b"]);
    let listed = Some(Listed {
        id: 9,
        learner: true,
        started: false,
    });
    seen.members.insert(
        "c-n".to_owned(),
        Member {
            listed,
            ..Member::default()
        },
    );
    assert!(
        plans(&cluster, &seen).starts_with("prepare c-n;"),
        "{}",
        plans(&cluster, &seen)
    );

    member(&mut seen, "c-n").claim = Some(ClaimFacts {
        uid: "u".to_owned(),
        requested: Some(8 << 30),
        ..ClaimFacts::default()
    });
    let mut seen = settle(&cluster, seen);
    assert!(
        plans(&cluster, &seen).starts_with("start c-n: it joins the cluster;"),
        "{}",
        plans(&cluster, &seen)
    );

    let mut learner = healthy_member(&cluster, "c-n");
    learner.listed = Some(Listed {
        id: 9,
        learner: true,
        started: true,
    });
    learner.answer.as_mut().unwrap().learner = true;
    learner.answer.as_mut().unwrap().membership = None;
    learner.answer.as_mut().unwrap().leader_id = id_of("c-a");
    learner.answer.as_mut().unwrap().applied_index = 10;
    seen.members.insert("c-n".to_owned(), learner);
    assert_eq!(
        plans(&cluster, &seen),
        "no step; Scaling LearnerCatchingUp: c-n is 990 entries behind the leader"
    );

    member(&mut seen, "c-n")
        .answer
        .as_mut()
        .unwrap()
        .applied_index = 999;
    assert_eq!(
        plans(&cluster, &seen),
        "promote c-n to a voter; Scaling ScalingUp: promoting c-n"
    );
}

#[test]
fn a_smaller_size_removes_one_member_and_never_the_leader() {
    let cluster = cluster(json!({"size": 3}));
    let seen = formed(&cluster, &["c-z", "c-a", "c-b", "c-d", "c-e"]);
    assert_eq!(
        plans(&cluster, &seen),
        "remove c-e from the cluster: the cluster is to be smaller; Scaling ScalingDown: 5 members, 3 wanted: removing c-e"
    );
}

#[test]
fn a_shrink_takes_the_unhealthy_member() {
    let cluster = cluster(json!({"size": 3}));
    let mut seen = formed(&cluster, &["c-z", "c-a", "c-b", "c-d", "c-e"]);
    member(&mut seen, "c-a").answer = None;
    assert!(plans(&cluster, &seen).starts_with("remove c-a from the cluster"));
}

#[test]
fn nothing_is_removed_when_the_rest_would_be_no_quorum() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    lose_pod(&mut seen, "c-b");
    member(&mut seen, "c-b").claim = None;
    member(&mut seen, "c-d").answer = None;
    assert_eq!(
        plans(&cluster, &seen),
        "no step; stalled QuorumLost: c-b cannot come back (its data is lost), but only 1 of 3 voters are healthy: nothing is removed"
    );
}

#[test]
fn a_member_that_has_started_once_is_told_of_itself_alone() {
    let cluster = cluster(json!({}));
    let seen = formed(&cluster, &["c-a", "c-b", "c-d"]);
    assert_eq!(
        seen.starts["c-b"].initial_cluster(),
        "c-b=https://c-b.c.n.svc:2380"
    );
    assert_eq!(seen.starts["c-b"].state(), "existing");
}

#[test]
fn a_young_learner_is_not_promoted_while_it_lacks_most_of_a_short_log() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &["c-a", "c-b", "c-n"]);
    for name in ["c-a", "c-b", "c-n"] {
        member(&mut seen, name).answer.as_mut().unwrap().raft_index = 100;
    }
    let learner = member(&mut seen, "c-n");
    learner.listed.as_mut().unwrap().learner = true;
    let answer = learner.answer.as_mut().unwrap();
    (answer.learner, answer.applied_index) = (true, 80);
    (answer.leader_id, answer.membership) = (id_of("c-a"), None);
    assert!(plans(&cluster, &seen).contains("c-n is 20 entries behind the leader"));
    member(&mut seen, "c-n")
        .answer
        .as_mut()
        .unwrap()
        .applied_index = 95;
    assert!(plans(&cluster, &seen).starts_with("promote c-n to a voter;"));
}

#[test]
fn an_etcd_without_learners_takes_a_voter_only_while_all_are_well_and_by_what_runs() {
    let old = cluster(json!({"version": "3.3.27"}));
    let new = cluster(json!({"version": "3.4.45"}));
    let mut seen = formed(&old, &["c-a", "c-b"]);
    for cluster in [&old, &new] {
        let plan = plans(cluster, &seen);
        assert!(
            plan.starts_with("add c-") && plan.contains("as a voter; Scaling ScalingUp"),
            "{plan}"
        );
    }
    member(&mut seen, "c-b").pod.as_mut().unwrap().ready = false;
    assert!(
        plans(&old, &seen).starts_with("no step; Recovering WaitingForMembers"),
        "{}",
        plans(&old, &seen)
    );
}

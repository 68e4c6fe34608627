//! A cluster that CoreOS's operator made: taken over, gone on with, moved onto claims.

use etcd_operator_api::{Policy, ValidatedCluster, v1beta2::BootstrapRecord};
use serde_json::{Value, json};

use super::plans;
use crate::cluster::{
    fixtures::{self, CLUSTER_ID, healthy_member, id_of, lose_pod, member, now, settle},
    observed::{Coreos, Observed, Quorum},
};

const THREE: [&str; 3] = ["c-a", "c-b", "c-d"];

/// Read as the controller reads a resource whose status CoreOS's operator wrote.
#[allow(clippy::needless_pass_by_value)] // Reads as a literal where it is called.
fn cluster(spec: Value) -> ValidatedCluster {
    let mut object = fixtures::object(spec);
    object.status = Some(
        serde_json::from_value(json!({
            "phase": "Running", "size": 3, "currentVersion": "3.5.35", "targetVersion": "",
            "members": {"ready": THREE}, "serviceName": "c-client", "clientPort": 2379,
        }))
        .unwrap(),
    );
    ValidatedCluster::new(&object, &Policy::default()).unwrap()
}

fn as_it_was() -> ValidatedCluster {
    cluster(json!({"size": 3, "version": "3.5.35"}))
}

/// What its operator left: these pods serve, and nothing is recorded.
fn left(members: &[&str]) -> Observed {
    let cluster = as_it_was();
    let mut seen = fixtures::nothing();
    seen.coreos = Some(Coreos::default());
    seen.quorum = Some(Quorum {
        cluster_id: CLUSTER_ID,
        leader_id: id_of(members[0]),
        strangers: Vec::new(),
    });
    for name in members {
        let mut found = healthy_member(&cluster, name);
        found.claim = None;
        let pod = found.pod.as_mut().unwrap();
        pod.scratch = true;
        pod.adopted = true;
        seen.members.insert((*name).to_owned(), found);
    }
    seen
}

/// The same after it was taken over.
fn taken_over(members: &[&str]) -> Observed {
    let mut seen = left(members);
    seen.bootstrap = Some(BootstrapRecord {
        token: "t".to_owned(),
        ..BootstrapRecord::default()
    });
    seen.cluster_id = Some(CLUSTER_ID);
    seen.was_ready = true;
    seen.available_since = Some(now());
    let mut seen = settle(&as_it_was(), seen);
    seen.certificates = None;
    seen
}

/// A member that has joined on a claim.
fn joined(cluster: &ValidatedCluster, seen: &mut Observed, name: &str) {
    seen.members
        .insert(name.to_owned(), healthy_member(cluster, name));
    seen.starts = crate::cluster::children::starts::desired(cluster, seen);
}

#[test]
fn what_serves_is_taken_over_as_it_is_and_then_there_is_nothing_to_do() {
    assert_eq!(
        plans(&as_it_was(), &left(&THREE)),
        "take over c-a, c-b, c-d from CoreOS's operator; Configuring TakingOver: take over c-a, c-b, c-d from CoreOS's operator"
    );
    assert_eq!(plans(&as_it_was(), &taken_over(&THREE)), "no step; settled");
    let one = cluster(json!({"size": 1, "version": "3.5.35"}));
    assert!(plans(&one, &left(&["c-a"])).starts_with("take over c-a from"));
    assert_eq!(plans(&one, &taken_over(&["c-a"])), "no step; settled");
}

#[test]
fn a_cluster_that_has_lost_a_member_is_taken_over_and_then_healed() {
    let mut seen = left(&THREE);
    lose_pod(&mut seen, "c-b");
    assert!(plans(&as_it_was(), &seen).starts_with("take over c-a, c-d from"));
    let mut seen = taken_over(&THREE);
    lose_pod(&mut seen, "c-b");
    assert!(
        plans(&as_it_was(), &seen).starts_with("remove c-b from the cluster: its data is lost")
    );
    seen.members.remove("c-b");
    assert!(plans(&as_it_was(), &seen).starts_with("add c-"));
}

#[test]
fn what_cannot_be_taken_over_is_held_with_words_and_no_step() {
    type Change<'a> = &'a dyn Fn(&mut Observed);
    let held = |change: Change| {
        let mut seen = left(&THREE);
        change(&mut seen);
        plans(&as_it_was(), &seen)
    };
    let cases: [(Change, &str); 6] = [
        (
            &|seen| {
                seen.coreos.as_mut().unwrap().in_charge = Some("op in namespace n".to_owned());
            },
            "no step; stalled OtherOperator: CoreOS's operator (op in namespace n) is at work",
        ),
        (
            &|seen| seen.members.clear(),
            "no step; stalled NothingToTakeOver: CoreOS's operator ran this cluster, and no pod",
        ),
        (
            &|seen| {
                let coreos = seen.coreos.as_mut().unwrap();
                coreos.misfits.push("pod c-a speaks `https`".to_owned());
            },
            "no step; stalled CannotTakeOver: pod c-a speaks `https`: nothing is touched",
        ),
        (
            &|seen| seen.quorum = None,
            "no step; stalled QuorumLost: no quorum of c-a, c-b, c-d answers",
        ),
        (
            &|seen| seen.quorum.as_mut().unwrap().strangers.push(7),
            "no step; stalled UnknownMember: etcd lists 1 members whose addresses",
        ),
        (
            &|seen| seen.locked_out = true,
            "no step; stalled AuthEnabled",
        ),
    ];
    for (change, words) in cases {
        let said = held(change);
        assert!(said.starts_with(words), "{said}");
    }
    let paused = cluster(json!({"size": 3, "version": "3.5.35", "paused": true}));
    assert!(plans(&paused, &left(&THREE)).starts_with("no step; stalled Paused"));
}

#[test]
fn an_operator_that_comes_back_is_left_alone_with_the_cluster_again() {
    let mut seen = taken_over(&THREE);
    lose_pod(&mut seen, "c-b");
    seen.coreos.as_mut().unwrap().in_charge = Some("op in namespace n".to_owned());
    assert!(plans(&as_it_was(), &seen).starts_with("no step; stalled OtherOperator"));
}

#[test]
fn whoever_says_so_may_start_empty_where_nothing_is_left() {
    let mut seen = left(&THREE);
    seen.members.clear();
    seen.quorum = None;
    seen.start_afresh = true;
    assert!(plans(&as_it_was(), &seen).starts_with("record the founders"));
}

#[test]
fn members_move_onto_claims_one_at_a_time_and_the_new_one_comes_first() {
    let asked = cluster(json!({"size": 3, "version": "3.5.35", "storage": {"size": "8Gi"}}));
    let mut seen = taken_over(&THREE);
    assert!(plans(&asked, &seen).starts_with("add c-"));
    joined(&asked, &mut seen, "c-n1");
    member(&mut seen, "c-n1").listed.as_mut().unwrap().learner = true;
    member(&mut seen, "c-n1").answer.as_mut().unwrap().learner = true;
    assert!(plans(&asked, &seen).starts_with("promote c-n1"));
    // As a voter it must serve before anybody leaves, and the leader leaves last.
    joined(&asked, &mut seen, "c-n1");
    assert!(
        plans(&asked, &seen)
            .starts_with("remove c-d from the cluster: the cluster is to be smaller")
    );
    member(&mut seen, "c-n1").answer = None;
    assert!(plans(&asked, &seen).contains("waiting for c-n1"));
    joined(&asked, &mut seen, "c-n1");
    seen.members.remove("c-d");
    assert!(plans(&asked, &seen).starts_with("add c-"));
    seen.members.remove("c-b");
    joined(&asked, &mut seen, "c-n2");
    joined(&asked, &mut seen, "c-n3");
    // The last leads: it hands over first.
    assert!(plans(&asked, &seen).starts_with("move leadership from c-a to c-n"));
    seen.quorum.as_mut().unwrap().leader_id = id_of("c-n2");
    assert!(plans(&asked, &seen).starts_with("remove c-a"));
    seen.members.remove("c-a");
    assert_eq!(plans(&asked, &seen), "no step; settled");
}

#[test]
fn nothing_is_begun_on_the_way_to_claims_while_somebody_is_unwell() {
    let asked = cluster(json!({"size": 3, "version": "3.5.35", "storage": {"size": "8Gi"}}));
    let mut seen = taken_over(&THREE);
    member(&mut seen, "c-b").answer = None;
    member(&mut seen, "c-b").pod.as_mut().unwrap().ready = false;
    assert!(plans(&asked, &seen).starts_with("no step; Recovering WaitingForMembers"));
}

#[test]
fn a_move_that_is_taken_back_takes_the_newcomer_back_and_nobody_else() {
    let mut seen = taken_over(&THREE);
    let asked = cluster(json!({"size": 3, "version": "3.5.35", "storage": {"size": "8Gi"}}));
    joined(&asked, &mut seen, "c-n1");
    let newcomer = member(&mut seen, "c-n1");
    newcomer.answer = None;
    newcomer.pod.as_mut().unwrap().ready = false;
    newcomer.listed.as_mut().unwrap().learner = true;
    assert!(plans(&as_it_was(), &seen).starts_with("remove c-n1"));
    member(&mut seen, "c-n1").listed.as_mut().unwrap().learner = false;
    assert!(plans(&as_it_was(), &seen).starts_with("remove c-n1"));
}

#[test]
fn a_single_member_is_followed_by_one_on_a_claim() {
    let asked = cluster(json!({"size": 1, "version": "3.5.35", "storage": {"size": "8Gi"}}));
    let mut seen = taken_over(&["c-a"]);
    assert!(plans(&asked, &seen).starts_with("add c-"));
    joined(&asked, &mut seen, "c-n1");
    assert!(plans(&asked, &seen).starts_with("move leadership from c-a to c-n1"));
    seen.quorum.as_mut().unwrap().leader_id = id_of("c-n1");
    assert!(plans(&asked, &seen).starts_with("remove c-a"));
    // Before there were learners its place is made first, and leadership is not handed over.
    let asked = cluster(json!({"size": 1, "version": "3.2.13", "storage": {"size": "8Gi"}}));
    let mut seen = taken_over(&["c-a"]);
    let old = |seen: &mut Observed, name: &str| {
        let member = member(seen, name);
        "3.2.13".clone_into(&mut member.answer.as_mut().unwrap().version);
        member.pod.as_mut().unwrap().version = Some("3.2.13".parse().unwrap());
    };
    old(&mut seen, "c-a");
    assert!(plans(&asked, &seen).starts_with("make a place for c-"));
    joined(&asked, &mut seen, "c-n1");
    old(&mut seen, "c-n1");
    assert!(plans(&asked, &seen).starts_with("remove c-a"));
}

#[test]
fn an_upgrade_changes_the_image_where_it_stands_and_one_is_back_before_the_next() {
    let asked = cluster(json!({"size": 3, "version": "3.6.16"}));
    let mut seen = taken_over(&THREE);
    assert!(plans(&asked, &seen).starts_with("change the image of c-b in place"));
    // The kubelet has not come to it yet: it still answers as what it was.
    member(&mut seen, "c-b").pod.as_mut().unwrap().version = Some(asked.version);
    let said = plans(&asked, &seen);
    assert!(
        said.starts_with("no step; Recovering WaitingForMembers: waiting for c-b"),
        "{said}"
    );
    "3.6.16".clone_into(&mut member(&mut seen, "c-b").answer.as_mut().unwrap().version);
    member(&mut seen, "c-b").pod.as_mut().unwrap().config =
        crate::cluster::children::fingerprint(&asked, "c-b");
    assert!(plans(&asked, &seen).starts_with("change the image of c-d in place"));
}

#[test]
fn the_only_member_is_never_restarted_without_a_volume() {
    let asked = cluster(json!({"size": 1, "version": "3.6.16"}));
    let said = plans(&asked, &taken_over(&["c-a"]));
    assert!(said.starts_with("no step; stalled WouldLoseData"), "{said}");
    assert!(said.contains("set `storage` or scale to 3"), "{said}");
}

#[test]
fn the_pod_of_a_member_that_has_ended_is_kept_while_it_may_hold_the_last_of_the_data() {
    let mut seen = taken_over(&["c-a"]);
    seen.quorum = None;
    let only = member(&mut seen, "c-a");
    only.answer = None;
    only.listed = None;
    let pod = only.pod.as_mut().unwrap();
    pod.ready = false;
    pod.finished = true;
    let said = plans(&cluster(json!({"size": 1, "version": "3.5.35"})), &seen);
    assert!(said.starts_with("no step; stalled QuorumLost"), "{said}");
}

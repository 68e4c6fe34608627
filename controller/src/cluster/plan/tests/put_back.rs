//! Every error state is left by putting the spec back.

use etcd_operator_api::ValidatedCluster;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::plans;
use crate::cluster::{
    fixtures::{cluster, formed, healthy_member, member, now, settle},
    observed::Observed,
};

const IMAGE: &str = "ImagePullBackOff: no such image";
const CRASH: &str = "CrashLoopBackOff: it ended";

fn one_member(version: &str) -> ValidatedCluster {
    cluster(json!({"size": 1, "version": version}))
}

/// A cluster of one that served as `served`, and whose pod of this spec does not come up.
fn alone(served: &ValidatedCluster, broken: &ValidatedCluster, trouble: &str) -> Observed {
    let mut seen = formed(broken, &["c-a"]);
    seen.last_ran = Some(served.version);
    seen.quorum = None;
    let stuck = member(&mut seen, "c-a");
    (stuck.answer, stuck.listed) = (None, None);
    stuck.claim.as_mut().unwrap().version = Some(broken.version);
    fail(&mut seen, "c-a", trouble);
    seen
}

fn fail(seen: &mut Observed, name: &str, trouble: &str) {
    let stuck = member(seen, name);
    stuck.answer = None;
    let pod = stuck.pod.as_mut().unwrap();
    (pod.ready, pod.ran) = (false, trouble == CRASH);
    pod.trouble = Some(trouble.to_owned());
}

#[test]
fn the_only_member_comes_back_as_it_was_when_its_new_version_did_not_come_up() {
    let served = one_member("3.6.16");
    for (next, trouble) in [("3.7.9", IMAGE), ("3.7.3", CRASH), ("3.6.17", IMAGE)] {
        let next = one_member(next);
        let mut seen = alone(&served, &next, trouble);
        // Written down before the first step up, and kept.
        seen.log_readable_by = Some(next.version.minor());
        let waiting = plans(&next, &seen);
        assert!(waiting.starts_with("no step; "), "{waiting}");
        assert!(waiting.contains(trouble), "{waiting}");
        assert_eq!(
            plans(&served, &seen),
            "restart c-a: it is to run another version; Recovering MembersMissing: c-a is not running and is made anew as \
             the spec has it now"
        );
        // Or forward, to a release that there is.
        let other = one_member(if next.version.minor() == served.version.minor() {
            "3.6.18"
        } else {
            "3.7.2"
        });
        assert!(plans(&other, &seen).starts_with("restart c-a: it is to run another version;"));
    }
}

#[test]
fn the_only_member_that_was_seen_to_serve_as_the_new_minor_is_not_started_as_the_old() {
    let (old, new) = (one_member("3.6.16"), one_member("3.7.3"));
    let seen = alone(&new, &new, CRASH);
    let plan = plans(&old, &seen);
    assert!(plan.starts_with("no step; "), "{plan}");
    assert!(
        plan.contains("c-a does not run and stays on 3.7.3 until it does"),
        "{plan}"
    );
}

#[test]
fn the_only_member_that_was_taken_back_too_late_may_go_up_again() {
    let (old, new) = (one_member("3.6.16"), one_member("3.7.3"));
    // It served as 3.7 for a moment that nobody saw: 3.6 ends at its start.
    let mut seen = alone(&old, &old, CRASH);
    seen.log_readable_by = Some(new.version.minor());
    let plan = plans(&new, &seen);
    assert!(plan.starts_with("no step; "), "{plan}");
    member(&mut seen, "c-a")
        .claim
        .as_mut()
        .unwrap()
        .taken_back_from = Some(new.version);
    assert!(plans(&new, &seen).starts_with("restart c-a: it is to run another version;"));
}

#[test]
fn the_first_of_three_comes_back_as_it_was_when_the_new_version_did_not_come_up() {
    let three = |version: &str| cluster(json!({"version": version}));
    for (old, new, trouble) in [
        ("3.6.16", "3.7.9", IMAGE),
        ("3.6.16", "3.7.3", CRASH),
        ("3.5.35", "3.6.99", IMAGE),
        ("3.6.10", "3.6.99", CRASH),
    ] {
        let (old, new) = (three(old), three(new));
        let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
        seen.members
            .insert("c-b".to_owned(), healthy_member(&new, "c-b"));
        fail(&mut seen, "c-b", trouble);
        let waiting = plans(&new, &seen);
        assert!(
            waiting.starts_with("no step; Recovering WaitingForMembers: waiting for c-b; c-b: "),
            "{waiting}"
        );
        assert!(plans(&old, &seen).starts_with("restart c-b: it is to run another version;"));
    }
}

#[test]
fn a_member_is_not_given_up_for_an_image_that_its_successor_would_lack_too() {
    let three = |version: &str| cluster(json!({"version": version}));
    let (old, new) = (three("3.6.16"), three("3.6.99"));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    seen.members
        .insert("c-b".to_owned(), healthy_member(&new, "c-b"));
    let since = now() - SignedDuration::from_hours(9);
    fail(&mut seen, "c-b", IMAGE);
    member(&mut seen, "c-b").unwell_since = Some(since);
    member(&mut seen, "c-b").pod.as_mut().unwrap().since = since;
    seen.available_since = Some(since);
    assert!(plans(&new, &seen).starts_with("no step; Recovering WaitingForMembers"));
    fail(&mut seen, "c-b", CRASH);
    assert!(plans(&new, &seen).starts_with("remove c-b from the cluster"));
}

/// A change of the spec under which a member does not come up.
fn changes() -> [Value; 4] {
    [
        json!({"options": {"quotaBackend": "4Gi"}}),
        json!({"pod": {"nodeSelector": {"disk": "typo"}}}),
        json!({"pod": {"resources": {"requests": {"memory": "900Ti"}}}}),
        json!({"pod": {"annotations": {"seccomp": "typo"}}}),
    ]
}

#[test]
fn a_change_under_which_a_member_does_not_come_up_is_left_by_putting_it_back() {
    for size in [1, 3] {
        let right = cluster(json!({"size": size}));
        for mut change in changes() {
            change["size"] = size.into();
            let wrong = cluster(change);
            let mut seen = if size == 1 {
                alone(&right, &wrong, "Unschedulable: no room")
            } else {
                let mut seen = formed(&right, &["c-a", "c-b", "c-d"]);
                seen.members
                    .insert("c-b".to_owned(), healthy_member(&wrong, "c-b"));
                fail(&mut seen, "c-b", "Unschedulable: no room");
                seen
            };
            let stuck = if size == 1 { "c-a" } else { "c-b" };
            let plan = plans(&wrong, &seen);
            assert!(plan.starts_with("no step; "), "{plan}");
            let freed = format!("restart {stuck}: its configuration has changed;");
            let plan = plans(&right, &seen);
            assert!(plan.starts_with(&freed), "{plan}");
            // Whoever serves is not made anew for what can be changed while it does.
            member(&mut seen, stuck).pod.as_mut().unwrap().ready = true;
            assert!(!plans(&right, &seen).starts_with(&freed) || size == 1);
        }
    }
}

#[test]
fn a_version_that_a_member_may_not_come_back_as_keeps_it_from_no_other_change() {
    let wrong = cluster(json!({"size": 1, "version": "3.7.3", "options": {"quotaBackend": "4Gi"}}));
    let seen = alone(&wrong, &wrong, CRASH);
    let plan = plans(&one_member("3.6.16"), &seen);
    assert!(
        plan.starts_with("restart c-a: its configuration has changed;"),
        "{plan}"
    );
}

#[test]
fn a_learner_that_does_not_come_up_is_made_anew_as_the_spec_is_put_right() {
    let right = cluster(json!({}));
    let wrong = cluster(json!({"pod": {"nodeSelector": {"disk": "typo"}}}));
    let mut seen = formed(&right, &["c-a", "c-b"]);
    let mut learner = healthy_member(&wrong, "c-n");
    let listed = learner.listed.as_mut().unwrap();
    (listed.learner, listed.started) = (true, false);
    seen.members.insert("c-n".to_owned(), learner);
    fail(&mut seen, "c-n", "Unschedulable: no room");
    let seen = settle(&right, seen);
    assert!(plans(&wrong, &seen).starts_with("no step; Scaling LearnerCatchingUp"));
    assert!(plans(&right, &seen).starts_with("restart c-n: its configuration has changed;"));
}

#[test]
fn founders_whose_image_there_never_was_are_made_anew_as_any_version() {
    let wrong = cluster(json!({"version": "3.7.99"}));
    let mut seen = formed(&wrong, &["c-a", "c-b", "c-d"]);
    (seen.cluster_id, seen.quorum, seen.last_ran) = (None, None, None);
    for name in ["c-a", "c-b", "c-d"] {
        member(&mut seen, name).listed = None;
        fail(&mut seen, name, IMAGE);
    }
    for version in ["3.7.3", "3.6.16", "3.4.45"] {
        let right = cluster(json!({"version": version}));
        assert!(plans(&right, &seen).starts_with("restart c-a: it is to run another version;"));
    }
    // What has run may have left something behind.
    fail(&mut seen, "c-a", CRASH);
    let right = cluster(json!({"version": "3.6.16"}));
    assert!(plans(&right, &seen).starts_with("restart c-b: it is to run another version;"));
}

#[test]
fn a_move_that_was_taken_back_before_it_was_made_is_not_made_after_all() {
    let old = cluster(json!({"version": "3.6.16"}));
    let mut seen = formed(&old, &["c-a", "c-b", "c-d"]);
    member(&mut seen, "c-b").claim.as_mut().unwrap().version = Some("3.7.3".parse().unwrap());
    assert_eq!(
        plans(&old, &seen),
        "keep c-b on 3.6.16; Upgrading RollingVersion: c-b stays on 3.6.16"
    );
}

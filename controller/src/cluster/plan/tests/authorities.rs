//! Certificate authorities change in stages, and every member takes up each before the next begins.

use jiff::Timestamp;
use serde_json::json;

use super::plans;
use crate::cluster::{
    fixtures::{cluster, formed, member, now},
    observed::{AuthorityFacts, Observed, Stage},
};

const MEMBERS: [&str; 3] = ["c-a", "c-b", "c-d"];

fn authority(stage: Stage, due: Timestamp) -> AuthorityFacts {
    AuthorityFacts {
        secret: "c-peer-ca".to_owned(),
        stage,
        due,
    }
}

/// The Secrets of every member hold this by now.
fn issued(seen: &mut Observed, stage: Stage, due: Timestamp, loads: &str) {
    let known = seen.certificates.as_mut().unwrap();
    known.authorities = vec![authority(stage, due)];
    for certificates in known.members.values_mut() {
        certificates.loads = loads.to_owned();
    }
}

fn restart_all(seen: &mut Observed, loads: &str) {
    for name in MEMBERS {
        member(seen, name).pod.as_mut().unwrap().loads = Some(loads.to_owned());
    }
}

#[test]
fn each_stage_is_taken_up_by_every_member_before_the_next_begins() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &MEMBERS);
    issued(&mut seen, Stage::Settled, now(), "first");
    assert_eq!(
        plans(&cluster, &seen),
        "c-peer-ca: a new authority is made, and trusted beside the old; Configuring RotatingAuthorities: c-peer-ca: a new \
         authority is made, and trusted beside the old"
    );
    for (stage, loads, then) in [
        (
            Stage::Announced,
            "both",
            "c-peer-ca: the new authority signs",
        ),
        (
            Stage::Switched,
            "second",
            "c-peer-ca: the old authority is trusted no more",
        ),
    ] {
        issued(&mut seen, stage, now(), loads);
        assert!(
            plans(&cluster, &seen)
                .starts_with("restart c-b: its certificate authorities have changed;"),
            "{}",
            plans(&cluster, &seen)
        );
        restart_all(&mut seen, loads);
        assert!(
            plans(&cluster, &seen).starts_with(then),
            "{}",
            plans(&cluster, &seen)
        );
    }
    issued(&mut seen, Stage::Settled, Timestamp::MAX, "alone");
    assert!(plans(&cluster, &seen).starts_with("restart c-b: its certificate"));
    restart_all(&mut seen, "alone");
    assert_eq!(plans(&cluster, &seen), "no step; settled");
}

#[test]
fn applications_are_given_the_overlap_and_the_cluster_is_settled_meanwhile() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &MEMBERS);
    issued(&mut seen, Stage::Announced, Timestamp::MAX, "both");
    restart_all(&mut seen, "both");
    assert_eq!(plans(&cluster, &seen), "no step; settled");
}

#[test]
fn pods_of_a_time_when_they_did_not_say_what_they_loaded_are_left_alone_until_something_changes() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &MEMBERS);
    for name in MEMBERS {
        member(&mut seen, name).pod.as_mut().unwrap().loads = None;
    }
    assert_eq!(plans(&cluster, &seen), "no step; settled");
    issued(&mut seen, Stage::Announced, now(), "both");
    assert!(plans(&cluster, &seen).starts_with("restart c-b: its certificate"));
}

#[test]
fn two_authorities_that_are_asked_for_together_go_together() {
    let cluster = cluster(json!({}));
    let mut seen = formed(&cluster, &MEMBERS);
    issued(&mut seen, Stage::Settled, now(), "first");
    let other = |stage, due| AuthorityFacts {
        secret: "c-client-ca".to_owned(),
        ..authority(stage, due)
    };
    let known = seen.certificates.as_mut().unwrap();
    known.authorities.push(other(Stage::Settled, now()));
    let plan = plans(&cluster, &seen);
    assert!(
        plan.contains("c-peer-ca: a new") && plan.contains("c-client-ca: a new"),
        "{plan}"
    );
    // One that has begun is not joined half-way.
    let known = seen.certificates.as_mut().unwrap();
    known.authorities[1] = other(Stage::Announced, now());
    let plan = plans(&cluster, &seen);
    assert!(
        plan.starts_with("c-client-ca: the new authority signs") && !plan.contains("c-peer-ca"),
        "{plan}"
    );
}

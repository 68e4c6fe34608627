//! Renewal and rotation as tables over passed-in time, and a walk with a clock that jumps.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use etcd_operator_certs::{
    AuthoritySet, CertificateAuthority, Jitter, LeafRequest, RotationPolicy, RotationStep, Seen,
    Usage, Validity, certificates_in, renew_at, verify_server,
};
use jiff::Timestamp;

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn policy() -> RotationPolicy {
    RotationPolicy {
        authority_lifetime: DAY * 300,
        announce_for: Duration::from_mins(5),
        retain_for: HOUR,
    }
}

fn settled(now: Timestamp) -> AuthoritySet {
    AuthoritySet::new(CertificateAuthority::generate("ca@0", now, DAY * 300).unwrap())
}

#[test]
fn a_certificate_is_renewed_at_two_thirds_of_its_life_or_a_little_earlier() {
    let validity = Validity {
        not_before: at("2026-01-01T00:00:00Z"),
        not_after: at("2026-01-31T00:00:00Z"),
    };
    for (jitter, expected) in [
        (0.0, "2026-01-21T00:00:00Z"),
        (0.5, "2026-01-19T12:00:00Z"),
        (1.0, "2026-01-18T00:00:00Z"),
        (7.0, "2026-01-18T00:00:00Z"),
        (-7.0, "2026-01-21T00:00:00Z"),
        (f64::NAN, "2026-01-21T00:00:00Z"),
    ] {
        let due = renew_at(validity, Jitter::new(jitter));
        let off = due.duration_since(at(expected)).as_secs().abs();
        assert!(off <= 1, "{jitter}: {due}");
    }
}

#[test]
fn dates_the_wrong_way_round_are_renewed_at_once_rather_than_panic() {
    let validity = Validity {
        not_before: at("2026-02-01T00:00:00Z"),
        not_after: at("2026-01-01T00:00:00Z"),
    };
    assert_eq!(renew_at(validity, Jitter::NONE), at("2026-02-01T00:00:00Z"));
}

#[test]
fn each_phase_takes_its_step_when_due_and_not_before() {
    let start = at("2026-01-01T00:00:00Z");
    let step =
        |set: &AuthoritySet, now: Timestamp, seen| set.step(now, seen, &policy(), Jitter::NONE);
    let waits = |step| matches!(step, RotationStep::Wait { .. });

    let set = settled(start);
    assert!(waits(step(&set, start, Seen::Everywhere)));
    assert!(waits(step(&set, start + DAY * 199, Seen::Everywhere)));
    assert_eq!(
        step(&set, start + DAY * 201, Seen::NotYet),
        RotationStep::Announce
    );
    assert_eq!(
        step(&set, start + DAY * 301, Seen::Everywhere),
        RotationStep::Replace
    );

    let announced = start + DAY * 201;
    let set = set
        .take(RotationStep::Announce, "ca@1", announced, &policy())
        .unwrap();
    let minute = Duration::from_mins(1);
    assert!(waits(step(&set, announced + minute, Seen::Everywhere)));
    assert!(waits(step(&set, announced + minute * 6, Seen::NotYet)));
    assert_eq!(
        step(&set, announced + minute * 6, Seen::Everywhere),
        RotationStep::Switch
    );
    assert_eq!(
        step(&set, start + DAY * 301, Seen::NotYet),
        RotationStep::Switch
    );

    let switched = announced + minute * 6;
    let set = set
        .take(RotationStep::Switch, "-", switched, &policy())
        .unwrap();
    assert!(waits(step(&set, switched + minute, Seen::Everywhere)));
    assert_eq!(
        step(&set, switched + HOUR, Seen::NotYet),
        RotationStep::DropPrevious
    );
    // The clock was set back by a day: the switch lies in the future.
    assert_eq!(
        step(&set, switched.checked_sub(DAY).unwrap(), Seen::Everywhere),
        RotationStep::DropPrevious
    );
}

#[test]
fn a_step_that_does_not_fit_the_phase_changes_nothing() {
    let start = at("2026-01-01T00:00:00Z");
    let set = settled(start);
    let before = set.bundle_pem();
    let set = set
        .take(RotationStep::Switch, "x", start, &policy())
        .unwrap();
    let set = set
        .take(RotationStep::DropPrevious, "x", start, &policy())
        .unwrap();
    assert_eq!(set.bundle_pem(), before);
}

/// Two replicas: one has the newest leaf, the other is one step behind. Whatever is published, and whatever was published one step
/// earlier, both verify: that is what "no gap" means.
#[test]
fn through_a_whole_rotation_with_a_jumping_clock_every_leaf_in_use_verifies_against_every_bundle_in_use()
 {
    let start = at("2026-01-01T00:00:00Z");
    let mut now = start;
    let mut set = settled(start);
    let request = LeafRequest {
        common_name: "webhook".to_owned(),
        names: vec!["w.ns.svc".parse().unwrap()],
        usage: Usage::Server,
        lifetime: DAY * 30,
    };
    let mut leaf_before = set.signer().issue(&request, now).unwrap();
    let mut bundle_before = set.bundle_pem();
    let mut steps = Vec::new();
    let jumps = [Duration::from_secs(1), HOUR, DAY, DAY * 3, Duration::ZERO];
    for turn in 0..4000 {
        now += jumps[turn % jumps.len()];
        let step = set.step(now, Seen::Everywhere, &policy(), Jitter::new(0.3));
        set = set
            .take(step, &format!("ca@{turn}"), now, &policy())
            .unwrap();
        if !matches!(step, RotationStep::Wait { .. }) {
            steps.push(step);
        }
        let leaf = set.signer().issue(&request, now).unwrap();
        let bundle = set.bundle_pem();
        assert!(certificates_in(bundle.as_bytes()).unwrap().len() <= 2);
        let fits = |leaf: &etcd_operator_certs::Leaf, bundle: &str| {
            verify_server(leaf.chain(), bundle.as_bytes(), "w.ns.svc", now)
        };
        fits(&leaf, &bundle).unwrap_or_else(|e| panic!("{turn} {step:?}: new, new: {e}"));
        fits(&leaf, &bundle_before).unwrap_or_else(|e| panic!("{turn} {step:?}: new, old: {e}"));
        fits(&leaf_before, &bundle).unwrap_or_else(|e| panic!("{turn} {step:?}: old, new: {e}"));
        leaf_before = leaf;
        bundle_before = bundle;
    }
    let expected = [
        RotationStep::Announce,
        RotationStep::Switch,
        RotationStep::DropPrevious,
    ];
    assert!(steps.len() >= 9, "{steps:?}");
    for (index, step) in steps.iter().enumerate() {
        assert_eq!(*step, expected[index % 3], "{steps:?}");
    }
}

//! What an authority issues, read back and verified with the code a handshake uses.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use etcd_operator_certs::{
    CertError, CertificateAuthority, Leaf, LeafRequest, Name, Usage, inspect, verify_client,
    verify_server,
};
use jiff::Timestamp;

const DAY: Duration = Duration::from_hours(24);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn start() -> Timestamp {
    at("2026-03-01T12:00:00Z")
}

fn authority(subject: &str) -> CertificateAuthority {
    CertificateAuthority::generate(subject, start(), DAY * 365).unwrap()
}

fn request(usage: Usage, lifetime: Duration) -> LeafRequest {
    LeafRequest {
        common_name: "member".to_owned(),
        names: ["c-abc.c.ns.svc", "*.c.ns.svc", "127.0.0.1", "::1"]
            .iter()
            .map(|name| name.parse().unwrap())
            .collect(),
        usage,
        lifetime,
    }
}

#[test]
fn a_leaf_says_the_names_and_dates_that_were_asked_for() {
    let leaf = authority("a")
        .issue(&request(Usage::Peer, DAY), start())
        .unwrap();
    let read = inspect(&leaf.chain()[0]).unwrap();
    assert_eq!(read.names, request(Usage::Peer, DAY).names);
    assert_eq!(read.subject, "CN=member");
    assert_eq!(read.issuer, "CN=a");
    assert!(!read.is_authority);
    assert_eq!(read.validity.not_before, at("2026-03-01T11:50:00Z"));
    assert_eq!(read.validity.not_after, at("2026-03-02T12:00:00Z"));
    assert_eq!(leaf.validity(), read.validity);
}

#[test]
fn each_usage_verifies_where_it_should_and_nowhere_else() {
    let authority = authority("a");
    let bundle = authority.certificate_pem().as_bytes();
    for (usage, as_server, as_client) in [
        (Usage::Server, true, false),
        (Usage::Client, false, true),
        (Usage::Peer, true, true),
    ] {
        let leaf = authority.issue(&request(usage, DAY), start()).unwrap();
        let server = verify_server(leaf.chain(), bundle, "c-abc.c.ns.svc", start());
        let client = verify_client(leaf.chain(), bundle, start());
        assert_eq!(server.is_ok(), as_server, "{usage:?}: {server:?}");
        assert_eq!(client.is_ok(), as_client, "{usage:?}: {client:?}");
    }
}

#[test]
fn a_leaf_verifies_for_its_own_names_its_own_time_and_its_own_authority() {
    let (ours, other) = (authority("a"), authority("a"));
    let leaf = ours.issue(&request(Usage::Server, DAY), start()).unwrap();
    let check = |bundle: &str, name: &str, now: &str| {
        verify_server(leaf.chain(), bundle.as_bytes(), name, at(now)).is_ok()
    };
    let (good, bad) = (ours.certificate_pem(), other.certificate_pem());
    let both = format!("{bad}{good}");
    for (bundle, name, now, accepted) in [
        (good, "c-abc.c.ns.svc", "2026-03-01T12:00:00Z", true),
        (good, "any.c.ns.svc", "2026-03-01T12:00:00Z", true),
        (good, "127.0.0.1", "2026-03-01T12:00:00Z", true),
        (good, "::1", "2026-03-01T12:00:00Z", true),
        (good, "c.ns.svc", "2026-03-01T12:00:00Z", false),
        (good, "127.0.0.2", "2026-03-01T12:00:00Z", false),
        (good, "c-abc.c.ns.svc", "2026-03-01T11:49:00Z", false),
        (good, "c-abc.c.ns.svc", "2026-03-02T12:00:01Z", false),
        (bad, "c-abc.c.ns.svc", "2026-03-01T12:00:00Z", false),
        (&both, "c-abc.c.ns.svc", "2026-03-01T12:00:00Z", true),
    ] {
        assert_eq!(check(bundle, name, now), accepted, "{name} at {now}");
    }
}

#[test]
fn a_leaf_never_outlives_its_authority() {
    let leaf = authority("a")
        .issue(&request(Usage::Server, DAY * 9999), start())
        .unwrap();
    assert_eq!(leaf.validity().not_after, start() + DAY * 365);
}

#[test]
fn an_expired_authority_issues_nothing() {
    let late = start() + DAY * 366;
    let error = authority("a").issue(&request(Usage::Server, DAY), late);
    assert!(matches!(error, Err(CertError::AuthorityExpired(_))));
}

#[test]
fn an_authority_read_back_signs_what_the_original_verifies() {
    let original = authority("a");
    let read =
        CertificateAuthority::from_pem(original.certificate_pem(), &original.key_pem()).unwrap();
    assert_eq!(read.validity(), original.validity());
    assert_eq!(read.made_at(), start());
    let leaf = read.issue(&request(Usage::Server, DAY), start()).unwrap();
    let bundle = original.certificate_pem().as_bytes();
    verify_server(leaf.chain(), bundle, "c-abc.c.ns.svc", start()).unwrap();
}

#[test]
fn broken_pairs_are_refused_each_with_its_own_reason() {
    let (a, b) = (authority("a"), authority("b"));
    let leaf = a.issue(&request(Usage::Server, DAY), start()).unwrap();
    let load = CertificateAuthority::from_pem;
    assert!(matches!(
        load(a.certificate_pem(), &b.key_pem()),
        Err(CertError::KeyMismatch)
    ));
    assert!(matches!(
        load(leaf.certificate_pem(), leaf.key_pem()),
        Err(CertError::NotAnAuthority)
    ));
    assert!(matches!(
        load("", &a.key_pem()),
        Err(CertError::EmptyBundle)
    ));
    assert!(matches!(
        load(a.certificate_pem(), "no key"),
        Err(CertError::KeyPem(_))
    ));
    assert!(matches!(
        load(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &a.key_pem()
        ),
        Err(CertError::Parse(_))
    ));
    assert!(matches!(
        Leaf::from_pem(leaf.certificate_pem(), &b.key_pem()),
        Err(CertError::KeyMismatch)
    ));
}

#[test]
fn names_are_checked_before_they_are_signed() {
    for accepted in ["a", "a.b", "*.b.c", "10.0.0.1", "fe80::1", "under_score.x"] {
        assert!(accepted.parse::<Name>().is_ok(), "{accepted}");
    }
    let long = "x".repeat(64);
    for refused in [
        "",
        "a..b",
        "-a",
        "a-",
        "a b",
        "ü.de",
        "a.*.b",
        long.as_str(),
    ] {
        assert!(refused.parse::<Name>().is_err(), "{refused}");
    }
    let nameless = LeafRequest {
        names: Vec::new(),
        ..request(Usage::Server, DAY)
    };
    let error = authority("a").issue(&nameless, start());
    assert!(matches!(error, Err(CertError::NoName)));
}

#[test]
fn debug_output_never_shows_a_key() {
    let authority = authority("a");
    let leaf = authority
        .issue(&request(Usage::Server, DAY), start())
        .unwrap();
    let text = format!("{authority:?} {leaf:?}");
    assert!(!text.contains("PRIVATE") && !text.contains("key"), "{text}");
}

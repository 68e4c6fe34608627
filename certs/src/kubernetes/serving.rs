//! Which leaf to serve and whether it would be believed: pure decisions of the keeper, from what it has and what the places hold.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use super::bundle::{Place, Trust};
use crate::{AuthoritySet, Jitter, Leaf, Seen, certificates_in, renew_at, verify_server};

/// Whether every place exists and holds the whole bundle.
pub(super) fn seen(set: &AuthoritySet, trust: &BTreeMap<Place, Option<Trust>>) -> Seen {
    let bundle = set.bundle_pem();
    let held = |trust: &Option<Trust>| trust.as_ref().is_some_and(|t| t.holds(bundle.as_bytes()));
    if trust.values().all(held) {
        Seen::Everywhere
    } else {
        Seen::NotYet
    }
}

/// A leaf is replaced when its time has come, or when another authority signs now; the latter only once every place that calls us
/// trusts that authority, unless the old leaf is worth nothing any more.
pub(super) fn leaf_is_due(
    leaf: &Leaf,
    leaf_signer: &str,
    set: &AuthoritySet,
    trust: &BTreeMap<Place, Option<Trust>>,
    now: Timestamp,
    jitter: Jitter,
) -> bool {
    let signer = set.signer();
    if leaf_signer == signer.certificate_pem() {
        // A clock that was set back makes a leaf that is not valid yet.
        return now >= renew_at(leaf.validity(), jitter) || !leaf.validity().contains(now);
    }
    let trusts_signer = |bundle: &[u8]| {
        certificates_in(bundle).is_ok_and(|held| held.iter().any(|c| c == signer.certificate()))
    };
    let trusted = trust
        .values()
        .flatten()
        .flat_map(Trust::bundles)
        .all(trusts_signer);
    trusted || !leaf.validity().contains(now)
}

/// Why an API server could not verify `chain`, place by place; none when all can.
pub(super) fn problem(
    chain: &[CertificateDer<'_>],
    server_name: &str,
    trust: &BTreeMap<Place, Option<Trust>>,
    now: Timestamp,
) -> Option<String> {
    let mut problems = Vec::new();
    for (place, trust) in trust {
        let Some(trust) = trust else {
            problems.push(format!("{place} does not exist or was not read yet"));
            continue;
        };
        let refused = trust
            .bundles()
            .find_map(|bundle| verify_server(chain, bundle, server_name, now).err());
        if let Some(error) = refused {
            problems.push(format!("{place} does not trust this server: {error}"));
        }
    }
    (!problems.is_empty()).then(|| problems.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CertificateAuthority, LeafRequest, RotationPolicy, RotationStep, Usage,
        kubernetes::bundle::Trusting,
    };
    use k8s_openapi::ByteString;
    use serde_json::json;
    use std::time::Duration;

    const NAME: &str = "w.ns.svc";

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn settled() -> AuthoritySet {
        let life = Duration::from_hours(24 * 365);
        AuthoritySet::new(CertificateAuthority::generate("ca@0", now(), life).unwrap())
    }

    fn leaf(set: &AuthoritySet) -> Leaf {
        let request = LeafRequest {
            common_name: NAME.to_owned(),
            names: vec![NAME.parse().unwrap()],
            usage: Usage::Server,
            lifetime: Duration::from_hours(24),
        };
        set.signer().issue(&request, now()).unwrap()
    }

    fn place() -> Place {
        Place::MutatingWebhookConfiguration("m".to_owned())
    }

    fn holding(bundle: &str) -> BTreeMap<Place, Option<Trust>> {
        let bundle = ByteString(bundle.as_bytes().to_vec());
        let object: Trusting = serde_json::from_value(json!({
            "metadata": {"name": "m"},
            "webhooks": [{"name": "a", "clientConfig": {"caBundle": bundle}}],
        }))
        .unwrap();
        BTreeMap::from([(place(), Some(Trust::of(&object, NAME)))])
    }

    #[test]
    fn ready_means_that_the_leaf_verifies_against_what_each_place_holds() {
        let set = settled();
        let leaf = leaf(&set);
        assert_eq!(
            problem(leaf.chain(), NAME, &holding(&set.bundle_pem()), now()),
            None
        );
        let other = settled().bundle_pem();
        for (trust, word) in [
            (holding(""), "does not trust"),
            (holding("garbage"), "does not trust"),
            (holding(&other), "does not trust"),
            (BTreeMap::from([(place(), None)]), "does not exist"),
        ] {
            let told = problem(leaf.chain(), NAME, &trust, now()).unwrap();
            assert!(told.contains(word), "{told}");
            assert!(told.contains("MutatingWebhookConfiguration m"), "{told}");
        }
        let late = now() + Duration::from_hours(25);
        assert!(problem(leaf.chain(), NAME, &holding(&set.bundle_pem()), late).is_some());
    }

    #[test]
    fn a_leaf_is_renewed_by_wall_clock_forwards_and_backwards() {
        let set = settled();
        let leaf = leaf(&set);
        let trust = holding(&set.bundle_pem());
        let signer = set.signer().certificate_pem();
        let due = |at| leaf_is_due(&leaf, signer, &set, &trust, at, Jitter::NONE);
        assert!(!due(now()));
        assert!(!due(now() + Duration::from_hours(15)));
        assert!(due(now() + Duration::from_hours(17)));
        assert!(due(now() + Duration::from_hours(9999)));
        assert!(due(now().checked_sub(Duration::from_hours(1)).unwrap()));
    }

    #[test]
    fn a_new_authority_signs_the_leaf_only_once_every_place_trusts_it() {
        let policy = RotationPolicy::default();
        let old = settled();
        let served = leaf(&old);
        let old_signer = old.signer().certificate_pem().to_owned();
        let old_bundle = old.bundle_pem();
        let set = old
            .take(RotationStep::Announce, "ca@1", now(), &policy)
            .unwrap()
            .take(RotationStep::Switch, "-", now(), &policy)
            .unwrap();
        let due = |bundle: &str, at| {
            leaf_is_due(
                &served,
                &old_signer,
                &set,
                &holding(bundle),
                at,
                Jitter::NONE,
            )
        };
        assert!(!due(&old_bundle, now()));
        assert!(due(&set.bundle_pem(), now()));
        assert!(due(&old_bundle, now() + Duration::from_hours(25)));
        assert_eq!(seen(&set, &holding(&old_bundle)), Seen::NotYet);
        assert_eq!(seen(&set, &holding(&set.bundle_pem())), Seen::Everywhere);
    }
}

//! The Secrets that an object names: whether they are there, hold their keys, and hold a certificate that will do. What is read of a
//! Secret is judged and forgotten; a warning tells names of keys and of hosts and dates, never a value.

use etcd_operator_api::Warning;
use etcd_operator_api::v1beta2::{EtcdCluster, TlsMode};
use etcd_operator_api::validated::SecretKeys;
use etcd_operator_certs::{CertError, Pair, verify_server};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Found, SecretData, Surroundings, warning};

/// A Secret that a spec names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) field: &'static str,
    pub(super) secret: String,
    pub(super) holds: Holds,
}

/// What it must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// All of these keys.
    Keys(&'static [&'static str]),
    /// One of these keys, either of which will do.
    OneOf(&'static [&'static str]),
    /// A certificate that a server of all these names can show; no name means that a client shows it.
    Certificate {
        keys: SecretKeys,
        names: Vec<String>,
    },
}

/// What is wrong with the Secrets of a cluster; after a change, with those that it names anew.
pub(super) async fn of_cluster(
    cluster: &EtcdCluster,
    old: Option<&EtcdCluster>,
    around: &dyn Surroundings,
    now: Timestamp,
) -> Vec<Warning> {
    let before = old.map(named_by).unwrap_or_default();
    let mut named = named_by(cluster);
    named.retain(|named| !before.contains(named));
    let namespace = cluster.namespace().unwrap_or_default();
    all(&named, &namespace, around, now).await
}

/// All at once, and what is wrong in the order of the fields.
pub(super) async fn all(
    named: &[Named],
    namespace: &str,
    around: &dyn Surroundings,
    now: Timestamp,
) -> Vec<Warning> {
    let looks = named.iter().map(|named| async move {
        let found = around.secret(namespace, &named.secret).await;
        judge(named, &found, now).map(|why| warning(named.field, why))
    });
    let found = futures::future::join_all(looks).await;
    found.into_iter().flatten().collect()
}

/// The Secrets a cluster names.
fn named_by(cluster: &EtcdCluster) -> Vec<Named> {
    let name = cluster.name_any();
    let namespace = cluster.namespace().unwrap_or_default();
    // Members are called `<cluster>-<suffix>`, and no suffix is known beforehand: only a wildcard names them all.
    let members = format!("*.{name}.{namespace}.svc");
    let service = format!("{name}-client.{namespace}.svc");
    let certificate = |field, secret: Option<&String>, keys, names: &[&String]| {
        let secret = secret.filter(|secret| !secret.is_empty())?;
        Some(Named {
            field,
            secret: secret.clone(),
            holds: Holds::Certificate {
                keys,
                names: names.iter().map(ToString::to_string).collect(),
            },
        })
    };
    let security = cluster.spec.security.as_ref();
    let of_secret = |mode: Option<TlsMode>| !matches!(mode, Some(TlsMode::Auto | TlsMode::Off));
    let peer = security.and_then(|security| security.peer_tls.as_ref());
    let client = security.and_then(|security| security.client_tls.as_ref());
    let fixed = cluster
        .spec
        .tls
        .as_ref()
        .and_then(|tls| tls.static_.as_ref());
    let member = fixed.and_then(|fixed| fixed.member.as_ref());
    [
        certificate(
            "spec.security.peerTLS.secretName",
            peer.filter(|peer| of_secret(peer.mode))
                .and_then(|peer| peer.secret_name.as_ref()),
            SecretKeys::STANDARD,
            &[&members],
        ),
        certificate(
            "spec.security.clientTLS.secretName",
            client
                .filter(|client| of_secret(client.mode))
                .and_then(|client| client.secret_name.as_ref()),
            SecretKeys::STANDARD,
            &[&members, &service],
        ),
        certificate(
            "spec.TLS.static.member.peerSecret",
            member.and_then(|member| member.peer_secret.as_ref()),
            SecretKeys::COREOS_PEER,
            &[&members],
        ),
        certificate(
            "spec.TLS.static.member.serverSecret",
            member.and_then(|member| member.server_secret.as_ref()),
            SecretKeys::COREOS_SERVER,
            &[&members, &service],
        ),
        certificate(
            "spec.TLS.static.operatorSecret",
            fixed.and_then(|fixed| fixed.operator_secret.as_ref()),
            SecretKeys::COREOS_OPERATOR,
            &[],
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What is wrong with a Secret, the first thing that a person would mend first.
fn judge(named: &Named, found: &Found<SecretData>, now: Timestamp) -> Option<String> {
    let secret = &named.secret;
    let data = match found {
        Found::Unknown => return None,
        Found::No => return Some(format!("Secret `{secret}` does not exist (yet)")),
        Found::Yes(data) => data,
    };
    let has = |key: &&str| data.get(*key).is_some_and(|value| !value.is_empty());
    let missing = |keys: &[&'static str]| -> Vec<&str> {
        keys.iter().copied().filter(|key| !has(key)).collect()
    };
    let quoted = |keys: &[&str], between: &str| {
        let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        quoted.join(between)
    };
    match &named.holds {
        Holds::Keys(keys) => {
            let missing = missing(keys);
            (!missing.is_empty())
                .then(|| format!("Secret `{secret}` has no {}", quoted(&missing, ", ")))
        }
        Holds::OneOf(keys) => (!keys.iter().any(has))
            .then(|| format!("Secret `{secret}` has neither {}", quoted(keys, " nor "))),
        Holds::Certificate { keys, names } => {
            let missing = missing(&[keys.certificate, keys.key, keys.authority]);
            if !missing.is_empty() {
                return Some(format!(
                    "Secret `{secret}` has no {}",
                    quoted(&missing, ", ")
                ));
            }
            let part = |key: &str| data.get(key).map(Vec::as_slice).unwrap_or_default();
            certificate(
                part(keys.certificate),
                part(keys.key),
                part(keys.authority),
                names,
                now,
            )
            .err()
            .map(|why| format!("Secret `{secret}`: {why}"))
        }
    }
}

/// Why a certificate will not do, in few words: a warning is cut at 120 characters.
fn certificate(
    certificate: &[u8],
    key: &[u8],
    authority: &[u8],
    names: &[String],
    now: Timestamp,
) -> Result<(), String> {
    let pair = Pair::from_pem(certificate, key).map_err(|error| match error {
        CertError::KeyMismatch => "its key does not belong to its certificate".to_owned(),
        error => error.to_string(),
    })?;
    let validity = pair.validity();
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    if now > validity.not_after {
        return Err(format!(
            "its certificate expired on {}",
            day(validity.not_after)
        ));
    }
    if now < validity.not_before {
        return Err(format!(
            "its certificate counts only from {}",
            day(validity.not_before)
        ));
    }
    for name in names {
        // A host that the wildcard would cover: a certificate that lists such hosts one by one names no future member.
        let host = name.replacen('*', "any-member", 1);
        pair.is_for(&host, now).map_err(|error| match error {
            CertError::NotForName(_) => format!("its certificate does not name `{name}`"),
            error => error.to_string(),
        })?;
        verify_server(pair.chain(), authority, &host, now).map_err(|error| match error {
            CertError::Untrusted(_) => {
                "its certificate does not verify against its own authority".to_owned()
            }
            error => format!("its authority: {error}"),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd_operator_certs::{CertificateAuthority, Leaf, LeafRequest, Usage};
    use serde_json::json;
    use std::time::Duration;

    const LIFE: Duration = Duration::from_hours(24 * 30);

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn authority() -> CertificateAuthority {
        CertificateAuthority::generate("ca", now(), LIFE).unwrap()
    }

    fn leaf(authority: &CertificateAuthority, names: &[&str], lifetime: Duration) -> Leaf {
        let request = LeafRequest {
            common_name: "etcd".to_owned(),
            names: names.iter().map(|name| name.parse().unwrap()).collect(),
            usage: Usage::Peer,
            lifetime,
        };
        authority.issue(&request, now()).unwrap()
    }

    fn secret(certificate: &str, key: &str, authority: &str) -> SecretData {
        [
            ("tls.crt", certificate),
            ("tls.key", key),
            ("ca.crt", authority),
        ]
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .into()
    }

    fn of(leaf: &Leaf, authority: &CertificateAuthority) -> SecretData {
        secret(
            leaf.certificate_pem(),
            leaf.key_pem(),
            authority.certificate_pem(),
        )
    }

    fn peer() -> Named {
        let spec = json!({"security": {"peerTLS": {"secretName": "p"}}});
        named_by(&cluster(&spec)).remove(0)
    }

    fn cluster(spec: &serde_json::Value) -> EtcdCluster {
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": spec}))
            .unwrap()
    }

    fn accepts(data: SecretData) {
        assert_eq!(judge(&peer(), &Found::Yes(data), now()), None);
    }

    fn warns(found: &Found<SecretData>, words: &str) {
        let told = judge(&peer(), found, now()).unwrap_or_default();
        assert!(told.contains(words), "`{words}` is not in `{told}`");
    }

    #[test]
    fn a_certificate_for_every_member_will_do() {
        let ca = authority();
        accepts(of(&leaf(&ca, &["*.c.ns.svc"], LIFE), &ca));
        accepts(of(
            &leaf(&ca, &["elsewhere.example", "*.c.ns.svc"], LIFE),
            &ca,
        ));
    }

    #[test]
    fn a_secret_that_is_missing_or_lacks_its_keys_is_told_with_their_names() {
        let ca = authority();
        let whole = of(&leaf(&ca, &["*.c.ns.svc"], LIFE), &ca);
        warns(&Found::No, "Secret `p` does not exist (yet)");
        warns(
            &Found::Yes(SecretData::new()),
            "Secret `p` has no `tls.crt`, `tls.key`, `ca.crt`",
        );
        let mut part = whole.clone();
        part.remove("ca.crt");
        warns(&Found::Yes(part.clone()), "Secret `p` has no `ca.crt`");
        part.insert("ca.crt".to_owned(), Vec::new());
        warns(&Found::Yes(part), "has no `ca.crt`");
        assert_eq!(judge(&peer(), &Found::Unknown, now()), None);
    }

    #[test]
    fn a_certificate_that_will_not_do_is_told_with_the_reason() {
        let (ca, other) = (authority(), authority());
        let good = leaf(&ca, &["*.c.ns.svc"], LIFE);
        let good_too = leaf(&ca, &["*.c.ns.svc"], LIFE);
        for (data, words) in [
            (
                of(&leaf(&ca, &["*.other.ns.svc"], LIFE), &ca),
                "does not name `*.c.ns.svc`",
            ),
            (
                of(&leaf(&ca, &["c-abcde.c.ns.svc"], LIFE), &ca),
                "does not name `*.c.ns.svc`",
            ),
            (
                of(&good, &other),
                "does not verify against its own authority",
            ),
            (
                secret(
                    good.certificate_pem(),
                    good_too.key_pem(),
                    ca.certificate_pem(),
                ),
                "its key does not belong",
            ),
            (
                secret("garbage", good.key_pem(), ca.certificate_pem()),
                "no certificate",
            ),
            (
                secret(good.certificate_pem(), "garbage", ca.certificate_pem()),
                "not a private key",
            ),
            (
                secret(good.certificate_pem(), good.key_pem(), "garbage"),
                "its authority: no certificate",
            ),
        ] {
            warns(&Found::Yes(data), words);
        }
        let day = Duration::from_hours(24);
        let short = Found::Yes(of(&leaf(&ca, &["*.c.ns.svc"], day), &ca));
        let at = |at: Timestamp| judge(&peer(), &short, at).unwrap_or_default();
        assert_eq!(
            at(now() + day + day),
            "Secret `p`: its certificate expired on 2026-03-02"
        );
        assert_eq!(
            at(now().checked_sub(day).unwrap()),
            "Secret `p`: its certificate counts only from 2026-03-01"
        );
    }

    #[test]
    fn no_warning_ever_tells_what_a_secret_holds() {
        let ca = authority();
        let good = leaf(&ca, &["*.c.ns.svc"], LIFE);
        let hidden = "c2VjcmV0IHZhbHVlIG9mIHNvbWVib2R5";
        for data in [
            secret(hidden, good.key_pem(), ca.certificate_pem()),
            secret(good.certificate_pem(), hidden, ca.certificate_pem()),
            secret(good.certificate_pem(), good.key_pem(), hidden),
        ] {
            let told = judge(&peer(), &Found::Yes(data), now()).unwrap();
            assert!(!told.contains(hidden), "{told}");
        }
    }

    #[test]
    fn every_secret_a_cluster_names_is_looked_at() {
        let fields = |spec: serde_json::Value| -> Vec<(&str, String)> {
            let named = named_by(&cluster(&spec)).into_iter();
            named.map(|named| (named.field, named.secret)).collect()
        };
        assert_eq!(fields(json!({})), []);
        assert_eq!(
            fields(
                json!({"security": {"peerTLS": {"mode": "Secret", "secretName": "p"}, "clientTLS": {"secretName": "s"}}})
            ),
            [
                ("spec.security.peerTLS.secretName", "p".to_owned()),
                ("spec.security.clientTLS.secretName", "s".to_owned())
            ]
        );
        assert_eq!(
            fields(
                json!({"TLS": {"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}})
            ),
            [
                ("spec.TLS.static.member.peerSecret", "p".to_owned()),
                ("spec.TLS.static.member.serverSecret", "s".to_owned()),
                ("spec.TLS.static.operatorSecret", "o".to_owned())
            ]
        );
        assert_eq!(
            fields(json!({"security": {"peerTLS": {"mode": "Off"}}})),
            []
        );
    }

    #[test]
    fn servers_for_clients_are_named_by_their_service_as_well() {
        let ca = authority();
        let server = named_by(&cluster(
            &json!({"security": {"clientTLS": {"secretName": "p"}}}),
        ))
        .remove(0);
        let told = |names: &[&str]| {
            judge(
                &server,
                &Found::Yes(of(&leaf(&ca, names, LIFE), &ca)),
                now(),
            )
        };
        assert_eq!(told(&["*.c.ns.svc", "c-client.ns.svc"]), None);
        let told = told(&["*.c.ns.svc"]).unwrap();
        assert!(told.contains("does not name `c-client.ns.svc`"), "{told}");
    }

    #[test]
    fn what_a_client_shows_needs_no_name() {
        let ca = authority();
        let request = LeafRequest {
            common_name: "root".to_owned(),
            names: Vec::new(),
            usage: Usage::Client,
            lifetime: LIFE,
        };
        let leaf = ca.issue(&request, now()).unwrap();
        let operator = Named {
            field: "spec.TLS.static.operatorSecret",
            secret: "o".to_owned(),
            holds: Holds::Certificate {
                keys: SecretKeys::STANDARD,
                names: Vec::new(),
            },
        };
        assert_eq!(judge(&operator, &Found::Yes(of(&leaf, &ca)), now()), None);
    }

    #[test]
    fn either_key_will_do_where_either_is_read() {
        let named = Named {
            field: "spec.gcs.gcpSecret",
            secret: "g".to_owned(),
            holds: Holds::OneOf(&["access-token", "credentials.json"]),
        };
        let with = |key: &str| Found::Yes(SecretData::from([(key.to_owned(), b"x".to_vec())]));
        assert_eq!(judge(&named, &with("access-token"), now()), None);
        assert_eq!(judge(&named, &with("credentials.json"), now()), None);
        assert_eq!(
            judge(&named, &with("token"), now()).unwrap(),
            "Secret `g` has neither `access-token` nor `credentials.json`"
        );
    }
}

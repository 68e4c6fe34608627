//! `spec.security` and CoreOS's `spec.TLS`.

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::names;
use super::text::Text;
use crate::v1beta2::{EtcdCluster, EtcdClusterSpec, TlsMode, TlsPolicy};
use crate::validated::{CertificateSecret, ClientTls, PeerTls, SecretKeys};

const PEER: &str = "spec.security.peerTLS";
const CLIENT: &str = "spec.security.clientTLS";
const STATIC: &str = "spec.TLS.static";

const TWICE: Text =
    Text("must not be set together with `security`: keep `security`, or keep `TLS` alone");
const SECRET_MISSING: Text = Text("must name a Secret where `mode` is Secret");
const SECRET_UNUSED: Text =
    Text("must not be set where `mode` is not Secret: set `mode: Secret`, or remove it");
const CLIENT_AUTH_UNUSED: Text =
    Text("must not be true where `mode` is Off: set `mode: Auto` or Secret, or remove it");
const STATIC_INCOMPLETE: Text = Text(
    "must have both `operatorSecret` and `member.serverSecret`, or neither: without its own the operator could not connect",
);
const IMMUTABLE: Text = Text(
    "must not change from {old} to {new} once the cluster runs: its members could not reach each other on the way; put {old} back, or make a new cluster and restore a backup",
);
const CLIENT_IMMUTABLE: Text = Text(
    "must not change from {old} to {new} once the cluster runs: this release cannot move clients over; put {old} back, or make a new cluster",
);

/// TLS of both sides, or what is wrong with it.
pub(super) fn read(
    spec: &EtcdClusterSpec,
    judgement: &mut Judgement,
) -> Option<(PeerTls, ClientTls)> {
    if let Some(policy) = &spec.tls {
        if spec.security.is_some() {
            judgement.refuse("spec.TLS", Reason::TlsTwice, TWICE.0);
        }
        return read_static(policy, judgement);
    }
    let peer = read_peer(spec, judgement);
    let client = read_client(spec, judgement);
    peer.zip(client)
}

fn read_peer(spec: &EtcdClusterSpec, judgement: &mut Judgement) -> Option<PeerTls> {
    let peer = spec.security.as_ref()?.peer_tls.as_ref()?;
    let secret = secret_for(peer.mode?, peer.secret_name.as_deref(), PEER, judgement)?;
    Some(match (peer.mode?, secret) {
        (TlsMode::Secret, Some(secret)) => PeerTls::Secret(secret),
        (TlsMode::Auto, _) => PeerTls::Auto,
        _ => {
            judgement.warn(
                "spec.security.peerTLS.mode",
                "Off: members talk in plain text, and anyone who can reach them can join",
            );
            PeerTls::Off
        }
    })
}

fn read_client(spec: &EtcdClusterSpec, judgement: &mut Judgement) -> Option<ClientTls> {
    let client = spec.security.as_ref()?.client_tls.as_ref()?;
    let client_auth = client.client_auth.unwrap_or(true);
    let secret = secret_for(
        client.mode?,
        client.secret_name.as_deref(),
        CLIENT,
        judgement,
    )?;
    Some(match (client.mode?, secret) {
        (TlsMode::Secret, Some(secret)) => ClientTls::Secret {
            server: secret.clone(),
            operator: secret,
            client_auth,
        },
        (TlsMode::Auto, _) => ClientTls::Auto { client_auth },
        _ => {
            if client.client_auth == Some(true) {
                judgement.refuse(
                    "spec.security.clientTLS.clientAuth",
                    Reason::TlsClientAuthUnused,
                    CLIENT_AUTH_UNUSED.0,
                );
            }
            judgement.warn(
                "spec.security.clientTLS.mode",
                "Off: plain text, and anyone who can connect can read and write",
            );
            ClientTls::Off
        }
    })
}

/// Outer None: something is wrong. Inner None: no Secret is needed.
#[allow(clippy::option_option)] // Exactly these three outcomes.
fn secret_for(
    mode: TlsMode,
    name: Option<&str>,
    field: &str,
    judgement: &mut Judgement,
) -> Option<Option<CertificateSecret>> {
    let field = format!("{field}.secretName");
    match (mode, name) {
        (TlsMode::Secret, None) => {
            judgement.refuse(field, Reason::TlsSecretMissing, SECRET_MISSING.0);
            None
        }
        (TlsMode::Secret, Some(name)) => {
            names::check_object_name(name, &field, judgement);
            Some(Some(CertificateSecret {
                name: name.to_owned(),
                keys: SecretKeys::STANDARD,
            }))
        }
        (TlsMode::Auto | TlsMode::Off, Some(_)) => {
            judgement.refuse(field, Reason::TlsSecretUnused, SECRET_UNUSED.0);
            None
        }
        (TlsMode::Auto | TlsMode::Off, None) => Some(None),
    }
}

fn read_static(policy: &TlsPolicy, judgement: &mut Judgement) -> Option<(PeerTls, ClientTls)> {
    let secrets = policy.static_.as_ref();
    let member = secrets.and_then(|secrets| secrets.member.as_ref());
    let peer = named(member.and_then(|member| member.peer_secret.as_ref()));
    let server = named(member.and_then(|member| member.server_secret.as_ref()));
    let operator = named(secrets.and_then(|secrets| secrets.operator_secret.as_ref()));
    for (name, part) in [
        (peer, "member.peerSecret"),
        (server, "member.serverSecret"),
        (operator, "operatorSecret"),
    ] {
        if let Some(name) = name {
            names::check_object_name(name, &format!("{STATIC}.{part}"), judgement);
        }
    }
    let secret = |name: &str, keys| CertificateSecret {
        name: name.to_owned(),
        keys,
    };
    let client = match (server, operator) {
        (Some(server), Some(operator)) => ClientTls::Secret {
            server: secret(server, SecretKeys::COREOS_SERVER),
            operator: secret(operator, SecretKeys::COREOS_OPERATOR),
            client_auth: true,
        },
        (None, None) => ClientTls::Off,
        _ => {
            judgement.refuse(STATIC, Reason::TlsStaticIncomplete, STATIC_INCOMPLETE.0);
            return None;
        }
    };
    let peer = peer.map_or(PeerTls::Off, |name| {
        PeerTls::Secret(secret(name, SecretKeys::COREOS_PEER))
    });
    Some((peer, client))
}

/// CoreOS wrote an empty string where it meant "not set".
pub(super) fn named(name: Option<&String>) -> Option<&str> {
    name.map(String::as_str).filter(|name| !name.is_empty())
}

/// How members talk, in one word.
fn peer_mode(spec: &EtcdClusterSpec) -> &'static str {
    let mut ignored = Judgement::default();
    match read(spec, &mut ignored) {
        Some((PeerTls::Off, _)) => "Off",
        Some((PeerTls::Auto, _)) => "Auto",
        Some((PeerTls::Secret(_), _)) => "Secret",
        None => "unreadable",
    }
}

/// Members must speak one language at all times, to each other and to the operator.
pub(super) fn check_change(new: &EtcdCluster, old: &EtcdCluster, judgement: &mut Judgement) {
    let lives = old
        .status
        .as_ref()
        .is_some_and(|status| status.bootstrap.is_some());
    let (Some((new_peer, new_client)), Some((old_peer, old_client))) = (
        read(&new.spec, &mut Judgement::default()),
        read(&old.spec, &mut Judgement::default()),
    ) else {
        return;
    };
    if !lives {
        return;
    }
    let (was, is) = (peer_mode(&old.spec), peer_mode(&new.spec));
    if was != is {
        let field = if new.spec.tls.is_some() {
            "spec.TLS"
        } else {
            "spec.security.peerTLS.mode"
        };
        judgement.refuse(
            field,
            Reason::TlsImmutable,
            IMMUTABLE.fill(&[("old", &was), ("new", &is)]),
        );
    } else if new_peer != old_peer {
        judgement.warn(
            PEER,
            "both Secrets must trust each other's authority while members restart one by one",
        );
    }
    let (was, is) = (client_mode(&old_client), client_mode(&new_client));
    if was != is {
        // The operator reaches every member the way the spec says: halfway through a change it would see none of them.
        judgement.refuse(
            format!("{CLIENT}.mode"),
            Reason::TlsImmutable,
            CLIENT_IMMUTABLE.fill(&[("old", &was), ("new", &is)]),
        );
    }
}

fn client_mode(tls: &ClientTls) -> &'static str {
    match tls {
        ClientTls::Off => "Off",
        ClientTls::Auto { .. } => "Auto",
        ClientTls::Secret { .. } => "Secret",
    }
}

pub(super) fn cel() -> Vec<CelRule> {
    let mode = |of: &str| {
        let tls = format!("{of}.spec.TLS");
        let peer = format!("{of}.spec.security.peerTLS");
        format!(
            "(has({tls}) ? (has({tls}.static) && has({tls}.static.member) && has({tls}.static.member.peerSecret) && \
             {tls}.static.member.peerSecret != '' ? 'Secret' : 'Off') : \
             (has({of}.spec.security) && has({peer}) ? (has({peer}.mode) ? {peer}.mode : \
             (has({peer}.secretName) ? 'Secret' : 'Auto')) : 'Auto'))"
        )
    };
    let named = |name: &str| format!("(has({name}) && {name} != '')");
    let mut rules = vec![
        rule(Reason::TlsTwice, "spec", "!has(self.TLS) || !has(self.security)", TWICE).field(".TLS"),
        rule(
            Reason::TlsClientAuthUnused,
            CLIENT,
            "!has(self.clientAuth) || !self.clientAuth || has(self.secretName) || (has(self.mode) && self.mode != 'Off')",
            CLIENT_AUTH_UNUSED,
        )
        .field(".clientAuth"),
        rule(
            Reason::TlsStaticIncomplete,
            STATIC,
            format!(
                "{} == (has(self.member) && {})",
                named("self.operatorSecret"),
                named("self.member.serverSecret")
            ),
            STATIC_INCOMPLETE,
        ),
        rule(
            Reason::TlsImmutable,
            "",
            format!(
                "!has(oldSelf.status) || !has(oldSelf.status.bootstrap) || {} == {}",
                mode("self"),
                mode("oldSelf")
            ),
            IMMUTABLE,
        )
        .holes(IMMUTABLE, &[("old", &mode("oldSelf")), ("new", &mode("self"))])
        .field(".spec.security.peerTLS.mode"),
    ];
    for at in [PEER, CLIENT] {
        rules.push(
            rule(
                Reason::TlsSecretMissing,
                at,
                "!has(self.mode) || self.mode != 'Secret' || has(self.secretName)",
                SECRET_MISSING,
            )
            .field(".secretName"),
        );
        rules.push(
            rule(
                Reason::TlsSecretUnused,
                at,
                "!has(self.secretName) || !has(self.mode) || self.mode == 'Secret'",
                SECRET_UNUSED,
            )
            .field(".secretName"),
        );
    }
    rules
}

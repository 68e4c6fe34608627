//! `spec.security` and CoreOS's `spec.TLS`.

use super::cel::{CelRule, rule};
use super::change::{ACCEPTED, accepts};
use super::finding::{Judgement, Reason};
use super::names;
use super::text::Text;
use crate::v1beta2::{Accepted, EtcdClusterSpec, TlsMode, TlsPolicy};
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

/// The modes of both sides; none where they cannot be read.
pub(super) fn modes(spec: &EtcdClusterSpec) -> Option<(TlsMode, TlsMode)> {
    let (peer, client) = read(spec, &mut Judgement::default())?;
    let peer = match peer {
        PeerTls::Off => TlsMode::Off,
        PeerTls::Auto => TlsMode::Auto,
        PeerTls::Secret(_) => TlsMode::Secret,
    };
    let client = match client {
        ClientTls::Off => TlsMode::Off,
        ClientTls::Auto { .. } => TlsMode::Auto,
        ClientTls::Secret { .. } => TlsMode::Secret,
    };
    Some((peer, client))
}

/// Members that run must speak one language at all times, to each other and to the operator. `coreos`: the new spec says it in
/// `TLS`.
pub(super) fn check_change(
    new: &Accepted,
    old: &Accepted,
    coreos: bool,
    judgement: &mut Judgement,
) {
    let changed = |new: Option<TlsMode>, old: Option<TlsMode>| {
        let (was, is) = (old?.as_str(), new?.as_str());
        (was != is).then_some((was, is))
    };
    if let Some((was, is)) = changed(new.peer_tls, old.peer_tls) {
        let field = if coreos {
            "spec.TLS"
        } else {
            "spec.security.peerTLS.mode"
        };
        judgement.refuse(
            field,
            Reason::TlsImmutable,
            IMMUTABLE.fill(&[("old", &was), ("new", &is)]),
        );
    }
    if let Some((was, is)) = changed(new.client_tls, old.client_tls) {
        // The operator reaches every member the way the spec says: halfway through a change it would see none of them.
        judgement.refuse(
            format!("{CLIENT}.mode"),
            Reason::TlsImmutable,
            CLIENT_IMMUTABLE.fill(&[("old", &was), ("new", &is)]),
        );
    }
}

/// Another Secret for the same purpose is read member by member.
pub(super) fn warn_of_another_secret(
    new: &EtcdClusterSpec,
    old: &EtcdClusterSpec,
    judgement: &mut Judgement,
) {
    if new.security == old.security && new.tls == old.tls {
        return;
    }
    let peer = |spec| read(spec, &mut Judgement::default()).map(|(peer, _)| peer);
    if let (Some(PeerTls::Secret(new)), Some(PeerTls::Secret(old))) = (peer(new), peer(old))
        && new != old
    {
        judgement.warn(
            PEER,
            "both Secrets must trust each other's authority while members restart one by one",
        );
    }
}

pub(super) fn cel() -> Vec<CelRule> {
    // A side's mode: by CoreOS's Secret, by its mode, or by what it is without one.
    let mode = |of: &str, secret: &str, side: &str, unset: &str| {
        let tls = format!("{of}.spec.TLS");
        let side = format!("{of}.spec.security.{side}");
        format!(
            "(has({tls}) ? (has({tls}.static) && has({tls}.static.member) && has({tls}.static.member.{secret}) && \
             {tls}.static.member.{secret} != '' ? 'Secret' : 'Off') : \
             (has({of}.spec.security) && has({side}) ? (has({side}.mode) ? {side}.mode : \
             (has({side}.secretName) ? 'Secret' : '{unset}')) : '{unset}'))"
        )
    };
    let fixed = |secret, side, unset, text: Text, field| {
        let (new, old) = (
            mode("self", secret, side, unset),
            mode("oldSelf", secret, side, unset),
        );
        let accepted = format!("{ACCEPTED}.{side}");
        let put_back = accepts(&format!("has({accepted}) && {new} == {accepted}"));
        rule(
            Reason::TlsImmutable,
            "",
            format!(
                "!has(oldSelf.status) || !has(oldSelf.status.bootstrap) || {new} == {old} || {put_back}"
            ),
            text,
        )
        .holes(text, &[("old", &old), ("new", &new)])
        .field(field)
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
        fixed("peerSecret", "peerTLS", "Auto", IMMUTABLE, ".spec.security.peerTLS.mode"),
        fixed("serverSecret", "clientTLS", "Off", CLIENT_IMMUTABLE, ".spec.security.clientTLS.mode"),
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

//! `spec.options.extraArgs` and the `ETCD_*` variables of `spec.pod.etcdEnv`: whose flag it is, and whether this minor has it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::nearest::nearest;
use super::text::{Text, list};
use crate::environment::{self, flag_of};
use crate::v1beta2::EtcdClusterSpec;
use crate::versions::{FlagPresence, Version, flag_names, flag_presence};

const ARGS: &str = "spec.options.extraArgs";
const ENVIRONMENT: &str = "spec.pod.etcdEnv";

/// Flags the operator renders itself, or that would undo what it guarantees.
const OWNED: &[&str] = &[
    "advertise-client-urls",
    "auto-tls",
    "ca-file",
    "cert-file",
    "client-cert-allowed-hostname",
    "client-cert-auth",
    "client-cert-file",
    "client-crl-file",
    "client-key-file",
    "config-file",
    "data-dir",
    "discovery",
    "discovery-cacert",
    "discovery-cert",
    "discovery-dial-timeout",
    "discovery-endpoints",
    "discovery-fallback",
    "discovery-insecure-skip-tls-verify",
    "discovery-insecure-transport",
    "discovery-keepalive-time",
    "discovery-keepalive-timeout",
    "discovery-key",
    "discovery-password",
    "discovery-proxy",
    "discovery-request-timeout",
    "discovery-srv",
    "discovery-srv-name",
    "discovery-token",
    "discovery-user",
    "experimental-compact-hash-check-enabled",
    "experimental-initial-corrupt-check",
    "experimental-peer-skip-client-san-verification",
    "force-new-cluster",
    "force-new-cluster-bump-amount",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "key-file",
    "listen-client-http-urls",
    "listen-client-urls",
    "listen-metrics-urls",
    "listen-peer-urls",
    "name",
    "next-cluster-version-compatible",
    "peer-auto-tls",
    "peer-ca-file",
    "peer-cert-allowed-cn",
    "peer-cert-allowed-hostname",
    "peer-cert-file",
    "peer-client-cert-auth",
    "peer-client-cert-file",
    "peer-client-key-file",
    "peer-crl-file",
    "peer-key-file",
    "peer-skip-client-san-verification",
    "peer-trusted-ca-file",
    "proxy",
    "proxy-dial-timeout",
    "proxy-failure-wait",
    "proxy-read-timeout",
    "proxy-refresh-interval",
    "proxy-write-timeout",
    "strict-reconfig-check",
    "trusted-ca-file",
    "unsafe-no-fsync",
    "v2-deprecation",
    "version",
    "wal-dir",
];

/// Flags that have a field.
const FIELDS: &[(&str, &str)] = &[
    ("auto-compaction-mode", "spec.options.autoCompaction"),
    ("auto-compaction-retention", "spec.options.autoCompaction"),
    ("election-timeout", "spec.options.electionTimeout"),
    ("heartbeat-interval", "spec.options.heartbeatInterval"),
    ("log-level", "spec.options.logLevel"),
    ("max-request-bytes", "spec.options.maxRequestBytes"),
    ("max-txn-ops", "spec.options.maxTxnOps"),
    ("metrics", "spec.options.metrics"),
    ("quota-backend-bytes", "spec.options.quotaBackend"),
    ("snapshot-count", "spec.options.snapshotCount"),
];

/// Among so many faults it is still guessed which flag was meant.
const MOST_GUESSES: usize = 50;

/// Gates the operator sets itself.
const OWNED_GATES: [&str; 2] = ["InitialCorruptCheck", "CompactHashCheck"];

const MALFORMED: Text =
    Text("must be named as etcd names its flags, without dashes in front, such as `max-wals`");
const IS_OWNED: Text = Text("must not be set: the operator owns this flag");
const HAS_FIELD: Text = Text("must not be set here: use `{field}`");
const GATES: &str = "must be of the form Name=true,Other=false";
const GATE_OWNED: &str =
    "must not name InitialCorruptCheck or CompactHashCheck: the operator sets them";
const TWICE: &str =
    "must not be set here and in `spec.options.extraArgs`: etcd does not start with both; keep one";
const VARIABLE: Text =
    Text("must be named with letters, digits, `_`, `-` and `.`, and not begin with a digit");

/// What people add to etcd's command line and environment.
#[derive(Default)]
pub(super) struct Additions {
    pub(super) extra_args: BTreeMap<String, String>,
    pub(super) feature_gates: BTreeMap<String, bool>,
    pub(super) environment: Vec<EnvVar>,
}

pub(super) fn read(
    spec: &EtcdClusterSpec,
    version: Option<Version>,
    judgement: &mut Judgement,
) -> Additions {
    let mut additions = Additions::default();
    let args = spec
        .options
        .as_ref()
        .and_then(|options| options.extra_args.as_ref());
    for (flag, value) in args.into_iter().flatten() {
        let path = format!("{ARGS}[{flag}]");
        if flag == "feature-gates" {
            check_presence(flag, version, &path, judgement);
            additions.feature_gates = read_gates(value, &path, judgement);
        } else if check_argument(flag, version, &path, judgement) {
            additions.extra_args.insert(flag.clone(), value.clone());
        }
    }
    read_environment(spec, version, &mut additions, judgement);
    additions
}

fn check_argument(
    flag: &str,
    version: Option<Version>,
    path: &str,
    judgement: &mut Judgement,
) -> bool {
    if !is_well_formed(flag) {
        judgement.refuse(path, Reason::FlagMalformed, MALFORMED.0);
    } else if is_owned(flag) {
        judgement.refuse(path, Reason::FlagOwned, IS_OWNED.0);
    } else if let Some(field) = field_of(flag) {
        judgement.refuse(
            path,
            Reason::FlagHasField,
            HAS_FIELD.fill(&[("field", &field)]),
        );
    } else {
        return check_presence(flag, version, path, judgement);
    }
    false
}

/// Whether the minor has the flag. Without a version there is nothing to compare with, and the version itself is refused.
fn check_presence(
    flag: &str,
    version: Option<Version>,
    path: &str,
    judgement: &mut Judgement,
) -> bool {
    let Some(minor) = version.map(Version::minor) else {
        return false;
    };
    let (reason, message) = match flag_presence(flag, minor) {
        FlagPresence::Present => return true,
        FlagPresence::NotYet { first } => (
            Reason::FlagNotInMinor,
            format!(
                "must not be set with etcd {minor}: the flag exists from {first} on; remove it"
            ),
        ),
        FlagPresence::NoLonger { last } => (
            Reason::FlagNotInMinor,
            format!(
                "must not be set with etcd {minor}: the flag was removed after {last}; {}",
                replacement(flag, minor)
            ),
        ),
        FlagPresence::Unknown => {
            let known = flag_names(minor);
            // A guess costs more than all the rest: whoever sends thousands of flags has not misspelt them.
            let near = (judgement.violations.len() < MOST_GUESSES).then(|| nearest(flag, known));
            let near = near.flatten().map_or_else(
                || "remove it".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            (
                Reason::FlagUnknown,
                format!("must be a flag that etcd {minor} has: {near}"),
            )
        }
    };
    judgement.refuse(path, reason, message);
    false
}

/// Most experimental flags only lost their prefix.
fn replacement(flag: &str, minor: crate::versions::Minor) -> String {
    let stable = flag.strip_prefix("experimental-").unwrap_or_default();
    match flag_presence(stable, minor) {
        FlagPresence::Present => format!("use `{stable}`"),
        _ => "remove it".to_owned(),
    }
}

fn read_environment(
    spec: &EtcdClusterSpec,
    version: Option<Version>,
    additions: &mut Additions,
    judgement: &mut Judgement,
) {
    let variables = spec.pod.as_ref().and_then(|pod| pod.etcd_env.as_ref());
    let args = spec
        .options
        .as_ref()
        .and_then(|options| options.extra_args.as_ref());
    for (index, variable) in variables.into_iter().flatten().enumerate() {
        let path = format!("{ENVIRONMENT}[{index}]");
        let Some(flag) = flag_of(&variable.name) else {
            if !is_variable_name(&variable.name) {
                judgement.refuse(path, Reason::VariableInvalid, VARIABLE.0);
            }
            additions.environment.push(variable.clone());
            continue;
        };
        if args.is_some_and(|args| args.contains_key(&flag)) {
            judgement.refuse(path, Reason::OptionTwice, TWICE);
        } else if is_owned(&flag) {
            judgement.refuse(path, Reason::FlagOwned, IS_OWNED.0);
        } else if flag == "feature-gates" {
            check_presence(&flag, version, &path, judgement);
            let gates = variable.value.as_deref().unwrap_or_default();
            additions.feature_gates = read_gates(gates, &path, judgement);
        } else if check_presence(&flag, version, &path, judgement) && field_of(&flag).is_none() {
            additions.environment.push(variable.clone());
        }
    }
}

fn read_gates(text: &str, path: &str, judgement: &mut Judgement) -> BTreeMap<String, bool> {
    let mut gates = BTreeMap::new();
    for gate in text.split(',').filter(|gate| !gate.is_empty()) {
        let parsed = gate
            .split_once('=')
            .and_then(|(name, value)| Some((name.trim(), value.trim().parse().ok()?)));
        match parsed {
            Some((name, _)) if OWNED_GATES.contains(&name) => {
                judgement.refuse(path, Reason::FlagOwned, GATE_OWNED);
            }
            Some((name, on)) if !name.is_empty() => {
                gates.insert(name.to_owned(), on);
            }
            _ => judgement.refuse(path, Reason::OptionInvalid, GATES),
        }
    }
    gates
}

fn is_well_formed(flag: &str) -> bool {
    flag.starts_with(|c: char| c.is_ascii_lowercase())
        && flag
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn is_owned(flag: &str) -> bool {
    OWNED.binary_search(&flag).is_ok()
}

fn field_of(flag: &str) -> Option<&'static str> {
    FIELDS
        .iter()
        .find(|(name, _)| *name == flag)
        .map(|(_, field)| *field)
}

pub(super) fn cel() -> Vec<CelRule> {
    let owned_variables: Vec<String> = OWNED
        .iter()
        .map(|flag| environment::variable_of(flag))
        .collect();
    let mut rules = vec![
        rule(
            Reason::FlagMalformed,
            ARGS,
            "self.all(k, k.matches('^[a-z][a-z0-9-]*$'))",
            MALFORMED,
        ),
        rule(
            Reason::FlagOwned,
            ARGS,
            format!("self.all(k, !(k in {}))", list(OWNED.iter().copied())),
            IS_OWNED,
        ),
        rule(
            Reason::FlagOwned,
            ENVIRONMENT,
            format!(
                "self.all(e, !(e.name in {}))",
                list(owned_variables.iter().map(String::as_str))
            ),
            IS_OWNED,
        ),
        rule(
            Reason::VariableInvalid,
            ENVIRONMENT,
            "self.all(e, e.name.matches('^[-._a-zA-Z][-._a-zA-Z0-9]*$'))",
            VARIABLE,
        ),
    ];
    rules.extend(FIELDS.iter().map(|(flag, field)| {
        rule(
            Reason::FlagHasField,
            ARGS,
            format!("!('{flag}' in self)"),
            HAS_FIELD,
        )
        .holes(HAS_FIELD, &[("field", &format!("'{field}'"))])
    }));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::releases;

    #[test]
    fn owned_flags_are_sorted_and_exist_somewhere() {
        assert!(OWNED.is_sorted_by(|a, b| a < b));
        for flag in OWNED
            .iter()
            .copied()
            .chain(FIELDS.iter().map(|(flag, _)| *flag))
        {
            let known = releases()
                .iter()
                .any(|release| flag_presence(flag, release.minor) == FlagPresence::Present);
            assert!(known || flag == "force-new-cluster-bump-amount", "{flag}");
        }
    }

    #[test]
    fn every_flag_about_identity_listening_or_certificates_is_owned() {
        let touchy = [
            "initial-",
            "listen-",
            "advertise-",
            "-file",
            "peer-cert",
            "discovery",
            "-tls",
            "proxy",
        ];
        for release in releases() {
            for flag in flag_names(release.minor) {
                let free = is_owned(flag) || ["initial-election-tick-advance"].contains(&flag);
                assert!(
                    free || !touchy.iter().any(|part| flag.contains(part)),
                    "{flag}"
                );
            }
        }
    }
}

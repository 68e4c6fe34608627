//! `spec.options`: settings of the etcd process that have a field, whether said there or in `pod.etcdEnv`.

use std::time::Duration;

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::text::Text;
use super::{
    compaction, duration_cel, duration_field, duration_rule, positive_quantity, quantity_rules,
};
use crate::defaults::{LARGEST_ELECTION_MS, QUOTA_BYTES};
use crate::duration;
use crate::environment;
use crate::quantity::GIB;
use crate::v1beta2::{EtcdClusterSpec, LogLevel, MetricsLevel, OptionsSpec, PodPolicy};
use crate::validated::Options;
use crate::versions::{FlagPresence, Version, flag_presence};

const QUOTA: &str = "spec.options.quotaBackend";
const HEARTBEAT: &str = "spec.options.heartbeatInterval";
const ELECTION: &str = "spec.options.electionTimeout";

const HEARTBEAT_BOUNDS: Text =
    Text("must be between 10ms and 10s; use 100ms unless members are far apart");
const ELECTION_BOUNDS: Text = Text("must be at most 50s, which is etcd's own limit");
const ELECTION_TOO_SHORT: Text =
    Text("must be at least 5 times `heartbeatInterval`, which is {heartbeat}");
const BOUNDS: Text = Text("must be between {least} and {most}");
const TWICE: Text =
    Text("must not be set here and in `{field}`: etcd does not start with both; keep one");
const INVALID: Text = Text("must be {accepted}, not `{value}`");
const NO_PLAIN_VALUE: &str =
    "must have a plain `value`: the operator reads it to render the member's flags";

const HEARTBEAT_LEAST: u32 = 10;
const HEARTBEAT_MOST: u32 = 10_000;
const QUOTA_WARNING: u64 = 8 * GIB;
const REQUEST_WARNING: u64 = 10 << 20;

/// Where an option is said.
pub(super) struct Place<'a> {
    pub(super) pod: Option<&'a PodPolicy>,
    pub(super) field: &'static str,
    pub(super) flag: &'static str,
}

pub(super) enum Said<'a, T> {
    Nowhere,
    InField(&'a T),
    /// The text, and the path of the variable.
    InEnvironment(&'a str, String),
    /// Said, but unusable; what is wrong is noted.
    Unusable,
}

/// Finds where an option is said; twice is refused, because etcd dies of it.
pub(super) fn said<'a, T>(
    value: Option<&'a T>,
    place: &Place<'a>,
    judgement: &mut Judgement,
) -> Said<'a, T> {
    match (value, environment::entry(place.pod, place.flag)) {
        (None, None) => Said::Nowhere,
        (Some(value), None) => Said::InField(value),
        (value, Some((index, variable))) => {
            let path = format!("spec.pod.etcdEnv[{index}]");
            if value.is_some() {
                judgement.refuse(
                    path,
                    Reason::OptionTwice,
                    TWICE.fill(&[("field", &place.field)]),
                );
                return Said::Unusable;
            }
            if let Some(text) = variable.value.as_deref() {
                Said::InEnvironment(text, path)
            } else {
                judgement.refuse(path, Reason::OptionInvalid, NO_PLAIN_VALUE);
                Said::Unusable
            }
        }
    }
}

pub(super) fn refuse_value(path: &str, accepted: &str, value: &str, judgement: &mut Judgement) {
    let message = INVALID.fill(&[("accepted", &accepted), ("value", &value)]);
    judgement.refuse(path, Reason::OptionInvalid, message);
}

/// Every option, or what is wrong with them.
pub(super) fn read(
    spec: &EtcdClusterSpec,
    version: Version,
    judgement: &mut Judgement,
) -> Option<Options> {
    let unset = OptionsSpec::default();
    let options = spec.options.as_ref().unwrap_or(&unset);
    let pod = spec.pod.as_ref();
    let before = judgement.violations.len();
    let quota = read_quota(options, pod, judgement);
    let timing = read_timing(options, pod, judgement);
    let auto_compaction = compaction::read(options, pod, version, judgement);
    let mut number = |value: Option<i64>, field, flag, bounds| {
        has_flag(value.is_some(), field, flag, version, judgement);
        read_number(value, &Place { pod, field, flag }, bounds, judgement)
    };
    let snapshot_count = number(
        options.snapshot_count,
        "spec.options.snapshotCount",
        "snapshot-count",
        SNAPSHOT_COUNT,
    );
    let max_request_bytes = number(
        options.max_request_bytes,
        "spec.options.maxRequestBytes",
        "max-request-bytes",
        MAX_REQUEST_BYTES,
    );
    let max_txn_ops = number(
        options.max_txn_ops,
        "spec.options.maxTxnOps",
        "max-txn-ops",
        MAX_TXN_OPS,
    );
    if max_request_bytes.is_some_and(|bytes| bytes > REQUEST_WARNING) {
        judgement.warn(
            "spec.options.maxRequestBytes",
            "more than 10 MiB: large requests hold up all others",
        );
    }
    has_flag(
        options.log_level.is_some(),
        "spec.options.logLevel",
        "log-level",
        version,
        judgement,
    );
    let log_level = read_log_level(options, pod, judgement);
    let metrics = read_metrics(options, pod, judgement);
    if judgement.violations.len() > before {
        return None;
    }
    let (heartbeat_ms, election_ms) = timing?;
    Some(Options {
        quota_bytes: quota?,
        heartbeat_ms,
        election_ms,
        auto_compaction: auto_compaction?,
        snapshot_count,
        max_request_bytes,
        max_txn_ops,
        log_level,
        metrics,
    })
}

fn has_flag(set: bool, field: &str, flag: &str, version: Version, judgement: &mut Judgement) {
    if let (true, FlagPresence::NotYet { first }) = (set, flag_presence(flag, version.minor())) {
        let message =
            format!("must not be set with etcd {version}: it exists from {first} on; remove it");
        judgement.refuse(field, Reason::OptionNeedsNewerEtcd, message);
    }
}

/// The quota in bytes. In etcd's own words 0 means its default.
fn read_quota(
    options: &OptionsSpec,
    pod: Option<&PodPolicy>,
    judgement: &mut Judgement,
) -> Option<u64> {
    let place = Place {
        pod,
        field: QUOTA,
        flag: "quota-backend-bytes",
    };
    let quota = match said(options.quota_backend.as_ref(), &place, judgement) {
        Said::Nowhere => QUOTA_BYTES,
        Said::InField(quota) => judgement.keep(positive_quantity(quota, QUOTA))?,
        Said::InEnvironment(text, path) => match text.parse::<u64>() {
            Ok(0) => QUOTA_BYTES,
            Ok(bytes) => bytes,
            Err(_) => {
                refuse_value(&path, "a number of bytes", text, judgement);
                return None;
            }
        },
        Said::Unusable => return None,
    };
    if quota > QUOTA_WARNING {
        judgement.warn(
            QUOTA,
            "more than 8Gi: etcd is not tested beyond, and members take long to start",
        );
    }
    Some(quota)
}

/// Heartbeat and election in milliseconds, and whether they fit together.
fn read_timing(
    options: &OptionsSpec,
    pod: Option<&PodPolicy>,
    judgement: &mut Judgement,
) -> Option<(u32, u32)> {
    let heartbeat = {
        let place = Place {
            pod,
            field: HEARTBEAT,
            flag: "heartbeat-interval",
        };
        let said = said(options.heartbeat_interval.as_ref(), &place, judgement);
        read_millis(said, 100, HEARTBEAT, judgement)
    };
    let election = {
        let place = Place {
            pod,
            field: ELECTION,
            flag: "election-timeout",
        };
        let said = said(options.election_timeout.as_ref(), &place, judgement);
        read_millis(said, 1000, ELECTION, judgement)
    };
    let (heartbeat, election) = (heartbeat?, election?);
    if !(HEARTBEAT_LEAST..=HEARTBEAT_MOST).contains(&heartbeat) {
        judgement.refuse(HEARTBEAT, Reason::HeartbeatOutOfBounds, HEARTBEAT_BOUNDS.0);
    }
    if u64::from(election) > LARGEST_ELECTION_MS {
        judgement.refuse(ELECTION, Reason::ElectionOutOfBounds, ELECTION_BOUNDS.0);
    }
    if election < heartbeat.saturating_mul(5) {
        let shown = |millis: u64| duration::display(Duration::from_millis(millis));
        let reason = ELECTION_TOO_SHORT.fill(&[("heartbeat", &shown(heartbeat.into()))]);
        let message = format!("{reason}; use {} or more", shown(u64::from(heartbeat) * 5));
        judgement.refuse(ELECTION, Reason::ElectionTooShort, message);
    }
    Some((heartbeat, election))
}

fn read_millis(
    said: Said<'_, duration::GoDuration>,
    unset: u32,
    field: &str,
    judgement: &mut Judgement,
) -> Option<u32> {
    match said {
        Said::Nowhere => Some(unset),
        // Beyond what fits is beyond every bound, and is refused as such.
        Said::InField(text) => {
            let millis = duration_field(text, field, judgement)?.as_millis();
            Some(u32::try_from(millis).unwrap_or(u32::MAX))
        }
        Said::InEnvironment(text, path) => {
            let millis = text.parse().ok();
            if millis.is_none() {
                refuse_value(&path, "a number of milliseconds", text, judgement);
            }
            millis
        }
        Said::Unusable => None,
    }
}

type Bounds = (u64, u64);
const SNAPSHOT_COUNT: Bounds = (100, 10_000_000);
const MAX_REQUEST_BYTES: Bounds = (1024, 100 << 20);
const MAX_TXN_OPS: Bounds = (1, 65_536);

fn read_number(
    value: Option<i64>,
    place: &Place<'_>,
    (least, most): Bounds,
    judgement: &mut Judgement,
) -> Option<u64> {
    let (number, path) = match said(value.as_ref(), place, judgement) {
        Said::Nowhere | Said::Unusable => return None,
        Said::InField(number) => (*number, place.field.to_owned()),
        Said::InEnvironment(text, path) => {
            let Ok(number) = text.parse() else {
                refuse_value(&path, "a number", text, judgement);
                return None;
            };
            (number, path)
        }
    };
    match u64::try_from(number) {
        Ok(number) if (least..=most).contains(&number) => Some(number),
        _ => {
            let message = BOUNDS.fill(&[("least", &least), ("most", &most)]);
            judgement.refuse(path, Reason::OutOfBounds, message);
            None
        }
    }
}

fn read_log_level(
    options: &OptionsSpec,
    pod: Option<&PodPolicy>,
    judgement: &mut Judgement,
) -> Option<LogLevel> {
    let place = Place {
        pod,
        field: "spec.options.logLevel",
        flag: "log-level",
    };
    read_word(
        options.log_level,
        &place,
        "debug, info, warn, error, panic or fatal",
        judgement,
    )
}

fn read_metrics(
    options: &OptionsSpec,
    pod: Option<&PodPolicy>,
    judgement: &mut Judgement,
) -> Option<MetricsLevel> {
    let place = Place {
        pod,
        field: "spec.options.metrics",
        flag: "metrics",
    };
    read_word(options.metrics, &place, "basic or extensive", judgement)
}

fn read_word<T: Copy + serde::de::DeserializeOwned>(
    value: Option<T>,
    place: &Place<'_>,
    accepted: &str,
    judgement: &mut Judgement,
) -> Option<T> {
    match said(value.as_ref(), place, judgement) {
        Said::Nowhere | Said::Unusable => None,
        Said::InField(word) => Some(*word),
        Said::InEnvironment(text, path) => {
            let word = serde_json::from_value(serde_json::Value::String(text.to_owned())).ok();
            if word.is_none() {
                refuse_value(&path, accepted, text, judgement);
            }
            word
        }
    }
}

pub(super) fn cel() -> Vec<CelRule> {
    let bounds = |at, (least, most): Bounds| {
        rule(
            Reason::OutOfBounds,
            at,
            format!("self >= {least} && self <= {most}"),
            BOUNDS,
        )
        .holes(
            BOUNDS,
            &[
                ("least", &format!("'{least}'")),
                ("most", &format!("'{most}'")),
            ],
        )
    };
    let (heartbeat, election) = ("self.heartbeatInterval", "self.electionTimeout");
    let both = format!(
        "!has({heartbeat}) || !has({election}) || !{} || !{}",
        duration_cel(heartbeat),
        duration_cel(election)
    );
    // Summed, because CEL multiplies no durations and its milliseconds mean different things to different libraries.
    let five = vec![format!("duration({heartbeat})"); 5].join(" + ");
    let mut rules = quantity_rules(QUOTA);
    rules.extend([
        duration_rule(HEARTBEAT),
        duration_rule(ELECTION),
        rule(
            Reason::HeartbeatOutOfBounds,
            HEARTBEAT,
            format!(
                "!{} || (duration(self) >= duration('10ms') && duration(self) <= duration('10s'))",
                duration_cel("self")
            ),
            HEARTBEAT_BOUNDS,
        ),
        rule(
            Reason::ElectionOutOfBounds,
            ELECTION,
            format!(
                "!{} || duration(self) <= duration('50s')",
                duration_cel("self")
            ),
            ELECTION_BOUNDS,
        ),
        rule(
            Reason::ElectionTooShort,
            "spec.options",
            format!("{both} || duration({election}) >= {five}"),
            ELECTION_TOO_SHORT,
        )
        .holes(ELECTION_TOO_SHORT, &[("heartbeat", heartbeat)])
        .field(".electionTimeout"),
        bounds("spec.options.snapshotCount", SNAPSHOT_COUNT),
        bounds("spec.options.maxRequestBytes", MAX_REQUEST_BYTES),
        bounds("spec.options.maxTxnOps", MAX_TXN_OPS),
    ]);
    rules.extend(compaction::cel());
    rules
}

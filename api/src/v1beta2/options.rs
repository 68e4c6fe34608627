//! Settings of the etcd process.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;

/// Settings of the etcd process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OptionsSpec {
    /// How large the database may become, such as `2Gi`, before etcd refuses writes. More than `8Gi` warns. Default: `2Gi`,
    /// or half of the volume where that is not larger than `2Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_backend: Option<Quantity>,

    /// How often the leader says it is alive: a duration such as `100ms`. Default: `100ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval: Option<GoDuration>,

    /// How long a follower waits without a heartbeat before it stands for election: a duration such as `1s`, at least five
    /// heartbeats, at most `50s`. Default: `1s`, or ten heartbeats where only the heartbeat is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub election_timeout: Option<GoDuration>,

    /// When old revisions are dropped by themselves. Default: `{mode: Periodic, retention: 1h}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction: Option<AutoCompactionSpec>,

    /// Committed transactions between two snapshots to disk, 100 to 10000000. Default: etcd's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_count: Option<i64>,

    /// The largest request a client may send, in bytes, 1024 to 104857600. More than 10485760 warns. Default: etcd's
    /// (1572864).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_request_bytes: Option<i64>,

    /// The most operations in one transaction, 1 to 65536. Default: etcd's (128).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_txn_ops: Option<i64>,

    /// How much etcd logs: `debug`, `info`, `warn`, `error`, `panic` or `fatal`; from etcd 3.4 on. Default: etcd's (`info`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<LogLevel>,

    /// How detailed etcd's metrics are: `basic` or `extensive`. Default: etcd's (`basic`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsLevel>,

    /// Further etcd flags, name (without dashes) to value, for what has no field here. Flags the operator owns, flags that
    /// have a field, and flags that this etcd minor does not have are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<BTreeMap<String, String>>,
}

/// When old revisions are dropped by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoCompactionSpec {
    /// `Periodic` keeps what is younger than `retention`, `Revision` keeps the last `retention` revisions (from etcd 3.3 on),
    /// `Off` keeps all. Default: `Periodic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<AutoCompactionMode>,

    /// With `Periodic` a duration such as `1h`; with `Revision` a number such as 10000; with `Off` not allowed. Default: `1h`
    /// with `Periodic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<IntOrString>,
}

/// How old revisions are chosen for compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AutoCompactionMode {
    Periodic,
    Revision,
    Off,
}

/// etcd's log levels, in etcd's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
    Panic,
    Fatal,
}

impl LogLevel {
    /// The word etcd's flag takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Fatal => "fatal",
        }
    }
}

/// etcd's levels of metrics, in etcd's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsLevel {
    Basic,
    Extensive,
}

impl MetricsLevel {
    /// The word etcd's flag takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Extensive => "extensive",
        }
    }
}

//! The flags both binaries understand, so that the chart renders them the same way twice. Pure: parsing only.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Flags common to the webhook and the controller; `#[command(flatten)]` it into the binary's own.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// Kubeconfig to reach the API server with; without it the Pod's service account, else the usual kubeconfig
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,

    /// Where /healthz, /readyz and /metrics are served, in plain HTTP
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)))]
    pub health_listen: SocketAddr,

    /// How much to log: error, warn, info, debug, trace, or a filter such as `info,kube=debug`
    #[arg(long, value_name = "LEVEL", env = "LOG_LEVEL", default_value = "info")]
    pub log_level: String,

    /// How a log line is written
    #[arg(
        long,
        value_name = "FORMAT",
        env = "LOG_FORMAT",
        value_enum,
        default_value_t
    )]
    pub log_format: LogFormat,

    /// etcd version given to a cluster that names none; without it the newest this operator supports
    #[arg(long, value_name = "X.Y.Z", env = "DEFAULT_ETCD_VERSION")]
    pub default_etcd_version: Option<String>,

    /// What an end-of-life etcd minor gets: a warning or a refusal
    #[arg(
        long,
        value_name = "Warn|Deny",
        env = "END_OF_LIFE_VERSIONS",
        value_enum,
        ignore_case = true,
        default_value_t
    )]
    pub end_of_life_versions: EndOfLifeVersions,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// What a cluster on an end-of-life etcd minor gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EndOfLifeVersions {
    #[default]
    #[value(name = "Warn")]
    Warn,
    #[value(name = "Deny")]
    Deny,
}

//! The flags both binaries understand, so that the chart renders them the same way twice. Pure: parsing only.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use etcd_operator_api::policy::BadDefault;
use etcd_operator_api::{EndOfLife, Policy, Version, versions};

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
    #[arg(long, value_name = "X.Y.Z", env = "DEFAULT_ETCD_VERSION", default_value_t = versions::newest())]
    pub default_etcd_version: Version,

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

impl CommonArgs {
    /// What the operator's owner decided about versions.
    pub fn policy(&self) -> Result<Policy, BadDefault> {
        let end_of_life = match self.end_of_life_versions {
            EndOfLifeVersions::Warn => EndOfLife::Warn,
            EndOfLifeVersions::Deny => EndOfLife::Deny,
        };
        Policy::new(self.default_etcd_version, end_of_life)
    }
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        common: CommonArgs,
    }

    fn flags(more: &[&str]) -> Result<CommonArgs, clap::Error> {
        let given = ["program"].iter().chain(more);
        Flags::try_parse_from(given).map(|flags| flags.common)
    }

    #[test]
    fn the_default_version_must_be_one_a_new_cluster_may_have() {
        let accepts = |more: &[&str]| flags(more).unwrap().policy().unwrap();
        assert_eq!(accepts(&[]).default_version, versions::newest());
        assert_eq!(
            accepts(&["--end-of-life-versions=Deny"]).end_of_life,
            EndOfLife::Deny
        );
        assert!(
            flags(&["--default-etcd-version=3.x"])
                .unwrap_err()
                .to_string()
                .contains("X.Y.Z")
        );
        for (given, words) in [
            ("9.9.9", "must be of 3.1 to"),
            ("3.3.27", "end of life"),
            ("3.5.1", "must not be 3.5.1"),
        ] {
            let error = flags(&["--default-etcd-version", given])
                .unwrap()
                .policy()
                .unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

//! The controller's flags.

use std::collections::BTreeSet;

use clap::Parser;
use etcd_operator_process::{CommonArgs, HasCommonArgs};

/// Makes EtcdClusters real and keeps them so
#[derive(Clone, Debug, Parser)]
#[command(name = "etcd-operator-controller", version)]
pub struct Args {
    #[command(flatten)]
    pub common: CommonArgs,

    /// Namespace the controller itself runs in: where its lease is
    #[arg(long, value_name = "NS", env = "POD_NAMESPACE")]
    pub namespace: String,

    /// Lease that decides which of several controllers acts
    #[arg(long, value_name = "NAME", default_value = "etcd-operator-controller")]
    pub lease_name: String,

    /// Name under which the lease is held; without it the host's name and something only this process has
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,

    /// Namespaces to look after, separated by commas; without it all
    #[arg(
        long,
        value_name = "NS,NS",
        env = "WATCH_NAMESPACES",
        value_delimiter = ','
    )]
    pub watch_namespaces: Vec<String>,

    /// Image the agent's pods run, which is the operator's own
    #[arg(
        long,
        value_name = "IMAGE",
        env = "AGENT_IMAGE",
        default_value = concat!("ghcr.io/etcd-operator/etcd-operator:", env!("CARGO_PKG_VERSION"))
    )]
    pub agent_image: String,
}

impl HasCommonArgs for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }
}

impl Args {
    /// Each namespace to look after, once; `None` for all of them.
    pub fn scopes(&self) -> Vec<Option<String>> {
        // Two controllers over one namespace would take every step twice.
        let named: BTreeSet<String> = self
            .watch_namespaces
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty())
            .map(ToOwned::to_owned)
            .collect();
        if named.is_empty() {
            vec![None]
        } else {
            named.into_iter().map(Some).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Args;

    fn scopes(namespaces: &str) -> Vec<Option<String>> {
        let watched = format!("--watch-namespaces={namespaces}");
        Args::parse_from(["controller", "--namespace=ops", &watched]).scopes()
    }

    #[test]
    fn a_namespace_named_twice_is_looked_after_once() {
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(scopes("a,b, a"), [name("a"), name("b")]);
        assert_eq!(scopes(" ,"), [None]);
    }
}

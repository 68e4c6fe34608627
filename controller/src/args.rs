//! The controller's flags.

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

    /// Name under which the lease is held; without it the host's name
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
}

impl HasCommonArgs for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }
}

impl Args {
    /// Each namespace to look after; `None` for all of them.
    pub fn scopes(&self) -> Vec<Option<String>> {
        let named: Vec<Option<String>> = self
            .watch_namespaces
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty())
            .map(|name| Some(name.to_owned()))
            .collect();
        if named.is_empty() { vec![None] } else { named }
    }
}

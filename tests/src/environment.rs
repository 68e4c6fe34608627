//! What a suite is told about the cluster it runs on, by whoever started that cluster.
//!
//! One variable names one file, and the variable is our own: a developer's exported `KUBECONFIG` may name a
//! production cluster, and `cargo test` must never touch it.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

/// Names the file that describes the cluster; absent means there is none.
pub(crate) const VARIABLE: &str = "ETCD_OPERATOR_TEST_ENVIRONMENT";

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Environment {
    /// Reaches the API server from where the suite runs: inside the cluster's network, so that pod and
    /// Service addresses are in reach too.
    pub kubeconfig: PathBuf,
    pub kubectl: PathBuf,
    /// Helm 4, which installs the operator for the suite.
    pub helm: PathBuf,
    pub helm3: PathBuf,
    pub chart: PathBuf,
    /// Extra arguments of `helm upgrade --install`.
    #[serde(default)]
    pub chart_arguments: Vec<String>,
    /// The folder that holds the operator's binaries.
    pub binaries: PathBuf,
    /// The API server's audit log, at metadata level.
    pub audit_log: PathBuf,
    /// The local cluster's name, as `xtask` knows it.
    pub cluster: String,
    /// The program that runs local clusters: it can stop and start their nodes.
    pub xtask: PathBuf,
}

impl Environment {
    /// `None` where no cluster was handed over.
    pub fn from_process() -> anyhow::Result<Option<Self>> {
        let Some(path) = std::env::var_os(VARIABLE) else {
            return Ok(None);
        };
        let path = PathBuf::from(path);
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} does not describe a test environment", path.display()))
            .map(Some)
    }
}

//! A real Kubernetes on this machine.

use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct Options {
    pub name: String,
    pub nodes: u8,
}

#[derive(Debug, Clone)]
pub struct Tools {
    pub kubectl: PathBuf,
    pub helm3: PathBuf,
    pub helm4: PathBuf,
    pub etcdctl: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Running {
    pub name: String,
    /// For programs on the host: the API server through a port of the host's loopback.
    pub kubeconfig: PathBuf,
    /// For programs inside the cluster's network namespace.
    pub kubeconfig_inside: PathBuf,
    pub netns: String,
    pub logs: PathBuf,
    pub tools: Tools,
}

pub fn up(_options: &Options) -> anyhow::Result<Running> {
    anyhow::bail!("not written yet")
}

pub fn down(_name: &str) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}

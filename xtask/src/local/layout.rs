//! Where a local cluster keeps its things, and the addresses in it. Pure, except for finding the cache.
//!
//! What lasts is in the cache, in `clusters/<name>`. Sockets and containerd's state are in `/run/etcd-operator/<name>`, because the
//! path of a Unix socket may have only 107 bytes. Addresses are the same in every cluster: each has a network of its own.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::cache::Cache;

pub const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 254);
pub const API_PORT: u16 = 6443;
pub const SERVICES: &str = "10.96.0.0/16";
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
pub const PODS: &str = "10.244.0.0/16";
pub const MOST_NODES: u8 = 5;

/// The longest path that the kubelet makes a socket of, below its node's folder.
const DEEPEST_SOCKET: &str = "kubelet/pod-resources/kubelet.sock.tmp";
const LONGEST_SOCKET_PATH: usize = 107;

#[derive(Debug, Clone)]
pub struct Layout {
    pub name: String,
    /// `<cache>/clusters/<name>`
    pub state: PathBuf,
    /// `/run/etcd-operator/<name>`
    pub run: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub number: u8,
    pub name: String,
    pub state: PathBuf,
    pub run: PathBuf,
}

impl Layout {
    pub fn new(cache: &Cache, name: &str) -> Result<Self> {
        let fits = (1..=20).contains(&name.len())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !name.starts_with('-');
        if !fits {
            bail!(
                "a cluster's name has 1 to 20 lower-case letters, digits and hyphens; `{name}` does not fit"
            );
        }
        let layout = Self {
            name: name.to_owned(),
            state: cache.clusters().join(name),
            run: Path::new("/run/etcd-operator").join(name),
        };
        if layout.node(1).state.join(DEEPEST_SOCKET).as_os_str().len() > LONGEST_SOCKET_PATH {
            bail!(
                "{} is too long a path for the kubelet's sockets: set ETCD_OPERATOR_CACHE to a shorter folder",
                layout.state.display()
            );
        }
        Ok(layout)
    }

    pub fn netns(&self) -> String {
        format!("etcdop-{}", self.name)
    }

    pub fn netns_file(&self) -> PathBuf {
        Path::new("/run/netns").join(self.netns())
    }

    pub fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    pub fn pki(&self, file: &str) -> PathBuf {
        self.state.join("pki").join(file)
    }

    /// For programs on the host.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// For programs in the cluster's network namespace.
    pub fn kubeconfig_inside(&self) -> PathBuf {
        self.state.join("kubeconfig-inside")
    }

    pub fn node(&self, number: u8) -> Node {
        let name = format!("node{number}");
        Node {
            number,
            state: self.state.join(&name),
            run: self.run.join(&name),
            name,
        }
    }

    pub fn nodes(&self, count: u8) -> Vec<Node> {
        (1..=count).map(|number| self.node(number)).collect()
    }

    pub fn api_server() -> SocketAddrV4 {
        SocketAddrV4::new(API_SERVER, API_PORT)
    }
}

impl Node {
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 10, 0, self.number)
    }

    pub fn pod_subnet(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    pub fn runtime_socket(&self) -> PathBuf {
        self.run.join("containerd.sock")
    }

    pub fn volumes(&self) -> PathBuf {
        self.state.join("volumes")
    }

    /// The name of its pod network: unique on the machine, because network plug-ins keep files by it in one shared folder.
    pub fn network(&self, cluster: &str) -> String {
        format!("etcdop-{cluster}.{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> Cache {
        Cache::at("/home/someone/.cache/etcd-operator")
    }

    #[test]
    fn names_that_make_trouble_as_paths_or_namespaces_are_refused() {
        for name in [
            "",
            "-x",
            "UPPER",
            "a/b",
            "..",
            "a name",
            "twenty-one-characters",
        ] {
            assert!(Layout::new(&cache(), name).is_err(), "{name}");
        }
        assert_eq!(
            Layout::new(&cache(), "demo").unwrap().netns(),
            "etcdop-demo"
        );
    }

    #[test]
    fn a_cache_too_deep_for_sockets_is_refused_before_anything_starts() {
        let deep = Cache::at(format!("/{}", "x".repeat(80)));
        assert!(
            Layout::new(&deep, "demo")
                .unwrap_err()
                .to_string()
                .contains("ETCD_OPERATOR_CACHE")
        );
    }
}

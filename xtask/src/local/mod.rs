//! A real Kubernetes on this machine: real components, real containers, in a network namespace of its own, gone without a trace.
//!
//! `up` starts or finds a cluster, `down` ends it. What a cluster is made of: `layout` (paths, addresses), `pki`, `network`,
//! `control_plane`, `node`, `image_store`, `volumes` (some `bounded`), `gateway`; how its processes are kept: `component`, `procfs`, `power`, `teardown`, `ready`; how people
//! reach it: `access`. Needs root; touches the cache, `/run/etcd-operator`, network namespaces and cgroups of ours.

pub mod access;
pub mod bounded;
pub mod component;
pub mod control_plane;
pub mod gateway;
pub mod image_store;
pub mod layout;
pub mod network;
pub mod node;
pub mod pki;
pub mod power;
pub mod procfs;
pub mod ready;
pub mod start;
pub mod teardown;
pub mod volumes;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use self::layout::{Layout, MOST_NODES};
pub use self::{node::PAUSE_IMAGE, power::end_component};
use crate::{
    cache::Cache,
    images, packages,
    programs::{self, ETCD_OF_THE_CONTROL_PLANE, Program, Programs},
    progress,
};

/// What a cluster and the images, volumes and logs of a whole run of the tests may take.
const ROOM: u64 = 4 << 30;

#[derive(Debug, Clone)]
pub struct Options {
    pub name: String,
    pub nodes: u8,
}

/// Programs that people and tests run on the host, of the pinned versions.
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

/// What a cluster was started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    nodes: u8,
    host_port: u16,
}

/// Starts the cluster, or finds it running. Components that ended are started again; one that cannot be brought back that way
/// (after a reboot, say) is started anew.
pub fn up(options: &Options) -> Result<Running> {
    must_be_root()?;
    if !(1..=MOST_NODES).contains(&options.nodes) {
        bail!(
            "a cluster has 1 to {MOST_NODES} nodes, not {}",
            options.nodes
        );
    }
    packages::ensure_for_a_cluster()?;
    let cache = Cache::open()?;
    let layout = Layout::new(&cache, &options.name)?;
    let programs = programs::ensure(&cache, &Program::all())?;
    enough_room(cache.room()?)?;
    let store = image_store::ensure(&cache, &images::of_a_cluster(&cache, &programs)?)?;
    let _lock = lock(&cache, &options.name)?;
    let running = running(&layout, &programs)?;
    if let Some(record) = record(&layout)
        && network::exists(&layout)
    {
        if record.nodes != options.nodes {
            bail!(
                "cluster `{0}` has {1} nodes, not {2}: `cargo xtask down --name {0}` first",
                options.name,
                record.nodes,
                options.nodes
            );
        }
        match start::again(&layout, &record) {
            Ok(()) => return Ok(running),
            Err(error) => progress::say(&format!(
                "Cluster `{}` does not recover, so it is started anew: {error:#}",
                options.name
            )),
        }
    }
    teardown::tear_down(&layout)?;
    progress::step(
        &format!(
            "Kubernetes v{} with {} nodes, cluster `{}`",
            programs::KUBERNETES,
            options.nodes,
            options.name
        ),
        || start::afresh(&layout, options.nodes, &programs, &store),
    )?;
    Ok(running)
}

/// Ends the cluster and removes whatever is left of it. A cluster that is not there is down already.
pub fn down(name: &str) -> Result<()> {
    must_be_root()?;
    let cache = Cache::open()?;
    let layout = Layout::new(&cache, name)?;
    let _lock = lock(&cache, name)?;
    if !teardown::anything_left(&layout) {
        return Ok(());
    }
    progress::step(&format!("Taking down cluster `{name}`"), || {
        teardown::tear_down(&layout)
    })
}

/// The cluster of that name, if it was started; not a word about how it is.
pub fn find(name: &str) -> Result<Running> {
    let cache = Cache::open()?;
    let layout = Layout::new(&cache, name)?;
    record(&layout).with_context(|| {
        format!("there is no cluster `{name}`: `cargo xtask up --name {name}` starts it")
    })?;
    running(&layout, &programs::ensure(&cache, &Program::all())?)
}

/// The names of all clusters that left a folder.
pub fn names() -> Result<Vec<String>> {
    let entries = fs::read_dir(Cache::open()?.clusters())
        .into_iter()
        .flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// The containerd sockets of a cluster's nodes.
pub fn runtime_sockets(name: &str) -> Result<Vec<PathBuf>> {
    let layout = Layout::new(&Cache::open()?, name)?;
    let record = record(&layout).with_context(|| format!("there is no cluster `{name}`"))?;
    Ok(layout
        .nodes(record.nodes)
        .iter()
        .map(layout::Node::runtime_socket)
        .collect())
}

fn running(layout: &Layout, programs: &Programs) -> Result<Running> {
    Ok(Running {
        name: layout.name.clone(),
        kubeconfig: layout.kubeconfig(),
        kubeconfig_inside: layout.kubeconfig_inside(),
        netns: layout.netns(),
        logs: layout.logs(),
        tools: Tools {
            kubectl: programs.file(&Program::Kubectl)?,
            helm3: programs.file(&Program::Helm3)?,
            helm4: programs.file(&Program::Helm4)?,
            etcdctl: programs.etcd(ETCD_OF_THE_CONTROL_PLANE)?.file("etcdctl"),
        },
    })
}

fn record(layout: &Layout) -> Option<Record> {
    serde_json::from_slice(&fs::read(layout.state.join("cluster.json")).ok()?).ok()
}

fn lock(cache: &Cache, name: &str) -> Result<crate::cache::Lock> {
    cache.lock(&format!("cluster-{name}"), || {
        progress::say(&format!(
            "Waiting for another run that starts or stops cluster `{name}` …"
        ));
    })
}

fn must_be_root() -> Result<()> {
    if Uid::effective().is_root() {
        return Ok(());
    }
    bail!(
        "a local Kubernetes needs root, for namespaces, mounts and containers. As root: `cargo xtask …`, or `sudo -E env PATH=\"$PATH\" cargo xtask …`"
    )
}

/// A disk that fills up under a running cluster looks like anything but a full disk: kubelets evict, and nothing is scheduled.
fn enough_room(bytes: u64) -> Result<()> {
    if bytes >= ROOM {
        return Ok(());
    }
    bail!(
        "{} MiB are left on the cache's disk, and a cluster needs {}: make room, or set ETCD_OPERATOR_CACHE to a folder on another disk",
        bytes >> 20,
        ROOM >> 20
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_nearly_full_is_told_of_before_a_cluster_is_started_on_it() {
        assert!(enough_room(ROOM).is_ok());
        let words = enough_room(300 << 20).unwrap_err().to_string();
        assert!(
            words.starts_with("300 MiB are left on the cache's disk, and a cluster needs 4096:"),
            "{words}"
        );
    }
}

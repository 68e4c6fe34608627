//! Ends a cluster and removes what it left: processes, mounts, the network namespace, cgroups, files. Works from what the kernel
//! says now and not from what was once started, so it also clears up after a crash, a `kill -9` of everything, or a reboot.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sha2::{Digest, Sha256};

use super::{
    component,
    layout::{Layout, MOST_NODES, Node},
    network, node, procfs,
};
use crate::cache;

/// Below a containerd's root or state: folders that hold one per container.
const CONTAINERS: [&str; 3] = [
    "io.containerd.runtime.v2.task/k8s.io",
    "io.containerd.grpc.v1.cri/sandboxes",
    "io.containerd.grpc.v1.cri/containers",
];
const NETWORK_RESULTS: &str = "/var/lib/cni/results";
const PATIENCE: Duration = Duration::from_secs(20);

pub fn tear_down(layout: &Layout) -> Result<()> {
    end_processes(layout)?;
    let containers = containers(layout);
    unmount(layout)?;
    network::delete(layout)?;
    remove_cgroups(&containers);
    for path in strays(layout, &containers) {
        cache::remove(&path)?;
    }
    cache::remove(&layout.run)?;
    cache::remove(&layout.state)?;
    // Folders that clusters share go with the last of them.
    if fs::remove_dir("/run/etcd-operator").is_ok() {
        remove_plugin_folder();
    }
    Ok(())
}

/// Every kubelet makes a socket for device plug-ins in the same place. Where that is all there is, no other kubelet is installed.
fn remove_plugin_folder() {
    let kubelet = Path::new("/var/lib/kubelet");
    let plugins = kubelet.join("device-plugins");
    let own = ["kubelet.sock", "kubelet_internal_checkpoint"];
    if children(kubelet) == [plugins.as_path()]
        && children(&plugins)
            .iter()
            .all(|file| own.contains(&name_of(file).as_str()))
    {
        let _ = fs::remove_dir_all(kubelet);
    }
}

/// Whether there is anything of that cluster.
pub fn anything_left(layout: &Layout) -> bool {
    layout.state.exists()
        || layout.run.exists()
        || network::exists(layout)
        || !processes(layout).is_empty()
}

/// Those that start others come first, or a kubelet would see a container end and start it anew.
fn end_processes(layout: &Layout) -> Result<()> {
    for started in component::recorded(layout)?
        .iter()
        .filter(|started| started.alive())
    {
        end(started.process);
    }
    let started = Instant::now();
    loop {
        // A process may have been starting another one while it was ended: look again until there is none.
        let left = processes(layout);
        if left.is_empty() {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            bail!(
                "these processes of cluster `{}` do not end: {left:?}",
                layout.name
            );
        }
        left.into_iter().for_each(end);
        thread::sleep(Duration::from_millis(20));
    }
}

fn processes(layout: &Layout) -> BTreeSet<i32> {
    let mut found = procfs::in_network_of(&layout.netns_file());
    found.extend(procfs::with_root_below(&layout.state));
    found.extend(
        component::recorded(layout)
            .unwrap_or_default()
            .iter()
            .filter(|started| started.alive())
            .map(|started| started.process),
    );
    found.retain(|process| procfs::exists(*process));
    found
}

pub(super) fn end(process: i32) {
    // It may have ended since it was found.
    let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
}

fn unmount(layout: &Layout) -> Result<()> {
    for folder in [&layout.state, &layout.run] {
        for point in procfs::mounted_below(folder) {
            let _ = umount2(&point, MntFlags::MNT_DETACH);
        }
        // Removing files goes through mounts: never go on while one is left.
        if let Some(point) = procfs::mounted_below(folder).first() {
            bail!("cannot unmount {}", point.display());
        }
    }
    Ok(())
}

/// Where containers are in the hierarchy of cgroups: containerd's name for the namespace that Kubernetes uses.
const CGROUP: &str = "/k8s.io";

pub(super) fn remove_cgroups(containers: &BTreeSet<String>) {
    let since = Instant::now();
    // A cgroup is busy until the kernel has let go of the last process in it.
    while since.elapsed() < Duration::from_secs(2) {
        let folders: Vec<_> = containers
            .iter()
            .flat_map(|container| procfs::cgroup_folders(&format!("{CGROUP}/{container}")))
            .collect();
        if folders.is_empty() {
            break;
        }
        for cgroup in folders
            .iter()
            .flat_map(|folder| procfs::cgroups_below(folder))
        {
            let _ = fs::remove_dir(cgroup);
        }
        thread::sleep(Duration::from_millis(10));
    }
    // Another cluster's containers keep it.
    for shared in procfs::cgroup_folders(CGROUP) {
        let _ = fs::remove_dir(shared);
    }
}

/// The names of all containers that were not taken down in order. containerd forgets some of them when it outlives their shims, and
/// what they left has to be found all the same: hence more than one place.
fn containers(layout: &Layout) -> BTreeSet<String> {
    let running = children(&layout.run)
        .into_iter()
        .map(|node| node.join("state"));
    let kept = children(&layout.state)
        .into_iter()
        .map(|node| node::runtime_root(&node));
    let networked = children(Path::new(NETWORK_RESULTS))
        .into_iter()
        .filter_map(|path| {
            let name = name_of(&path);
            let ours = name.starts_with(&format!("{}.", layout.netns()));
            ours.then(|| container_of(&name).map(str::to_owned))
                .flatten()
        });
    known_to(running.chain(kept)).chain(networked).collect()
}

/// The containers of one node, as its containerd knows them.
pub(super) fn containers_of(node: &Node) -> BTreeSet<String> {
    known_to([node.run.join("state"), node::runtime_root(&node.state)]).collect()
}

/// The containers that have a folder below these roots and states of containerds.
fn known_to(roots: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = String> {
    roots
        .into_iter()
        .flat_map(|root| CONTAINERS.map(|folder| root.join(folder)))
        .flat_map(|folder| children(&folder))
        .map(|path| name_of(&path))
}

/// The container in `<network>-<container>-<interface>`.
fn container_of(result: &str) -> Option<&str> {
    result.rsplit('-').nth(1)
}

/// What kubelets, shims and network plug-ins keep in folders that are not ours to choose.
fn strays(layout: &Layout, containers: &BTreeSet<String>) -> Vec<PathBuf> {
    let ours = |link: &PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(&layout.state));
    let mut found: Vec<_> = children(Path::new("/var/log/containers"))
        .into_iter()
        .filter(ours)
        .collect();
    let results = children(Path::new(NETWORK_RESULTS));
    found.extend(results.into_iter().filter(|path| {
        container_of(&name_of(path)).is_some_and(|container| containers.contains(container))
    }));
    for node in layout.nodes(MOST_NODES) {
        found.extend(
            containers
                .iter()
                .map(|container| shim_socket(&node.runtime_socket(), container)),
        );
    }
    found
}

/// All shims of a machine listen in one folder, under a hash of whose and which they are.
fn shim_socket(runtime: &Path, sandbox: &str) -> PathBuf {
    let whose = runtime.join("k8s.io").join(sandbox);
    let hash = Sha256::digest(whose.as_os_str().as_encoded_bytes());
    Path::new("/run/containerd/s").join(format!("{hash:x}"))
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_listens_under_the_hash_of_its_containerd_and_sandbox() {
        let runtime = Path::new("/run/etcd-operator/demo/node1/containerd.sock");
        let sandbox = "fb30def7d486d7f224b5d70500899e96b6f66892f2238ba37badeb3d89c9b2df";
        assert_eq!(
            shim_socket(runtime, sandbox),
            Path::new(
                "/run/containerd/s/12a82003071f100d153a6bb4f3c96eeff9c41ae47823b6003e7e6119b18d45d0"
            )
        );
    }

    #[test]
    fn a_network_result_names_its_container() {
        assert_eq!(
            container_of("etcdop-my-lab.node1-fb30def7-eth0"),
            Some("fb30def7")
        );
        assert_eq!(container_of("cni-loopback-fb30def7-lo"), Some("fb30def7"));
        assert_eq!(container_of("x"), None);
    }
}

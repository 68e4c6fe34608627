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

use super::{component, layout::Layout, network, node, procfs};
use crate::cache;

/// Below a containerd's root and state: one folder per container.
const BUNDLES: &str = "io.containerd.runtime.v2.task/k8s.io";
const PATIENCE: Duration = Duration::from_secs(20);

pub fn tear_down(layout: &Layout) -> Result<()> {
    end_processes(layout)?;
    let containers = containers(layout);
    let shims = shim_sockets(layout);
    unmount(layout)?;
    network::delete(layout)?;
    remove_cgroups(&containers);
    for path in shims.into_iter().chain(strays(layout, &containers)) {
        cache::remove(&path)?;
    }
    cache::remove(&layout.run)?;
    cache::remove(&layout.state)?;
    // Folders that clusters share go with the last of them.
    let _ = fs::remove_dir("/run/etcd-operator");
    Ok(())
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

fn end(process: i32) {
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

fn remove_cgroups(containers: &BTreeSet<String>) {
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

/// The names of all containers there have been and that were not taken down in order.
fn containers(layout: &Layout) -> BTreeSet<String> {
    let name = |path: PathBuf| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let running = children(&layout.run)
        .into_iter()
        .map(|node| node.join("state"));
    let kept = children(&layout.state)
        .into_iter()
        .map(|node| node::runtime_root(&node));
    let folders = running
        .chain(kept)
        .flat_map(|root| children(&root.join(BUNDLES)));
    folders.filter_map(name).collect()
}

/// containerd's shims listen in a folder that every containerd of the machine shares; each bundle says where its own does.
fn shim_sockets(layout: &Layout) -> Vec<PathBuf> {
    let nodes = children(&layout.run);
    let bundles = nodes
        .iter()
        .flat_map(|node| children(&node.join("state").join(BUNDLES)));
    bundles
        .filter_map(|bundle| {
            Some(PathBuf::from(
                fs::read_to_string(bundle.join("address"))
                    .ok()?
                    .trim()
                    .strip_prefix("unix://")?,
            ))
        })
        .collect()
}

/// What kubelets and network plug-ins keep in folders that are not ours to choose.
fn strays(layout: &Layout, containers: &BTreeSet<String>) -> Vec<PathBuf> {
    let ours =
        |link: &PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(&layout.state));
    let mut found: Vec<_> = children(Path::new("/var/log/containers"))
        .into_iter()
        .filter(ours)
        .collect();
    // Named `<network>-<container>-<interface>`.
    let of_our_pods = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.rsplit('-')
            .nth(1)
            .is_some_and(|container| containers.contains(container))
    };
    found.extend(
        children(Path::new("/var/lib/cni/results"))
            .into_iter()
            .filter(of_our_pods),
    );
    found
}

fn children(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

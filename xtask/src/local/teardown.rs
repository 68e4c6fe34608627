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

use super::{component, layout::Layout, network, procfs};
use crate::cache;

const PATIENCE: Duration = Duration::from_secs(20);

pub fn tear_down(layout: &Layout) -> Result<()> {
    end_processes(layout)?;
    let shims = shim_sockets(layout);
    unmount(layout)?;
    network::delete(layout)?;
    remove_cgroups(layout);
    for path in shims.into_iter().chain(strays(layout)) {
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
    found.extend(procfs::in_cgroup(&layout.cgroup()));
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

fn remove_cgroups(layout: &Layout) {
    let started = Instant::now();
    // A cgroup is busy until the kernel has let go of the last process in it.
    while started.elapsed() < Duration::from_secs(2) {
        let folders = procfs::cgroup_folders(&layout.cgroup());
        if folders.is_empty() {
            break;
        }
        for folder in folders {
            for cgroup in procfs::cgroups_below(&folder) {
                let _ = fs::remove_dir(cgroup);
            }
            if let Some(parent) = folder.parent() {
                let _ = fs::remove_dir(parent);
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// containerd's shims listen in a folder that every containerd of the machine shares; each bundle says where its own does.
fn shim_sockets(layout: &Layout) -> Vec<PathBuf> {
    let nodes = children(&layout.run);
    let bundles = nodes
        .iter()
        .flat_map(|node| children(&node.join("state/io.containerd.runtime.v2.task/k8s.io")));
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
fn strays(layout: &Layout) -> Vec<PathBuf> {
    let ours =
        |link: &PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(&layout.state));
    let mut found: Vec<_> = children(Path::new("/var/log/containers"))
        .into_iter()
        .filter(ours)
        .collect();
    let prefix = format!("{}.", layout.netns());
    let of_our_networks = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    };
    found.extend(
        children(Path::new("/var/lib/cni/results"))
            .into_iter()
            .filter(of_our_networks),
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

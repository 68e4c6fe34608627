//! `cargo xtask node stop|start`: a node that loses its power, and gets it back. Also the end of a single component.
//!
//! Stopping ends the kubelet, the containerd and every container of the node at once and without a word, as a pulled plug does:
//! nobody tells the API server, and packets to its pods get no answer, not even a refusal. What is on its disk stays, what was in
//! memory is gone. Touches that node's processes, mounts, cgroups and `/run` folder, and the rules of the cluster's network.

use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, umount2};

use super::{
    Record,
    component::{self, Started},
    layout::{Layout, Node},
    lock, must_be_root, procfs, record, teardown,
};
use crate::{cache::Cache, command};

const PATIENCE: Duration = Duration::from_secs(30);
/// What runs for so long has found what it needs.
const STAYS: Duration = Duration::from_secs(3);
/// Where packets to a pod pass: from other pods, and from processes of the cluster itself.
const WAYS: [&str; 2] = ["FORWARD", "OUTPUT"];

/// Pulls the plug.
pub fn stop(cluster: &str, node: &str) -> Result<()> {
    with(cluster, node, |layout, node| {
        // First, so that no process gets to say good-bye.
        cut_off(layout, node)?;
        end_processes(layout, node)?;
        forget_memory(node)
    })
}

/// Powers it up: containerd and kubelet start as they did the first time, and find what is on the disk.
pub fn start(cluster: &str, node: &str) -> Result<()> {
    with(cluster, node, |layout, node| {
        fs::create_dir_all(&node.run)?;
        connect(layout, node);
        keep_starting(layout, node)
    })
}

/// A kubelet ends when its containerd does not answer yet, and on a real machine is started again until it does.
fn keep_starting(layout: &Layout, node: &Node) -> Result<()> {
    let since = Instant::now();
    let mut last = since;
    while last.elapsed() < STAYS {
        if since.elapsed() > PATIENCE {
            bail!(
                "{} does not stay up: see the logs of its kubelet and its containerd",
                node.name
            );
        }
        for ended in components(layout, node)?
            .iter()
            .rev()
            .filter(|started| !started.alive())
        {
            ended.component.start(layout)?;
            last = Instant::now();
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Ends one component of the cluster; `up` starts it again.
pub fn end_component(cluster: &str, component: &str) -> Result<()> {
    must_be_root()?;
    let cache = Cache::open()?;
    let layout = Layout::new(&cache, cluster)?;
    let _lock = lock(&cache, cluster)?;
    let recorded = component::recorded(&layout)?;
    let started = recorded
        .iter()
        .find(|started| started.component.name == component)
        .with_context(|| format!("cluster `{cluster}` has no {component}"))?;
    if started.alive() {
        teardown::end(started.process);
    }
    Ok(())
}

fn with(
    cluster: &str,
    node: &str,
    change: impl FnOnce(&Layout, &Node) -> Result<()>,
) -> Result<()> {
    must_be_root()?;
    let cache = Cache::open()?;
    let layout = Layout::new(&cache, cluster)?;
    let _lock = lock(&cache, cluster)?;
    let Record { nodes, .. } =
        record(&layout).with_context(|| format!("there is no cluster `{cluster}`"))?;
    let nodes = layout.nodes(nodes);
    let Some(node) = nodes.iter().find(|known| known.name == node) else {
        let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
        bail!(
            "cluster `{cluster}` has no node `{node}`: it has {}",
            names.join(", ")
        );
    };
    change(&layout, node)
}

/// The kubelet before the containerd: it would start others.
fn components(layout: &Layout, node: &Node) -> Result<Vec<Started>> {
    let recorded = component::recorded(layout)?;
    let of = |kind: &str| {
        let name = format!("{kind}-{}", node.name);
        recorded
            .iter()
            .find(|started| started.component.name == name)
            .cloned()
            .with_context(|| format!("{name} was never started"))
    };
    Ok(vec![of("kubelet")?, of("containerd")?])
}

fn end_processes(layout: &Layout, node: &Node) -> Result<()> {
    for started in components(layout, node)?
        .iter()
        .filter(|started| started.alive())
    {
        teardown::end(started.process);
    }
    let since = Instant::now();
    loop {
        let left = processes(layout, node)?;
        if left.is_empty() {
            return Ok(());
        }
        if since.elapsed() > PATIENCE {
            bail!("these processes of {} do not end: {left:?}", node.name);
        }
        left.into_iter().for_each(teardown::end);
        thread::sleep(Duration::from_millis(20));
    }
}

fn processes(layout: &Layout, node: &Node) -> Result<BTreeSet<i32>> {
    let socket = node.runtime_socket().display().to_string();
    // Shims outlive their containerd and would restart nothing, but they tell the next one how their containers ended.
    let mut found = procfs::with_argument(&socket);
    found.extend(procfs::with_root_below(&node.state));
    found.extend(
        components(layout, node)?
            .iter()
            .filter(|started| started.alive())
            .map(|started| started.process),
    );
    found.retain(|process| procfs::exists(*process));
    Ok(found)
}

/// Mounts, cgroups and everything in `/run`. Volumes are disks and stay.
fn forget_memory(node: &Node) -> Result<()> {
    let containers = teardown::containers_of(node);
    let mounted = |node: &Node| {
        let below = procfs::mounted_below(&node.state).into_iter();
        let mut points: Vec<_> = below
            .filter(|point| !point.starts_with(node.volumes()))
            .collect();
        points.extend(procfs::mounted_below(&node.run));
        points
    };
    for point in mounted(node) {
        let _ = umount2(&point, MntFlags::MNT_DETACH);
    }
    // Removing files goes through mounts: never go on while one is left.
    if let Some(point) = mounted(node).first() {
        bail!("cannot unmount {}", point.display());
    }
    teardown::remove_cgroups(&containers);
    crate::cache::remove(&node.run)
}

/// Packets to its pods vanish. Without the route, a process of the cluster itself would be told that there is none.
fn cut_off(layout: &Layout, node: &Node) -> Result<()> {
    command::run(ip(layout).args(["route", "replace", &node.pod_subnet(), "dev", "lo"]))?;
    for way in WAYS {
        command::run(iptables(layout).args(["-I", way, "-d", &node.pod_subnet(), "-j", "DROP"]))?;
    }
    Ok(())
}

/// Undoes `cut_off`, as often as it was done; what is not there needs no undoing.
fn connect(layout: &Layout, node: &Node) {
    let rule = |way: &str| {
        let arguments = ["-D", way, "-d", &node.pod_subnet(), "-j", "DROP"];
        command::output(iptables(layout).args(arguments))
    };
    for way in WAYS {
        while rule(way).is_ok() {}
    }
    let _ = command::output(ip(layout).args(["route", "delete", &node.pod_subnet(), "dev", "lo"]));
}

fn ip(layout: &Layout) -> Command {
    let mut ip = Command::new("ip");
    ip.args(["-netns", &layout.netns()]);
    ip
}

fn iptables(layout: &Layout) -> Command {
    let mut iptables = Command::new("nsenter");
    iptables
        .arg(format!("--net={}", layout.netns_file().display()))
        .args(["--", "iptables", "--wait"]);
    iptables
}

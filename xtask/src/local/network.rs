//! The cluster's own network namespace: pod, Service and node addresses exist only in it, so two clusters never meet and nothing
//! is left on the host. Runs `ip` and `nsenter`.

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::layout::{API_SERVER, Layout, Node, SERVICES};
use crate::command;

pub fn exists(layout: &Layout) -> bool {
    command::output(Command::new("ip").args(["netns", "list"])).is_ok_and(|list| {
        list.lines()
            .any(|line| line.split_whitespace().next() == Some(&layout.netns()))
    })
}

pub fn create(layout: &Layout, nodes: &[Node]) -> Result<()> {
    command::run(Command::new("ip").args(["netns", "add", &layout.netns()]))?;
    let mut batch = format!("link set lo up\naddress replace {API_SERVER}/32 dev lo\n");
    for node in nodes {
        let _ = writeln!(batch, "address replace {}/32 dev lo", node.address());
    }
    // There is no default route: without this one, processes outside pods (the API server calling a webhook) could not address a
    // Service, and the rules that lead on to a pod are only asked about packets that have somewhere to go.
    let _ = writeln!(batch, "route replace {SERVICES} dev lo src {API_SERVER}");
    let mut ip = Command::new("ip")
        .args(["-netns", &layout.netns(), "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start ip")?;
    ip.stdin
        .take()
        .context("ip's input")?
        .write_all(batch.as_bytes())?;
    let done = ip.wait_with_output()?;
    if !done.status.success() {
        bail!(
            "cannot set up the network namespace {}:\n{}",
            layout.netns(),
            String::from_utf8_lossy(&done.stderr)
        );
    }
    command::run(
        Command::new("nsenter")
            .arg(format!("--net={}", layout.netns_file().display()))
            .args(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]),
    )
}

pub fn delete(layout: &Layout) -> Result<()> {
    if exists(layout) {
        command::run(Command::new("ip").args(["netns", "delete", &layout.netns()]))?;
    }
    Ok(())
}

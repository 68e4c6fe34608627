//! How people reach a local cluster: kubectl, helm, etcdctl, logs, status. Hands the terminal to those programs.

use std::{
    fs,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};

use super::{Layout, Running, component, find, names, network, ready, record};
use crate::{cache::Cache, command};

/// A program of the pinned versions.
#[derive(Debug, Clone, Copy)]
pub enum Tool {
    Kubectl,
    Helm3,
    Helm4,
}

/// Runs the tool against that cluster, in this terminal.
pub fn tool(name: &str, tool: Tool, arguments: &[String]) -> Result<ExitCode> {
    let running = find(name)?;
    let program = match tool {
        Tool::Kubectl => &running.tools.kubectl,
        Tool::Helm3 => &running.tools.helm3,
        Tool::Helm4 => &running.tools.helm4,
    };
    command::hand_over(
        Command::new(program)
            .env("KUBECONFIG", &running.kubeconfig)
            .args(arguments),
    )
}

/// etcdctl in a ready member of an EtcdCluster, with that member's own address.
pub fn etcdctl(
    name: &str,
    namespace: &str,
    cluster: &str,
    arguments: &[String],
) -> Result<ExitCode> {
    let running = find(name)?;
    let member = ready_member(&running, namespace, cluster)?;
    // The image has no shell, so the environment is set by etcdctl's own variables through kubectl's argument list.
    let mut kubectl = kubectl(&running, namespace);
    kubectl.args([
        "exec",
        "--stdin",
        &member,
        "--container",
        "etcd",
        "--",
        "etcdctl",
    ]);
    command::hand_over(kubectl.args(arguments))
}

fn ready_member(running: &Running, namespace: &str, cluster: &str) -> Result<String> {
    let listing = command::output(kubectl(running, namespace).args([
        "get",
        "pods",
        "--selector",
        &format!("etcd_cluster={cluster}"),
        "--output",
        "json",
    ]))?;
    let pods: serde_json::Value = serde_json::from_str(&listing)?;
    let ready = |pod: &&serde_json::Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        })
    };
    let pods = pods["items"].as_array().context("a list of pods")?;
    let found = pods
        .iter()
        .find(ready)
        .and_then(|pod| pod["metadata"]["name"].as_str());
    let Some(found) = found else {
        bail!(
            "EtcdCluster `{cluster}` in namespace `{namespace}` has no ready member ({} pods)",
            pods.len()
        );
    };
    Ok(found.to_owned())
}

fn kubectl(running: &Running, namespace: &str) -> Command {
    let mut kubectl = Command::new(&running.tools.kubectl);
    kubectl
        .env("KUBECONFIG", &running.kubeconfig)
        .args(["--namespace", namespace]);
    kubectl
}

/// What there is, how it is, and where to look further.
pub fn status() -> Result<()> {
    let cache = Cache::open()?;
    let names = names()?;
    if names.is_empty() {
        println!("No local cluster. `cargo xtask up` starts one.");
    }
    for name in names {
        let layout = Layout::new(&cache, &name)?;
        let Some(record) = record(&layout) else {
            println!(
                "{name}: did not come up; logs in {}; `cargo xtask down --name {name}` removes it",
                layout.logs().display()
            );
            continue;
        };
        let components = component::recorded(&layout)?;
        let ended: Vec<_> = components
            .iter()
            .filter(|started| !started.alive())
            .map(|started| started.component.name.as_str())
            .collect();
        let state = match (network::exists(&layout), ended.is_empty()) {
            (true, true) if ready::is_whole(&layout, record.nodes) => "ready".to_owned(),
            (true, true) => "running, not ready".to_owned(),
            (true, false) => format!(
                "not running: {}; `cargo xtask up --name {name}` starts them again",
                ended.join(", ")
            ),
            (false, _) => {
                format!("gone (after a reboot?); `cargo xtask up --name {name}` starts it anew")
            }
        };
        println!("{name}: {state}");
        println!("  nodes       {}", record.nodes);
        println!("  kubeconfig  {}", layout.kubeconfig().display());
        println!("  logs        {}", layout.logs().display());
        println!("  network     {}", layout.netns());
    }
    Ok(())
}

/// Without a component: which logs there are.
pub fn logs(name: &str, component: Option<&str>, follow: bool) -> Result<ExitCode> {
    let layout = Layout::new(&Cache::open()?, name)?;
    let entries =
        fs::read_dir(layout.logs()).with_context(|| format!("there is no cluster `{name}`"))?;
    let mut logs: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| Some(file.strip_suffix(".log")?.to_owned()))
        .collect();
    logs.sort();
    let Some(component) = component else {
        println!("{}", layout.logs().display());
        for log in &logs {
            println!("  {log}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    if !logs.iter().any(|log| log == component) {
        bail!("no log of `{component}`; there are: {}", logs.join(", "));
    }
    let path = layout.logs().join(format!("{component}.log"));
    let mut show = Command::new(if follow { "tail" } else { "cat" });
    if follow {
        show.args(["-n", "50", "-F"]);
    }
    command::hand_over(show.arg(path))
}

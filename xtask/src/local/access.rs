//! How people reach a local cluster: kubectl, helm, etcdctl, logs, status. Hands the terminal to those programs.

use std::{
    fs,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::ObjectList};

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

/// etcdctl in a ready member of an EtcdCluster, speaking to that member as its own flags say.
pub fn etcdctl(
    name: &str,
    namespace: &str,
    cluster: &str,
    arguments: &[String],
) -> Result<ExitCode> {
    let running = find(name)?;
    let member = ready_member(&running, namespace, cluster)?;
    let mut kubectl = kubectl(&running, namespace);
    kubectl.args([
        "exec",
        "--stdin",
        &member.pod,
        "--container",
        "etcd",
        "--",
        "etcdctl",
    ]);
    command::hand_over(kubectl.args(member.connection).args(arguments))
}

struct Member {
    pod: String,
    connection: Vec<String>,
}

fn ready_member(running: &Running, namespace: &str, cluster: &str) -> Result<Member> {
    let selector = format!("etcd_cluster={cluster}");
    let get = ["get", "pods", "--selector", &selector, "--output", "json"];
    let listing = command::output(kubectl(running, namespace).args(get))?;
    let pods: ObjectList<Pod> = serde_json::from_str(&listing)?;
    let ready = |pod: &&Pod| {
        let conditions = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let Some(pod) = pods.items.iter().find(ready) else {
        bail!(
            "EtcdCluster `{cluster}` in namespace `{namespace}` has no ready member ({} pods)",
            pods.items.len()
        );
    };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let flags = containers.flat_map(|container| container.args.iter().flatten());
    Ok(Member {
        pod: pod.name_any(),
        connection: connection(flags),
    })
}

/// etcdctl's flags that fit a member's own.
fn connection<'a>(member: impl Iterator<Item = &'a String>) -> Vec<String> {
    let twins = [
        ("--advertise-client-urls=", "--endpoints="),
        ("--trusted-ca-file=", "--cacert="),
        ("--cert-file=", "--cert="),
        ("--key-file=", "--key="),
    ];
    member
        .filter_map(|flag| {
            twins
                .iter()
                .find_map(|(theirs, ours)| Some(format!("{ours}{}", flag.strip_prefix(theirs)?)))
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcdctl_speaks_to_a_member_with_the_certificates_of_that_member() {
        let member = [
            "--name=a",
            "--advertise-client-urls=https://a.c.n.svc:2379",
            "--cert-file=/x.crt",
            "--peer-cert-file=/p.crt",
        ]
        .map(str::to_owned);
        assert_eq!(
            connection(member.iter()),
            ["--endpoints=https://a.c.n.svc:2379", "--cert=/x.crt"]
        );
    }
}

//! Time from the start of a program to its first `200` on /readyz, as itself: its own account, the arguments the chart gives it,
//! inside the cluster's network.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authentication::v1::TokenRequest,
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher,
};
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::creation::until_none;
use crate::{
    command,
    local::Running,
    operator::{NAMESPACE, RELEASE, binaries},
};

/// A program that is not ready by then will not be.
const LIMIT: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
pub(super) enum Program {
    Webhook,
    Controller,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Webhook => "etcd-operator-webhook",
            Self::Controller => "etcd-operator-controller",
        }
    }
}

/// All that is needed to start the program outside its pod.
#[derive(Debug)]
pub(super) struct Plan {
    program: Program,
    arguments: Vec<String>,
    kubeconfig: PathBuf,
    netns: PathBuf,
    log: PathBuf,
}

pub(super) async fn plan(client: &Client, running: &Running, program: Program) -> Result<Plan> {
    let deployment = deployments(client).get(program.name()).await?;
    let pod = deployment
        .spec
        .and_then(|spec| spec.template.spec)
        .context("a Deployment has a pod")?;
    let account = pod.service_account_name.context("the pod has an account")?;
    let container = pod
        .containers
        .into_iter()
        .next()
        .context("the pod has a container")?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let token = accounts
        .create_token_request(&account, &PostParams::default(), &TokenRequest::default())
        .await?;
    let token = token.status.context("a token was asked for")?.token;

    let mut kubeconfig: Value =
        serde_yaml_ng::from_str(&fs::read_to_string(&running.kubeconfig_inside)?)?;
    let user = kubeconfig
        .pointer_mut("/users/0/user")
        .context("the kubeconfig names a user")?;
    *user = json!({ "token": token });
    let path = running
        .kubeconfig
        .with_file_name(format!("{}.kubeconfig", program.name()));
    fs::write(&path, kubeconfig.to_string())?;
    Ok(Plan {
        program,
        arguments: without_addresses(container.args.unwrap_or_default()),
        kubeconfig: path,
        netns: PathBuf::from("/run/netns").join(&running.netns),
        log: running.logs.join(format!("{}-bench.log", program.name())),
    })
}

/// The addresses of the pod are taken on this machine; each start gets its own.
fn without_addresses(arguments: Vec<String>) -> Vec<String> {
    arguments
        .into_iter()
        .filter(|word| !word.starts_with("--listen=") && !word.starts_with("--health-listen="))
        .collect()
}

impl Plan {
    /// Milliseconds of each round.
    pub(super) fn measure(&self, rounds: usize) -> Result<Vec<f64>> {
        // A thread of its own moves into the network; what it starts and connects to is there too.
        let measured = thread::scope(|scope| {
            scope
                .spawn(|| {
                    let netns = File::open(&self.netns)?;
                    setns(netns, CloneFlags::CLONE_NEWNET)
                        .context("entering the cluster's network")?;
                    (0..rounds)
                        .map(|_| self.once())
                        .collect::<Result<Vec<f64>>>()
                })
                .join()
        });
        measured.map_err(|_| anyhow!("the measuring thread panicked"))?
    }

    fn once(&self) -> Result<f64> {
        let health = free_address()?;
        let log = File::create(&self.log)?;
        let mut command = Command::new(binaries().join(self.program.name()));
        command
            .env_clear()
            .env("POD_NAME", "bench")
            .args(&self.arguments)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args([
                "--namespace",
                NAMESPACE,
                "--health-listen",
                &health.to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if matches!(self.program, Program::Webhook) {
            command.args(["--listen", &free_address()?.to_string()]);
        }
        let started = Instant::now();
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {}", self.program.name()))?;
        let ready = self.until_ready(&mut child, health, started);
        stop(child)?;
        ready
    }

    fn until_ready(&self, child: &mut Child, health: SocketAddr, started: Instant) -> Result<f64> {
        let name = self.program.name();
        let said = || command::tail(&self.log, 15);
        loop {
            if ready(health).unwrap_or(false) {
                return Ok(started.elapsed().as_secs_f64() * 1e3);
            }
            if let Some(status) = child.try_wait()? {
                bail!("{name} ended ({status}) before it was ready:\n{}", said());
            }
            if started.elapsed() > LIMIT {
                bail!(
                    "{name} is not ready after {} s:\n{}",
                    LIMIT.as_secs(),
                    said()
                );
            }
            thread::sleep(PACE);
        }
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn ready(address: SocketAddr) -> Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

/// As Kubernetes does, so that the lease is given back and the next round need not wait for it.
fn stop(mut child: Child) -> Result<()> {
    if child.try_wait()?.is_none() {
        kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
    }
    child.wait()?;
    Ok(())
}

/// Stops the controller of the cluster.
pub(super) async fn make_room(client: &Client) -> Result<()> {
    let none = json!({"spec": {"replicas": 0}});
    let controller = Program::Controller.name();
    deployments(client)
        .patch(controller, &PatchParams::default(), &Patch::Merge(&none))
        .await?;
    let selector =
        format!("app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=controller");
    until_none::<Pod>(
        Api::namespaced(client.clone(), NAMESPACE),
        watcher::Config::default().labels(&selector),
    )
    .await
}

fn deployments(client: &Client) -> Api<Deployment> {
    Api::namespaced(client.clone(), NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_addresses_of_the_pod_are_left_out() {
        let arguments = [
            "--listen=0.0.0.0:10250",
            "--crd=x",
            "--health-listen=0.0.0.0:8080",
            "--log-level=info",
        ];
        assert_eq!(
            without_addresses(arguments.map(str::to_owned).to_vec()),
            ["--crd=x", "--log-level=info"]
        );
    }
}

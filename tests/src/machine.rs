//! The machine beneath the cluster: its nodes run right here, so a scenario can reach into them as fate does. Signals processes of
//! containers, finds volumes' folders, takes nodes' power away. Reads `/proc`; runs `xtask`.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::Command;

use crate::{Context, command};

/// The main process of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(Pid);

impl Process {
    /// Found by the container's identity, which is in the name of its cgroup and nobody else's.
    pub fn of(pod: &Pod, container: &str) -> anyhow::Result<Self> {
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let id = statuses
            .into_iter()
            .find(|status| status.name == container)
            .and_then(|status| status.container_id.as_deref()?.rsplit_once("//"))
            .map(|(_, id)| id.to_owned())
            .with_context(|| format!("{} runs no container {container}", pod.name_any()))?;
        ensure!(!id.is_empty(), "{} has no container yet", pod.name_any());
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            let text = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
            if !text("cgroup").contains(&id) || !is_first(&text("status")) {
                continue;
            }
            let number = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            return number
                .map(|number| Self(Pid::from_raw(number)))
                .context("a process has a number");
        }
        bail!("no process of {} runs here", pod.name_any())
    }

    /// `kill -9`.
    pub fn kill(self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL)
    }

    /// It keeps its sockets and answers nobody.
    pub fn freeze(self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub fn thaw(self) -> anyhow::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(self, signal: Signal) -> anyhow::Result<()> {
        kill(self.0, signal).with_context(|| format!("{signal} to process {}", self.0))
    }
}

/// Whether a process is the first of its container: `NSpid: <here> … 1`.
fn is_first(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .is_some_and(|numbers| {
            let mut numbers = numbers.split_whitespace();
            numbers.next().is_some() && numbers.next_back() == Some("1")
        })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    Stop,
    Start,
}

impl Context {
    /// Where the data of a claim is on this machine.
    pub async fn folder_of(&self, claim: &str) -> anyhow::Result<PathBuf> {
        let found: PersistentVolumeClaim = self.api().get(claim).await?;
        let volume = found
            .spec
            .and_then(|spec| spec.volume_name)
            .with_context(|| format!("claim {claim} has a volume"))?;
        let volumes: Api<PersistentVolume> = Api::all(self.client());
        let path = volumes
            .get(&volume)
            .await?
            .spec
            .and_then(|spec| spec.local)
            .map(|local| PathBuf::from(local.path))
            .with_context(|| format!("volume {volume} is a folder"))?;
        ensure!(path.is_dir(), "{} is not here", path.display());
        Ok(path)
    }

    /// Takes a node's power away, or gives it back.
    pub async fn power(&self, power: Power, node: &str) -> anyhow::Result<()> {
        let environment = self.environment();
        let what = match power {
            Power::Stop => "stop",
            Power::Start => "start",
        };
        let mut xtask = Command::new(&environment.xtask);
        xtask.args(["node", "--name", &environment.cluster, what, node]);
        command::run(xtask, None).await?.ok().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_container_is_number_one_in_it() {
        assert!(is_first("Name:\tetcd\nNSpid:\t4711\t1\n"));
        assert!(!is_first("Name:\tetcdctl\nNSpid:\t4712\t17\n"));
        // The first process of the machine itself is in no container.
        assert!(!is_first("Name:\tinit\nNSpid:\t1\n"));
        assert!(!is_first(""));
    }
}

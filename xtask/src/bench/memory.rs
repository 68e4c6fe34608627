//! Memory and CPU time of the operator's running processes, as the kernel of this machine tells them. Reads /proc.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::operator::{NAMESPACE, RELEASE};

/// Megabytes of each process, by program: the containers run on this very machine.
pub(super) async fn of_operator(client: &Client) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut figures = Vec::new();
    for program in ["webhook", "controller"] {
        let selector =
            format!("app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component={program}");
        let pods = pods.list(&ListParams::default().labels(&selector)).await?;
        let megabytes: Vec<f64> = pods
            .items
            .iter()
            .map(|pod| of_pod(&format!("/etcd-operator-{program}"), &pod.name_any()))
            .collect::<Result<_>>()?;
        ensure!(!megabytes.is_empty(), "no pod of the {program} runs");
        figures.push((program, megabytes));
    }
    Ok(figures)
}

/// Megabytes of the process that runs in this pod.
fn of_pod(executable: &str, pod: &str) -> Result<f64> {
    of_process(&process(executable, pod)?)
}

/// A container's process is told from those of other clusters by the host name, which is its pod's.
pub(super) fn process(executable: &str, pod: &str) -> Result<PathBuf> {
    let hostname = format!("HOSTNAME={pod}");
    fs::read_dir("/proc")?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|process| {
            first_of(&process.join("cmdline")).as_deref() == Some(executable)
                && list(&process.join("environ")).contains(&hostname)
        })
        .with_context(|| format!("no process of pod {pod}"))
}

/// Megabytes of the process whose folder below /proc this is.
pub(super) fn of_process(process: &Path) -> Result<f64> {
    let status = fs::read_to_string(process.join("status"))?;
    resident(&status).with_context(|| format!("{} tells no VmRSS", process.display()))
}

/// Seconds of CPU it has used so far, its own and on its behalf.
pub(super) fn cpu_seconds(process: &Path) -> Result<f64> {
    let stat = fs::read_to_string(process.join("stat"))?;
    ticks(&stat)
        .map(|ticks| ticks / TICKS_PER_SECOND)
        .with_context(|| format!("{} tells no CPU time", process.display()))
}

/// Fixed by the kernel's interface to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// `number (name) state …`: fields 14 and 15, and the name may hold anything.
fn ticks(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The kernel's lists are separated by zero bytes. A process that ended meanwhile has none.
fn list(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn first_of(path: &Path) -> Option<String> {
    list(path).into_iter().next()
}

/// `VmRSS:      8124 kB`, where a kB of the kernel is 1024 bytes.
pub(super) fn resident(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_told_in_megabytes() {
        let megabytes = resident("Name:\tx\nVmHWM:\t  9999 kB\nVmRSS:\t  10000 kB\n").unwrap();
        assert!((megabytes - 10.24).abs() < 1e-9, "{megabytes}");
        assert_eq!(resident("Name:\tx\n"), None);
    }

    #[test]
    fn cpu_time_is_that_of_user_and_kernel_whatever_the_name_looks_like() {
        let stat = "12 (a) S b) S 1 12 12 0 -1 4 1 0 0 0 250 50 7 7 20 0 1 0 5 9 9";
        assert_eq!(ticks(stat), Some(300.0));
        assert_eq!(ticks("12"), None);
    }

    #[test]
    fn the_own_process_is_found_in_proc() {
        let own = first_of(Path::new("/proc/self/cmdline")).unwrap();
        assert!(!own.is_empty());
    }
}

//! The long-running processes of a cluster: started so that they outlive us, with a log each, and known again later.
//!
//! For each component the cluster's folder holds what it was started with and as which process. A process is only believed to be
//! ours if its command line is the recorded one: process numbers are used again.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{layout::Layout, procfs};
use crate::cache;

/// How to start a component.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Component {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Whether it runs in the cluster's network namespace from its start.
    pub inside: bool,
}

/// A component and the process it was last seen as.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    pub component: Component,
    pub process: i32,
}

impl Component {
    pub fn inside(name: impl Into<String>, program: PathBuf, arguments: Vec<String>) -> Self {
        Self {
            name: name.into(),
            program,
            arguments,
            inside: true,
        }
    }

    pub fn log(&self, layout: &Layout) -> PathBuf {
        layout.logs().join(format!("{}.log", self.name))
    }

    /// Starts it in a session of its own, so that neither the terminal's signals nor our end reach it.
    pub fn start(&self, layout: &Layout) -> Result<Started> {
        fs::create_dir_all(layout.logs())?;
        fs::create_dir_all(records(layout))?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(layout))?;
        // Both exec in place, hence the child's number stays the component's. `nsenter --net` and not `ip netns exec`: that one mounts
        // another /sys, and the kubelet then finds no cgroups.
        let mut command = Command::new("setsid");
        if self.inside {
            command
                .arg("nsenter")
                .arg(format!("--net={}", layout.netns_file().display()))
                .arg("--");
        }
        command.arg(&self.program).args(&self.arguments);
        command
            .current_dir(&layout.state)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        let process = i32::try_from(child.id())?;
        // It is not ours to wait for; the thread keeps it from staying a zombie while this program lives on.
        std::thread::spawn(move || {
            let mut child = child;
            let _ = child.wait();
        });
        let started = Started {
            component: self.clone(),
            process,
        };
        let record = records(layout).join(format!("{}.json", self.name));
        cache::appear_whole(&record, |partial| {
            Ok(fs::write(partial, serde_json::to_vec_pretty(&started)?)?)
        })?;
        Ok(started)
    }
}

impl Started {
    /// Between start and exec the process still has the starter's command line: that counts as alive too.
    pub fn alive(&self) -> bool {
        procfs::command_line(self.process).is_some_and(|words| is_it(&self.component, &words))
    }
}

fn is_it(component: &Component, words: &[String]) -> bool {
    let own = std::iter::once(component.program.to_string_lossy().into_owned())
        .chain(component.arguments.iter().cloned());
    words.ends_with(&own.collect::<Vec<_>>())
}

/// Every component that was started for this cluster, running or not, by name.
pub fn recorded(layout: &Layout) -> Result<Vec<Started>> {
    let Ok(entries) = fs::read_dir(records(layout)) else {
        return Ok(vec![]);
    };
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    paths.sort();
    // A record that cannot be read is of no component we could name: tear-down finds its process by other means.
    Ok(paths.iter().filter_map(|path| read(path).ok()).collect())
}

fn read(path: &Path) -> Result<Started> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn records(layout: &Layout) -> PathBuf {
    layout.state.join("components")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_process_is_the_component_only_with_its_whole_command_line() {
        let etcd = Component::inside("etcd", "/bin/etcd".into(), words("--data-dir /state/etcd"));
        assert!(is_it(&etcd, &words("/bin/etcd --data-dir /state/etcd")));
        assert!(is_it(
            &etcd,
            &words("setsid nsenter --net=/run/netns/x -- /bin/etcd --data-dir /state/etcd")
        ));
        assert!(!is_it(&etcd, &words("/bin/etcd --data-dir /another/etcd")));
        assert!(!is_it(&etcd, &words("tail -f /state/etcd")));
    }
}

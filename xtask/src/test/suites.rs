//! Tiers `api` and `cluster`: the suites of the `tests` crate, run inside the cluster's network, so that pod and Service
//! addresses are in reach. Writes one small file that tells them of the cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Stage, count::Count};
use crate::{
    command,
    operator::{self, CHART, checkout},
    progress,
};

pub(crate) fn run(stage: &Stage, suite: &str, filter: &[String], jobs: usize) -> Result<Count> {
    let executable = progress::step(&format!("Compiling the scenarios of `{suite}`"), || {
        compile(suite)
    })?;
    let environment = describe(stage)?;
    let mut count = Count::default();
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net=/run/netns/{}", stage.running.netns))
        .arg("--")
        .arg(executable)
        .args(["--jobs", &jobs.to_string()])
        .args(filter)
        .env("ETCD_OPERATOR_TEST_ENVIRONMENT", environment);
    count.tests(&mut command)?;
    Ok(count)
}

/// Builds the suite and returns where cargo put it.
fn compile(suite: &str) -> Result<PathBuf> {
    let output = command::cargo()
        .current_dir(checkout())
        .args([
            "test",
            "--locked",
            "--package",
            "etcd-operator-tests",
            "--test",
            suite,
        ])
        .args([
            "--no-run",
            "--quiet",
            "--message-format=json-render-diagnostics",
        ])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the scenarios do not compile ({})", output.status);
    }
    executable(&String::from_utf8_lossy(&output.stdout), suite)
        .with_context(|| format!("cargo built no `{suite}`"))
}

/// The executable that cargo's messages name for that test target.
fn executable(messages: &str, suite: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| {
            message["target"]["name"] == suite && message["target"]["kind"][0] == "test"
        })
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn describe(stage: &Stage) -> Result<PathBuf> {
    let running = &stage.running;
    let path = running.kubeconfig.with_file_name("test-environment.json");
    let environment = json!({
        "kubeconfig": running.kubeconfig_inside,
        "kubectl": running.tools.kubectl,
        "helm": running.tools.helm4,
        "helm3": running.tools.helm3,
        "chart": checkout().join(CHART),
        "chartArguments": stage.chart_arguments,
        "binaries": operator::binaries(),
        "auditLog": running.logs.join("audit.log"),
        "cluster": running.name,
        "xtask": std::env::current_exe().context("the path of this program")?,
    });
    write(&path, &environment)?;
    Ok(path)
}

fn write(path: &Path, contents: &Value) -> Result<()> {
    fs::write(path, contents.to_string())
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_that_of_the_suite_and_of_no_other_target() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"api","kind":["lib"]},"executable":null}
{"reason":"compiler-artifact","target":{"name":"cluster","kind":["test"]},"executable":"/t/cluster-1"}
{"reason":"compiler-artifact","target":{"name":"api","kind":["test"]},"executable":"/t/api-2"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "api"), Some(PathBuf::from("/t/api-2")));
        assert_eq!(executable(messages, "unit"), None);
    }
}

//! Time from `helm install` to the first `kubectl apply` of an EtcdCluster that is accepted, with images already on the nodes: what a new
//! user waits for.

use std::{process::Command, time::Instant};

use anyhow::Result;

use crate::{
    command,
    local::Running,
    operator::{self, NAMESPACE, RELEASE, checkout},
};

const EXAMPLE: &str = "examples/etcdcluster.yaml";

/// Seconds of each round. The operator is installed when this returns.
pub(super) fn rounds(running: &Running, arguments: &[String], rounds: usize) -> Result<Vec<f64>> {
    let mut seconds = Vec::new();
    for round in 0..rounds.max(1) {
        if round > 0 {
            let mut uninstall = Command::new(&running.tools.helm4);
            uninstall.env("KUBECONFIG", &running.kubeconfig).args([
                "uninstall",
                RELEASE,
                "--namespace",
                NAMESPACE,
                "--wait",
            ]);
            command::run(&mut uninstall)?;
        }
        let began = Instant::now();
        let mut install = operator::install(&running.tools.helm4, &running.kubeconfig);
        command::run(install.args(arguments))?;
        command::run(kubectl(running).args(["apply", "--filename", EXAMPLE]))?;
        seconds.push(began.elapsed().as_secs_f64());
        command::run(kubectl(running).args(["delete", "--filename", EXAMPLE]))?;
    }
    Ok(seconds)
}

fn kubectl(running: &Running) -> Command {
    let mut kubectl = Command::new(&running.tools.kubectl);
    kubectl
        .current_dir(checkout())
        .env("KUBECONFIG", &running.kubeconfig)
        .args(["--namespace", "default"]);
    kubectl
}

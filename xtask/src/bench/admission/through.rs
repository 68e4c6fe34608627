//! What the webhooks add to a creation through the real API server. On a local cluster of its own.
//!
//! The release looks after one namespace only, so the same creation in another one is the same but for the webhooks.

use std::{io::Write, path::Path, process::Command, process::Stdio, time::Instant};

use anyhow::{Context, Result, ensure};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

use super::super::{
    connect,
    table::{Row, Table},
};
use crate::{
    command,
    images::{self, Image},
    local::{self, Options, Running},
    operator,
};

const CLUSTER: &str = "admission";
const JUDGED: &str = "judged";
const FREE: &str = "free";
const GOAL: f64 = 1.3;

pub(super) fn measure(image: &Image, creations: usize, keep: bool) -> Result<Table> {
    let running = local::up(&Options {
        name: CLUSTER.to_owned(),
        nodes: 1,
    })?;
    let measured = on(&running, image, creations);
    if !keep {
        local::down(CLUSTER)?;
    }
    measured
}

fn on(running: &Running, image: &Image, creations: usize) -> Result<Table> {
    images::load(running, image)?;
    for namespace in [JUDGED, FREE] {
        let manifest =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        kubectl(running, &["apply"], &manifest)?;
    }
    let mut install = operator::install(&running.tools.helm4, &running.kubeconfig);
    install
        .args(operator::image_arguments(image))
        .args(["--set", &format!("watchNamespaces={{{JUDGED}}}")]);
    command::run(&mut install)?;

    let (mut judged, mut free) = (vec![], vec![]);
    for _ in 0..creations {
        for (namespace, times) in [(JUDGED, &mut judged), (FREE, &mut free)] {
            times.push(kubectl(
                running,
                &["create", "--dry-run=server"],
                &cluster(namespace),
            )?);
        }
    }
    let mut table = Table::default();
    table.push(Row::beside(
        "kubectl create --dry-run=server",
        "ms",
        judged,
        ("no webhooks", free),
        GOAL,
    ));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (judged, free) = runtime.block_on(calls(running, creations))?;
    table.push(Row::beside(
        "the API call alone, on a kept connection",
        "ms",
        judged,
        ("no webhooks", free),
        GOAL,
    ));
    Ok(table)
}

fn cluster(namespace: &str) -> Value {
    json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "bench", "namespace": namespace},
        "spec": {"size": 3},
    })
}

/// Milliseconds from start to end of kubectl.
fn kubectl(running: &Running, verb: &[&str], manifest: &Value) -> Result<f64> {
    let started = Instant::now();
    let mut child = Command::new::<&Path>(&running.tools.kubectl)
        .env("KUBECONFIG", &running.kubeconfig)
        .args(verb)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("kubectl has no input")?
        .write_all(manifest.to_string().as_bytes())?;
    let ended = child.wait_with_output()?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    ensure!(
        ended.status.success(),
        "kubectl {verb:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    Ok(milliseconds)
}

async fn calls(running: &Running, creations: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let client = connect(running).await?;
    let (mut judged, mut free) = (vec![], vec![]);
    // The first of each is not counted: it opens connections.
    for round in 0..=creations * 3 {
        for (namespace, times) in [(JUDGED, &mut judged), (FREE, &mut free)] {
            let milliseconds = call(&client, namespace).await?;
            if round > 0 {
                times.push(milliseconds);
            }
        }
    }
    Ok((judged, free))
}

async fn call(client: &Client, namespace: &str) -> Result<f64> {
    let kind = GroupVersionKind::gvk("etcd.database.coreos.com", "v1beta2", "EtcdCluster");
    let resource = ApiResource::from_gvk_with_plural(&kind, "etcdclusters");
    let clusters: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let object: DynamicObject = serde_json::from_value(cluster(namespace))?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let started = Instant::now();
    clusters.create(&params, &object).await?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

//! The controller while real clusters rest: its memory, its CPU, and what it writes, which must be nothing. Reads /proc and the
//! audit log.

use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::{
    creation::{etcd_clusters, is_ready, make_namespace, manifest, remove_namespace},
    memory,
    table::{Row, Table},
};
use crate::{
    local::Running,
    operator::{NAMESPACE as OPERATOR, RELEASE},
    progress,
};

const NAMESPACE: &str = "bench-rest";
/// How long rest is watched.
const WATCHED: Duration = Duration::from_mins(1);
/// etcd writes by itself for a while after its start, and the status follows: rest comes within minutes, or not at all.
const LIMIT: Duration = Duration::from_mins(10);

pub(super) async fn measure(
    client: &Client,
    running: &Running,
    clusters: usize,
    table: &mut Table,
) -> Result<()> {
    make_namespace(client, NAMESPACE).await?;
    let api = etcd_clusters(client, NAMESPACE);
    for number in 0..clusters {
        let object = manifest(&format!("rest-{number}"), &json!({"size": 3}))?;
        api.create(&PostParams::default(), &object).await?;
    }
    all_ready(client, NAMESPACE, clusters, LIMIT).await?;
    let seen = watch_rest(client, running, WATCHED).await?;
    let with = format!("with {clusters} real clusters at rest");
    table.push(Row::alone(
        format!("controller: writes in 60 s {with}"),
        "",
        vec![count(seen.writes)],
        0.0,
    ));
    table.push(Row::told(
        format!("controller: memory {with}"),
        "MB",
        vec![seen.megabytes],
    ));
    table.push(Row::told(
        format!("controller: CPU {with}"),
        "% of a core",
        vec![seen.percent],
    ));
    remove_namespace(client, NAMESPACE).await
}

#[allow(clippy::cast_precision_loss)] // Counts of requests are small.
pub(super) fn count(writes: usize) -> f64 {
    writes as f64
}

/// Waits until every EtcdCluster of the namespace is Ready.
pub(super) async fn all_ready(
    client: &Client,
    namespace: &str,
    wanted: usize,
    limit: Duration,
) -> Result<()> {
    let started = Instant::now();
    let mut told = Instant::now();
    loop {
        let list = etcd_clusters(client, namespace)
            .list(&ListParams::default())
            .await?;
        let ready = list
            .items
            .iter()
            .filter(|cluster| is_ready(cluster))
            .count();
        if ready >= wanted {
            progress::say(&format!(
                "{ready} clusters are Ready after {} s",
                started.elapsed().as_secs()
            ));
            return Ok(());
        }
        if started.elapsed() > limit {
            bail!(
                "{ready} of {wanted} clusters are Ready after {} s",
                limit.as_secs()
            );
        }
        if told.elapsed() > Duration::from_secs(20) {
            progress::say(&format!("{ready} of {wanted} clusters are Ready"));
            told = Instant::now();
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[derive(Debug)]
pub(super) struct Rest {
    pub(super) writes: usize,
    pub(super) megabytes: f64,
    pub(super) percent: f64,
}

/// Waits until the controller has come to rest, then watches it for as long as told. Rest that does not come is told as what was written.
pub(super) async fn watch_rest(
    client: &Client,
    running: &Running,
    watched: Duration,
) -> Result<Rest> {
    let process = controller(client).await?;
    let log = running.logs.join("audit.log");
    let started = Instant::now();
    loop {
        let position = log.metadata()?.len();
        let (began, cpu) = (Instant::now(), memory::cpu_seconds(&process)?);
        sleep(watched).await;
        let used = memory::cpu_seconds(&process)? - cpu;
        let rest = Rest {
            writes: writes_since(&log, position)?,
            megabytes: memory::of_process(&process)?,
            percent: 100.0 * used / began.elapsed().as_secs_f64(),
        };
        if rest.writes == 0 || started.elapsed() > LIMIT {
            return Ok(rest);
        }
        progress::say(&format!("not at rest yet: {} writes", rest.writes));
    }
}

/// The one controller's process on this machine.
async fn controller(client: &Client) -> Result<PathBuf> {
    let selector =
        format!("app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=controller");
    let pods: Api<Pod> = Api::namespaced(client.clone(), OPERATOR);
    let pods = pods.list(&ListParams::default().labels(&selector)).await?;
    let pod = pods.items.first().context("no controller runs")?;
    memory::process("/etcd-operator-controller", &pod.name_any())
}

/// What the operator wrote, its lease aside: that one says that it lives.
fn writes_since(log: &Path, position: u64) -> Result<usize> {
    let mut file = File::open(log)?;
    // Shorter than before: begun anew, and all of it is since.
    let from = if file.metadata()?.len() < position {
        0
    } else {
        position
    };
    file.seek(SeekFrom::Start(from))?;
    let mut writes = 0;
    for line in BufReader::new(file).lines() {
        writes += usize::from(is_write(&line?));
    }
    Ok(writes)
}

fn is_write(line: &str) -> bool {
    let Ok(event) = serde_json::from_str::<Value>(line) else {
        return false;
    };
    let operator = format!("system:serviceaccount:{OPERATOR}:");
    let user = event["user"]["username"].as_str().unwrap_or_default();
    let verb = event["verb"].as_str().unwrap_or_default();
    event["stage"] == "ResponseComplete"
        && user.starts_with(&operator)
        && matches!(
            verb,
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
        && event["objectRef"]["resource"] != "leases"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finished_writes_of_the_operator_count_and_its_lease_does_not() {
        let line = |user: &str, verb: &str, resource: &str, stage: &str| {
            json!({"user": {"username": user}, "verb": verb, "objectRef": {"resource": resource}, "stage": stage})
                .to_string()
        };
        let (operator, done) = ("system:serviceaccount:etcd-operator:c", "ResponseComplete");
        assert!(is_write(&line(operator, "patch", "pods", done)));
        assert!(!is_write(&line(operator, "get", "pods", done)));
        assert!(!is_write(&line(operator, "update", "leases", done)));
        assert!(!is_write(&line("kubelet", "patch", "pods", done)));
        assert!(!is_write(&line(
            operator,
            "patch",
            "pods",
            "RequestReceived"
        )));
        assert!(!is_write("torn"));
    }
}

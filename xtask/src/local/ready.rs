//! Waiting for a cluster, and saying which component is to blame when it does not come. Asks the API server; reads logs.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, ServiceAccount},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::{component::Started, layout::Layout};
use crate::command;

const PATIENCE: Duration = Duration::from_mins(2);
const PACE: Duration = Duration::from_millis(50);

pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The API server serves.
pub fn api_server(layout: &Layout, started: &[Started]) -> Result<()> {
    wait(
        layout,
        started,
        "kube-apiserver",
        &async |client: &Client| serving(client).await,
    )
}

/// Nodes, DNS, a default class: what a test may rely on.
pub fn cluster(layout: &Layout, started: &[Started], nodes: u8) -> Result<()> {
    wait(
        layout,
        started,
        "kubelet-node1",
        &async |client: &Client| whole(client, nodes).await,
    )
}

/// Asked once, without patience.
pub fn is_whole(layout: &Layout, nodes: u8) -> bool {
    let asked = async {
        let client = client(&layout.kubeconfig()).await?;
        tokio::time::timeout(Duration::from_secs(5), whole(&client, nodes)).await?
    };
    runtime().is_ok_and(|runtime| runtime.block_on(asked).is_ok())
}

async fn serving(client: &Client) -> Result<()> {
    let request = http::Request::get("/readyz").body(vec![])?;
    client
        .request_text(request)
        .await
        .context("the API server is not ready")?;
    Ok(())
}

async fn whole(client: &Client, nodes: u8) -> Result<()> {
    serving(client).await?;
    let listed = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    let ready = listed.items.iter().filter(|node| is_ready(node)).count();
    if ready < usize::from(nodes) {
        bail!("{ready} of {nodes} nodes are Ready");
    }
    let classes = Api::<StorageClass>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    if classes.items.is_empty() {
        bail!("there is no StorageClass");
    }
    // Without it the first pod of a fresh cluster is refused.
    Api::<ServiceAccount>::default_namespaced(client.clone())
        .get("default")
        .await
        .context("the default service account is not there")?;
    let dns = Api::<Deployment>::namespaced(client.clone(), "kube-system")
        .get("coredns")
        .await?;
    if dns
        .status
        .and_then(|status| status.available_replicas)
        .unwrap_or_default()
        < 1
    {
        bail!("CoreDNS is not available");
    }
    Ok(())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let unready_taint = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .any(|taint| taint.key == "node.kubernetes.io/not-ready");
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        && !unready_taint
}

/// Asks again and again until it is so. A component that has ended is an error at once; in the end, `suspect` shows its log.
fn wait(
    layout: &Layout,
    started: &[Started],
    suspect: &str,
    ask: &impl AsyncFn(&Client) -> Result<()>,
) -> Result<()> {
    runtime()?.block_on(async {
        let client = client(&layout.kubeconfig()).await?;
        let since = Instant::now();
        loop {
            let answer = tokio::time::timeout(Duration::from_secs(10), ask(&client))
                .await
                .unwrap_or_else(|_| Err(anyhow!("the API server does not answer")));
            let Err(reason) = answer else { return Ok(()) };
            if let Some(ended) = started.iter().find(|started| !started.alive()) {
                return Err(blame(layout, &ended.component.name, "ended"));
            }
            if since.elapsed() > PATIENCE {
                return Err(blame(
                    layout,
                    suspect,
                    &format!("is not ready after {} s: {reason:#}", PATIENCE.as_secs()),
                ));
            }
            tokio::time::sleep(PACE).await;
        }
    })
}

/// What happened to a component, with the last it said and where it said the rest.
pub fn blame(layout: &Layout, component: &str, what: &str) -> anyhow::Error {
    let log = layout.logs().join(format!("{component}.log"));
    anyhow!(
        "{component} {what}\n{}\n  the whole log is {}",
        command::tail(&log, 15),
        log.display()
    )
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: serde_json::Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_node_is_ready_when_it_says_so_and_pods_may_go_there() {
        let ready = serde_json::json!({"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert!(is_ready(&node(ready.clone())));
        let mut tainted = ready;
        tainted["spec"] = serde_json::json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]});
        assert!(!is_ready(&node(tainted)));
        assert!(!is_ready(&node(serde_json::json!({"metadata": {}}))));
    }
}

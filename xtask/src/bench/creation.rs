//! Time from the create call to ready, of an EtcdCluster and of a plain StatefulSet of the same image, in turns.
//!
//! The StatefulSet takes image, claim, container ports and probes from a member that the operator made, so that both wait
//! for the same thing.

use std::{fmt::Debug, pin::pin, time::Duration};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Namespace, PersistentVolumeClaim, Pod, Service},
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, watch_object, watcher},
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::progress;

const LIMIT: Duration = Duration::from_mins(3);
pub(super) const NAME: &str = "bench";
pub(super) const NAMESPACE: &str = "bench";

#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) operator: Vec<f64>,
    pub(super) stateful_set: Vec<f64>,
}

pub(super) async fn rounds(client: &Client, rounds: usize) -> Result<Times> {
    make_namespace(client, NAMESPACE).await?;
    // One of each beforehand, not counted: it warms the nodes' caches, and gives the baseline its member to copy.
    let (_, member) = etcd_cluster(client, 3).await?;
    let baseline = Baseline::like(&member)?;
    baseline.time(client).await?;
    let mut times = Times::default();
    for round in 1..=rounds {
        let (operator, _) = etcd_cluster(client, 3).await?;
        let stateful_set = baseline.time(client).await?;
        progress::say(&format!(
            "round {round} of {rounds}: EtcdCluster {operator:.2} s, StatefulSet {stateful_set:.2} s"
        ));
        times.operator.push(operator);
        times.stateful_set.push(stateful_set);
    }
    remove_namespace(client, NAMESPACE).await?;
    Ok(times)
}

pub(super) async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok(())
}

pub(super) async fn remove_namespace(client: &Client, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(name, &DeleteParams::default()).await?;
    until_gone(namespaces, name).await
}

pub(super) fn etcd_clusters(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("etcd.database.coreos.com", "v1beta2", "EtcdCluster");
    let resource = ApiResource::from_gvk_with_plural(&kind, "etcdclusters");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

pub(super) fn manifest(name: &str, spec: &Value) -> Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": name},
        "spec": spec,
    }))?)
}

/// Ready for the spec as it is now.
pub(super) fn is_ready(cluster: &DynamicObject) -> bool {
    let status = &cluster.data["status"];
    status["observedGeneration"].as_i64() == cluster.metadata.generation
        && status["conditions"].as_array().is_some_and(|conditions| {
            conditions
                .iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
        })
}

/// Seconds to Ready of that many members, and one of its pods.
pub(super) async fn etcd_cluster(client: &Client, size: usize) -> Result<(f64, Pod)> {
    let clusters = etcd_clusters(client, NAMESPACE);
    let object = manifest(NAME, &json!({"size": size}))?;
    let started = Instant::now();
    clusters.create(&PostParams::default(), &object).await?;
    until(clusters.clone(), "the EtcdCluster to be Ready", is_ready).await?;
    let seconds = started.elapsed().as_secs_f64();

    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let of_cluster = ListParams::default().labels(&format!("etcd_cluster={NAME}"));
    let member = pods
        .list(&of_cluster)
        .await?
        .items
        .into_iter()
        .next()
        .context("a Ready cluster has pods")?;
    clusters.delete(NAME, &DeleteParams::default()).await?;
    until_gone(clusters, NAME).await?;
    nothing_left(client).await?;
    Ok((seconds, member))
}

/// A plain StatefulSet of three etcds.
pub(super) struct Baseline {
    service: Service,
    stateful_set: StatefulSet,
}

impl Baseline {
    pub(super) fn like(member: &Pod) -> Result<Self> {
        let spec = member.spec.as_ref().context("a pod has a spec")?;
        let etcd = spec
            .containers
            .iter()
            .find(|container| container.name == "etcd")
            .context("a member runs etcd")?;
        let listen_metrics = etcd
            .args
            .iter()
            .chain(&etcd.command)
            .flatten()
            .find(|word| word.starts_with("--listen-metrics-urls="))
            .cloned();
        let peers: Vec<String> = (0..3)
            .map(|number| format!("{NAME}-{number}=http://{NAME}-{number}.{NAME}:2380"))
            .collect();
        let mut command = [
            "etcd",
            "--name=$(POD)",
            "--data-dir=/data/etcd",
            "--listen-client-urls=http://0.0.0.0:2379",
            "--listen-peer-urls=http://0.0.0.0:2380",
            "--initial-cluster-state=new",
        ]
        .map(str::to_owned)
        .to_vec();
        command.extend([
            format!("--advertise-client-urls=http://$(POD).{NAME}:2379"),
            format!("--initial-advertise-peer-urls=http://$(POD).{NAME}:2380"),
            format!("--initial-cluster={}", peers.join(",")),
        ]);
        command.extend(listen_metrics);
        let labels = json!({"app": "plain-etcd"});
        let stateful_set = json!({
            "metadata": {"name": NAME},
            "spec": {
                "replicas": 3,
                "serviceName": NAME,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "enableServiceLinks": false,
                        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
                        "containers": [{
                            "name": "etcd",
                            "image": etcd.image,
                            "command": command,
                            "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                            "ports": etcd.ports,
                            "readinessProbe": etcd.readiness_probe,
                            "startupProbe": etcd.startup_probe,
                            "livenessProbe": etcd.liveness_probe,
                            "resources": etcd.resources,
                            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                        }],
                    },
                },
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}},
                }],
            },
        });
        let service: Value = json!({
            "metadata": {"name": NAME},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": true,
                "selector": labels,
                "ports": [{"name": "client", "port": 2379}, {"name": "peer", "port": 2380}],
            },
        });
        Ok(Self {
            service: serde_json::from_value(service)?,
            stateful_set: serde_json::from_value(stateful_set)?,
        })
    }

    pub(super) async fn time(&self, client: &Client) -> Result<f64> {
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), NAMESPACE);
        let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
        let started = Instant::now();
        services
            .create(&PostParams::default(), &self.service)
            .await?;
        sets.create(&PostParams::default(), &self.stateful_set)
            .await?;
        until(sets.clone(), "the StatefulSet to be ready", |set| {
            set.status.as_ref().and_then(|status| status.ready_replicas) == Some(3)
        })
        .await?;
        let seconds = started.elapsed().as_secs_f64();

        sets.delete(NAME, &DeleteParams::foreground()).await?;
        until_gone(sets, NAME).await?;
        services.delete(NAME, &DeleteParams::default()).await?;
        claims
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        nothing_left(client).await?;
        Ok(seconds)
    }
}

/// The next round begins on an empty stage, or it would pay for this one.
pub(super) async fn nothing_left(client: &Client) -> Result<()> {
    let all = watcher::Config::default;
    until_none::<Pod>(Api::namespaced(client.clone(), NAMESPACE), all()).await?;
    until_none::<PersistentVolumeClaim>(Api::namespaced(client.clone(), NAMESPACE), all()).await
}

pub(super) async fn until<K>(api: Api<K>, what: &str, condition: impl Fn(&K) -> bool) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watched(api, NAME, what, |object| object.is_some_and(&condition)).await
}

pub(super) async fn until_gone<K>(api: Api<K>, name: &str) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watched(api, name, "what was deleted to be gone", |object| {
        object.is_none()
    })
    .await
}

async fn watched<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    condition: impl Fn(Option<&K>) -> bool,
) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let watching = async {
        let mut stream = pin!(watch_object(api, name).default_backoff());
        while let Some(seen) = stream.next().await {
            if seen.is_ok_and(|object| condition(object.as_ref())) {
                return;
            }
        }
    };
    if timeout(LIMIT, watching).await.is_err() {
        bail!("waited {} s for {what}", LIMIT.as_secs());
    }
    Ok(())
}

/// Waits until nothing matches any more.
pub(super) async fn until_none<K>(api: Api<K>, config: watcher::Config) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut left = std::collections::BTreeSet::new();
    let watching = async {
        let mut stream = pin!(watcher(api, config).default_backoff());
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => left.clear(),
                Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                    left.insert(object.meta().uid.clone());
                }
                Ok(watcher::Event::Delete(object)) => {
                    left.remove(&object.meta().uid);
                    if left.is_empty() {
                        return;
                    }
                }
                Ok(watcher::Event::InitDone) if left.is_empty() => return,
                Ok(watcher::Event::InitDone) | Err(_) => {}
            }
        }
    };
    if timeout(LIMIT, watching).await.is_err() {
        bail!(
            "waited {} s for {} objects to be gone",
            LIMIT.as_secs(),
            left.len()
        );
    }
    Ok(())
}

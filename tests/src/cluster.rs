//! One EtcdCluster as a scenario handles it: make it, wait for it, look at its members, talk to its etcd.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_client::{Client as EtcdClient, ConnectOptions};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};

use crate::{Context, until, until_answer};

pub const GROUP: &str = "etcd.database.coreos.com";

const CONNECT: Duration = Duration::from_secs(5);

/// EtcdClusters (v1beta2) of a namespace, as plain objects.
pub fn etcdclusters(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1beta2", "EtcdCluster");
    Api::namespaced_with(
        client,
        namespace,
        &ApiResource::from_gvk_with_plural(&kind, "etcdclusters"),
    )
}

/// Whether the condition has that status *for the spec as it is now*: one about an older generation says nothing.
pub fn condition_is(cluster: &DynamicObject, kind: &str, status: &str) -> bool {
    let generation = cluster.metadata.generation;
    cluster.data["status"]["observedGeneration"].as_i64() == generation
        && cluster.data["status"]["conditions"]
            .as_array()
            .is_some_and(|conditions| {
                conditions.iter().any(|condition| {
                    condition["type"] == kind
                        && condition["status"] == status
                        && condition["observedGeneration"]
                            .as_i64()
                            .is_none_or(|seen| Some(seen) == generation)
                })
            })
}

/// A member as Kubernetes and etcd together tell it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    pub name: String,
    pub id: u64,
    pub peer_urls: Vec<String>,
    pub learner: bool,
}

#[derive(Debug, Clone)]
pub struct Cluster<'a> {
    context: &'a Context,
    name: String,
}

impl<'a> Cluster<'a> {
    pub(crate) fn named(context: &'a Context, name: &str) -> Self {
        Self {
            context,
            name: name.to_owned(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub async fn create(&self, spec: &Value) -> anyhow::Result<DynamicObject> {
        let object = serde_json::from_value(self.context.manifest(&self.name, spec))?;
        self.context
            .clusters()
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("creating EtcdCluster {}", self.name))
    }

    pub async fn get(&self) -> anyhow::Result<DynamicObject> {
        Ok(self.context.clusters().get(&self.name).await?)
    }

    /// Changes these fields of the spec and leaves the others, as `kubectl patch` does.
    pub async fn change(&self, spec: &Value) -> anyhow::Result<DynamicObject> {
        self.context
            .clusters()
            .patch(
                &self.name,
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": spec})),
            )
            .await
            .with_context(|| format!("changing EtcdCluster {} to {spec}", self.name))
    }

    pub async fn delete(&self) -> anyhow::Result<()> {
        self.context
            .clusters()
            .delete(&self.name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Waits until the operator reports `Ready` for the spec as it is now.
    pub async fn ready(&self) -> anyhow::Result<DynamicObject> {
        until(
            self.context.clusters(),
            &self.name,
            "the cluster to be Ready",
            |cluster| cluster.is_some_and(|cluster| condition_is(cluster, "Ready", "True")),
        )
        .await?
        .context("a Ready cluster exists")
    }

    pub async fn gone(&self) -> anyhow::Result<()> {
        until(
            self.context.clusters(),
            &self.name,
            "the resource to be gone",
            |found| found.is_none(),
        )
        .await?;
        Ok(())
    }

    fn selector(&self) -> ListParams {
        ListParams::default().labels(&format!("etcd_cluster={}", self.name))
    }

    pub async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        Ok(self
            .context
            .api::<Pod>()
            .list(&self.selector())
            .await?
            .items)
    }

    pub async fn claims(&self) -> anyhow::Result<Vec<PersistentVolumeClaim>> {
        Ok(self
            .context
            .api::<PersistentVolumeClaim>()
            .list(&self.selector())
            .await?
            .items)
    }

    /// Where the client Service answers. The suite runs in the cluster's network, but not with its DNS.
    pub async fn client_endpoint(&self) -> anyhow::Result<String> {
        let name = format!("{}-client", self.name);
        let service: Service = self
            .context
            .api()
            .get(&name)
            .await
            .with_context(|| format!("Service {name}"))?;
        let spec = service.spec.unwrap_or_default();
        let address = spec
            .cluster_ip
            .filter(|address| address != "None")
            .context("a client Service with an address")?;
        let port = spec
            .ports
            .and_then(|ports| ports.first().map(|port| port.port))
            .context("a client port")?;
        Ok(format!("http://{address}:{port}"))
    }

    /// A client of etcd through the client Service.
    pub async fn etcd(&self) -> anyhow::Result<EtcdClient> {
        connect(&self.client_endpoint().await?).await
    }

    /// A client of one member alone.
    pub async fn etcd_of(&self, pod: &Pod) -> anyhow::Result<EtcdClient> {
        let address = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.as_deref());
        let address = address.with_context(|| format!("pod {} has an address", pod.name_any()))?;
        connect(&format!("http://{address}:2379")).await
    }

    /// The member list as etcd itself gives it (a linearizable read), in the order of the names.
    pub async fn members(&self) -> anyhow::Result<Vec<Member>> {
        let answer = self.etcd().await?.member_list().await?;
        let mut members: Vec<Member> = answer
            .members()
            .iter()
            .map(|member| Member {
                name: member.name().to_owned(),
                id: member.id(),
                peer_urls: member.peer_urls().to_vec(),
                learner: member.is_learner(),
            })
            .collect();
        ensure!(!members.is_empty(), "etcd lists no member");
        members.sort();
        Ok(members)
    }
}

/// A client of etcd at this address, once it answers: a Service is there before every node has heard of its endpoints.
pub(crate) async fn connect(endpoint: &str) -> anyhow::Result<EtcdClient> {
    until_answer(
        &format!("etcd to answer at {endpoint}"),
        Duration::from_millis(200),
        || async {
            let options = ConnectOptions::new()
                .with_connect_timeout(CONNECT)
                .with_timeout(CONNECT);
            let mut client = EtcdClient::connect([endpoint], Some(options)).await?;
            client.status().await?;
            Ok(Some(client))
        },
    )
    .await
}

//! One EtcdCluster as a scenario handles it: make it, wait for it, look at its members, talk to its etcd.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_client::{Certificate, Client as EtcdClient, ConnectOptions, Identity, TlsOptions};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
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
        self.door().await?.open().await
    }

    /// The way in through the client Service, for somebody who comes more than once.
    pub async fn door(&self) -> anyhow::Result<Door> {
        let endpoint = self.client_endpoint().await?;
        let sealed = self.get().await?.data["spec"]["security"]["clientTLS"]["mode"] == "Auto";
        let host = format!("{}-client.{}.svc", self.name, self.context.namespace());
        Ok(Door {
            endpoint: if sealed {
                endpoint.replacen("http:", "https:", 1)
            } else {
                endpoint
            },
            key: sealed.then(|| Key {
                secrets: self.context.api(),
                secret: format!("{}-client-tls", self.name),
                host,
            }),
        })
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

/// The way into a cluster: an address, and where it is sealed, the Secret that lets applications in.
#[derive(Debug, Clone)]
pub struct Door {
    endpoint: String,
    key: Option<Key>,
}

#[derive(Clone)]
struct Key {
    secrets: Api<Secret>,
    secret: String,
    host: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.secret)
    }
}

/// The way in with what the Secret held at one moment.
#[derive(Debug, Clone)]
pub struct OldKey {
    endpoint: String,
    tls: Option<TlsOptions>,
}

impl OldKey {
    /// One try.
    pub async fn open_once(&self) -> anyhow::Result<EtcdClient> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_timeout(CONNECT);
        if let Some(tls) = &self.tls {
            options = options.with_tls(tls.clone());
        }
        let mut client = Box::pin(EtcdClient::connect([&self.endpoint], Some(options))).await?;
        client.status().await?;
        Ok(client)
    }
}

impl Door {
    /// A client of etcd, once it answers: a Service is there before every node has heard of its endpoints.
    pub async fn open(&self) -> anyhow::Result<EtcdClient> {
        let endpoint = &self.endpoint;
        until_answer(
            &format!("etcd to answer at {endpoint}"),
            Duration::from_millis(200),
            || async { Ok(Some(self.try_to_open().await?)) },
        )
        .await
    }

    /// One try, with what the Secret holds now.
    pub(crate) async fn try_to_open(&self) -> anyhow::Result<EtcdClient> {
        self.snapshot().await?.open_once().await
    }

    /// What the Secret holds now, to be used later.
    pub async fn snapshot(&self) -> anyhow::Result<OldKey> {
        let mut tls = None;
        if let Some(key) = &self.key {
            let secret = key.secrets.get(&key.secret).await?.data.unwrap_or_default();
            let read = |name: &str| {
                let found = secret.get(name).map(|bytes| bytes.0.clone());
                found.with_context(|| format!("Secret {} has no {name}", key.secret))
            };
            tls = Some(
                TlsOptions::new()
                    .domain_name(&key.host)
                    .ca_certificate(Certificate::from_pem(read("ca.crt")?))
                    .identity(Identity::from_pem(read("tls.crt")?, read("tls.key")?)),
            );
        }
        Ok(OldKey {
            endpoint: self.endpoint.clone(),
            tls,
        })
    }
}

/// A client of etcd at this address, once it answers.
async fn connect(endpoint: &str) -> anyhow::Result<EtcdClient> {
    let plain = Door {
        endpoint: endpoint.to_owned(),
        key: None,
    };
    plain.open().await
}

//! The API server's answers. Only reads, each with an end.

use std::future::Future;
use std::time::Duration;

use etcd_operator_api::v1beta2::{EtcdBackup, EtcdCluster, EtcdClusterStatus};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::{Client, Resource, ResourceExt};

use super::{Found, Looking, SecretData, Surroundings};

/// Longer would be felt by whoever waits for `kubectl apply`.
const PATIENCE: Duration = Duration::from_millis(400);
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Whether Secrets are looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    Read,
    LeftAlone,
}

/// The API server's answers.
#[derive(Clone)]
pub struct Live {
    client: Client,
    secrets: Secrets,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live")
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}

impl Live {
    pub fn new(client: Client, secrets: Secrets) -> Self {
        Self { client, secrets }
    }

    /// Its metadata say enough.
    fn named<'a, K>(&self, namespace: &str, name: &'a str) -> Looking<'a>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Send
            + Sync
            + 'static,
    {
        let api = Api::<PartialObjectMeta<K>>::namespaced(self.client.clone(), namespace);
        Box::pin(async move { exists(api.get_opt(name)).await })
    }
}

impl Surroundings for Live {
    fn storage_class<'a>(&'a self, name: &'a str) -> Looking<'a> {
        let api = Api::<PartialObjectMeta<StorageClass>>::all(self.client.clone());
        Box::pin(async move { exists(api.get_opt(name)).await })
    }

    fn default_storage_class(&self) -> Looking<'_> {
        let api = Api::<PartialObjectMeta<StorageClass>>::all(self.client.clone());
        Box::pin(async move {
            briefly(async {
                let classes = api.list(&ListParams::default()).await?;
                let default = classes.iter().any(|class| {
                    class
                        .annotations()
                        .get(DEFAULT_CLASS)
                        .is_some_and(|v| v == "true")
                });
                Ok(default.then_some(()))
            })
            .await
        })
    }

    fn priority_class<'a>(&'a self, name: &'a str) -> Looking<'a> {
        let api = Api::<PartialObjectMeta<PriorityClass>>::all(self.client.clone());
        Box::pin(async move { exists(api.get_opt(name)).await })
    }

    fn cluster<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looking<'a> {
        self.named::<EtcdCluster>(namespace, name)
    }

    fn cluster_status<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Looking<'a, EtcdClusterStatus> {
        let api = Api::<EtcdCluster>::namespaced(self.client.clone(), namespace);
        Box::pin(async move {
            briefly(async {
                let cluster = api.get_opt(name).await?;
                Ok(cluster.map(|cluster| cluster.status.unwrap_or_default()))
            })
            .await
        })
    }

    fn backup<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looking<'a> {
        self.named::<EtcdBackup>(namespace, name)
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looking<'a, SecretData> {
        if self.secrets == Secrets::LeftAlone {
            return Box::pin(std::future::ready(Found::Unknown));
        }
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        Box::pin(async move {
            briefly(async {
                let secret = api.get_opt(name).await?;
                Ok(secret.map(|secret| {
                    let data = secret.data.unwrap_or_default().into_iter();
                    data.map(|(key, value)| (key, value.0)).collect()
                }))
            })
            .await
        })
    }
}

async fn exists<T>(read: impl Future<Output = kube::Result<Option<T>>>) -> Found {
    briefly(async { Ok(read.await?.map(drop)) }).await
}

async fn briefly<T>(read: impl Future<Output = kube::Result<Option<T>>>) -> Found<T> {
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(Some(found))) => Found::Yes(found),
        Ok(Ok(None)) => Found::No,
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot look around");
            Found::Unknown
        }
        Err(_elapsed) => Found::Unknown,
    }
}

//! What a cluster's surroundings have to say: a class that does not exist, a name that would collide. Reads the API server, briefly.
//!
//! GitOps applies in any order, so what is missing is a warning; only a collision is refused. A read that fails or takes too long
//! says nothing: an admission never fails because a look around did.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use etcd_operator_api::v1beta2::EtcdCluster;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::{Client, ResourceExt};

use crate::review::Refusal;

/// Longer would be felt by whoever waits for `kubectl apply`.
const PATIENCE: Duration = Duration::from_millis(400);
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// What a look around came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Yes,
    No,
    /// The read failed, or was forbidden, or took too long.
    Unknown,
}

/// A read under way.
pub type Looking<'a> = Pin<Box<dyn Future<Output = Found> + Send + 'a>>;

/// The reads the checks need, so that tests can answer them.
pub trait Surroundings: Send + Sync + 'static {
    fn storage_class<'a>(&'a self, name: &'a str) -> Looking<'a>;
    fn default_storage_class(&self) -> Looking<'_>;
    fn priority_class<'a>(&'a self, name: &'a str) -> Looking<'a>;
    fn cluster<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looking<'a>;
}

/// What was seen around a new cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub refusals: Vec<Refusal>,
    pub warnings: Vec<String>,
}

/// Looks around for a cluster that is being created. All reads at once: they cost one round trip together.
pub async fn look(cluster: &EtcdCluster, around: &dyn Surroundings) -> Seen {
    let (collision, storage, priority) = futures::join!(
        collision(cluster, around),
        storage(cluster, around),
        priority(cluster, around),
    );
    Seen {
        refusals: collision.into_iter().collect(),
        warnings: storage.into_iter().chain(priority).collect(),
    }
}

/// The client Service of `c` is called `c-client`, and so is the headless Service of a cluster of that name.
async fn collision(cluster: &EtcdCluster, around: &dyn Surroundings) -> Option<Refusal> {
    let (name, namespace) = (cluster.metadata.name.as_deref()?, cluster.namespace()?);
    let longer = format!("{name}-client");
    let shorter = name.strip_suffix("-client");
    let (longer_found, shorter_found) =
        futures::join!(around.cluster(&namespace, &longer), async {
            match shorter {
                Some(shorter) => around.cluster(&namespace, shorter).await,
                None => Found::No,
            }
        });
    let other = match (longer_found, shorter_found, shorter) {
        (Found::Yes, _, _) => longer.as_str(),
        (_, Found::Yes, Some(shorter)) => shorter,
        _ => return None,
    };
    Some(Refusal {
        field: "metadata.name".to_owned(),
        reason: "NameCollides".into(),
        message: format!(
            "must not differ from the EtcdCluster `{other}` by the suffix `-client` only: both would own one Service; use another name"
        ),
    })
}

async fn storage(cluster: &EtcdCluster, around: &dyn Surroundings) -> Option<String> {
    let storage = cluster.spec.storage.as_ref();
    if storage.is_some_and(|storage| storage.ephemeral == Some(true)) {
        return None;
    }
    let claim = cluster
        .spec
        .pod
        .as_ref()
        .and_then(|pod| pod.persistent_volume_claim_spec.as_ref());
    let (field, class) = match claim {
        Some(claim) => (
            "spec.pod.persistentVolumeClaimSpec.storageClassName",
            claim.storage_class_name.as_deref(),
        ),
        None => (
            "spec.storage.className",
            storage.and_then(|storage| storage.class_name.as_deref()),
        ),
    };
    match class {
        // An empty class asks for volumes that someone made by hand.
        Some("") => None,
        Some(class) => (around.storage_class(class).await == Found::No)
            .then(|| format!("{field}: StorageClass `{class}` does not exist (yet)")),
        None => (around.default_storage_class().await == Found::No)
            .then(|| format!("{field}: none is named and no StorageClass is the default")),
    }
}

async fn priority(cluster: &EtcdCluster, around: &dyn Surroundings) -> Option<String> {
    let class = cluster.spec.pod.as_ref()?.priority_class_name.as_deref()?;
    if class.is_empty() || class.starts_with("system-") {
        return None;
    }
    (around.priority_class(class).await == Found::No).then(|| {
        format!("spec.pod.priorityClassName: PriorityClass `{class}` does not exist (yet)")
    })
}

/// The API server's answers.
#[derive(Clone)]
pub struct Live {
    client: Client,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    pub fn new(client: Client) -> Self {
        Self { client }
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
                Ok(classes.iter().any(|class| {
                    class
                        .annotations()
                        .get(DEFAULT_CLASS)
                        .is_some_and(|v| v == "true")
                }))
            })
            .await
        })
    }

    fn priority_class<'a>(&'a self, name: &'a str) -> Looking<'a> {
        let api = Api::<PartialObjectMeta<PriorityClass>>::all(self.client.clone());
        Box::pin(async move { exists(api.get_opt(name)).await })
    }

    fn cluster<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looking<'a> {
        let api = Api::<PartialObjectMeta<EtcdCluster>>::namespaced(self.client.clone(), namespace);
        Box::pin(async move { exists(api.get_opt(name)).await })
    }
}

async fn exists<T>(read: impl Future<Output = kube::Result<Option<T>>>) -> Found {
    briefly(async { Ok(read.await?.is_some()) }).await
}

async fn briefly(read: impl Future<Output = kube::Result<bool>>) -> Found {
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(true)) => Found::Yes,
        Ok(Ok(false)) => Found::No,
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot look around");
            Found::Unknown
        }
        Err(_elapsed) => Found::Unknown,
    }
}

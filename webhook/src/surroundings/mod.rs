//! What an object's surroundings have to say: a class that does not exist, a Secret that does not fit, a name that would collide.
//!
//! GitOps applies in any order, so what is missing or does not fit is a warning; only a collision is refused. A read that fails or takes
//! too long says nothing: an admission never fails because a look around did. `live` reads the API server, briefly; the rest decides.

mod backups;
mod live;
mod secrets;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use etcd_operator_api::Warning;
use etcd_operator_api::v1beta2::{EtcdCluster, EtcdClusterStatus};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::review::Refusal;

pub use backups::{look_for_backup, look_for_restore};
pub use live::{Live, Secrets};

/// What a look around came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<T = ()> {
    Yes(T),
    No,
    /// The read failed, or was forbidden, or took too long, or is not wanted.
    Unknown,
}

/// A read under way.
pub type Looking<'a, T = ()> = Pin<Box<dyn Future<Output = Found<T>> + Send + 'a>>;

/// What a Secret holds, by key.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// The reads the checks need, so that tests can answer them.
pub trait Surroundings: Send + Sync + 'static {
    fn storage_class<'a>(&'a self, name: &'a str) -> Looking<'a>;
    fn default_storage_class(&self) -> Looking<'_>;
    fn priority_class<'a>(&'a self, name: &'a str) -> Looking<'a>;
    fn cluster<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looking<'a>;
    /// What it says of itself.
    fn cluster_status<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Looking<'a, EtcdClusterStatus>;
    fn backup<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looking<'a>;
    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looking<'a, SecretData>;
}

/// What was seen around an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub refusals: Vec<Refusal>,
    pub warnings: Vec<String>,
}

impl Seen {
    fn warned(warnings: &[Warning]) -> Self {
        Self {
            refusals: Vec::new(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Looks around for a cluster that is created or changed. All reads at once: they cost one round trip together.
///
/// A change is looked at where it names something new: what was there before was told before.
pub async fn look(
    cluster: &EtcdCluster,
    old: Option<&EtcdCluster>,
    around: &dyn Surroundings,
    now: Timestamp,
) -> Seen {
    let fresh =
        |name: fn(&EtcdCluster) -> Option<&str>| old.is_none_or(|old| name(old) != name(cluster));
    let (collision, storage, priority, secrets) = futures::join!(
        async {
            match old {
                None => collision(cluster, around).await,
                Some(_) => None,
            }
        },
        async {
            match old {
                None => storage(cluster, around).await,
                // It cannot change.
                Some(_) => None,
            }
        },
        async {
            if fresh(priority_class) {
                priority(cluster, around).await
            } else {
                None
            }
        },
        secrets::of_cluster(cluster, old, around, now),
    );
    let warnings = storage.into_iter().chain(priority).chain(secrets);
    Seen {
        refusals: collision.into_iter().collect(),
        ..Seen::warned(&warnings.collect::<Vec<_>>())
    }
}

fn warning(field: impl Into<String>, message: impl Into<String>) -> Warning {
    Warning {
        field: field.into(),
        message: message.into(),
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
        (Found::Yes(()), _, _) => longer.as_str(),
        (_, Found::Yes(()), Some(shorter)) => shorter,
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

async fn storage(cluster: &EtcdCluster, around: &dyn Surroundings) -> Option<Warning> {
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
    let message = match class {
        // An empty class asks for volumes that someone made by hand.
        Some("") => return None,
        Some(class) => (around.storage_class(class).await == Found::No)
            .then(|| format!("StorageClass `{class}` does not exist (yet)")),
        None => (around.default_storage_class().await == Found::No)
            .then(|| "none is named and no StorageClass is the default".to_owned()),
    };
    message.map(|message| warning(field, message))
}

fn priority_class(cluster: &EtcdCluster) -> Option<&str> {
    cluster.spec.pod.as_ref()?.priority_class_name.as_deref()
}

async fn priority(cluster: &EtcdCluster, around: &dyn Surroundings) -> Option<Warning> {
    let class = priority_class(cluster)?;
    if class.is_empty() || class.starts_with("system-") {
        return None;
    }
    (around.priority_class(class).await == Found::No).then(|| {
        warning(
            "spec.pod.priorityClassName",
            format!("PriorityClass `{class}` does not exist (yet)"),
        )
    })
}

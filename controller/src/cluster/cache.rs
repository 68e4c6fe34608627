//! The children of all clusters as the watches bring them: found by their cluster, and of each no more than is ever read. Whole
//! objects of a thousand clusters would be most of the process's memory.

mod text;

use std::{
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock},
};

use etcd_operator_api::{ValidatedCluster, v1beta2::EtcdCluster};
use futures::{Stream, StreamExt, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::ObjectRef,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

pub(crate) use text::Text;

use super::{
    children::labels,
    observe::{claim_facts, pod_facts},
    observed::{ClaimFacts, PodFacts},
};

/// A kind of child, and what of it is kept.
pub(crate) trait Child:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + 'static
{
    type Facts: PartialEq + Debug + Send + Sync + 'static;

    fn facts(self) -> Self::Facts;
}

impl Child for Pod {
    type Facts = PodFacts;

    fn facts(self) -> PodFacts {
        pod_facts(&self)
    }
}

impl Child for PersistentVolumeClaim {
    type Facts = ClaimFacts;

    fn facts(self) -> ClaimFacts {
        claim_facts(&self)
    }
}

impl Child for ConfigMap {
    type Facts = Text;

    fn facts(self) -> Text {
        Text::of(self)
    }
}

impl Child for Service {
    type Facts = Text;

    fn facts(self) -> Text {
        Text::of(Self {
            status: None,
            ..self
        })
    }
}

impl Child for PodDisruptionBudget {
    type Facts = Text;

    fn facts(self) -> Text {
        Text::of(Self {
            status: None,
            ..self
        })
    }
}

/// One child.
#[derive(Debug, PartialEq)]
pub(crate) struct Kept<Facts> {
    pub(crate) name: String,
    pub(crate) terminating: bool,
    /// Who owns it, by UID.
    owners: Vec<String>,
    /// Whose it says it is, where it has no owner because it outlives the resource.
    pub(crate) said: Option<String>,
    pub(crate) facts: Facts,
}

impl<Facts> Kept<Facts> {
    /// Of this very resource: a namesake's, deleted and re-created, is not.
    pub(crate) fn belongs(&self, cluster: &ValidatedCluster) -> bool {
        self.owners.contains(&cluster.uid) || self.said.as_ref() == Some(&cluster.uid)
    }
}

type Children<Facts> = Vec<Arc<Kept<Facts>>>;
type ByCluster<Facts> = HashMap<ClusterKey, Children<Facts>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClusterKey {
    namespace: String,
    cluster: String,
}

impl ClusterKey {
    fn of(meta: &ObjectMeta) -> Option<Self> {
        Some(Self {
            namespace: meta.namespace.clone()?,
            cluster: meta.labels.as_ref()?.get(labels::CLUSTER)?.clone(),
        })
    }

    fn reference(&self) -> ObjectRef<EtcdCluster> {
        ObjectRef::new(&self.cluster).within(&self.namespace)
    }
}

/// The watch that fills a cache has ended: what is in it grows old.
#[derive(Debug, thiserror::Error)]
#[error("a watch has ended")]
pub struct WatchEnded;

/// The children of one kind, for whoever reads them.
#[derive(Debug)]
pub(crate) struct Cache<Facts> {
    by_cluster: Arc<RwLock<ByCluster<Facts>>>,
    filled: watch::Receiver<bool>,
}

impl<Facts> Clone for Cache<Facts> {
    fn clone(&self) -> Self {
        Self {
            by_cluster: Arc::clone(&self.by_cluster),
            filled: self.filled.clone(),
        }
    }
}

impl<Facts> Cache<Facts> {
    /// Children that name this cluster, a namesake's included.
    pub(crate) fn of(&self, cluster: &ValidatedCluster) -> Children<Facts> {
        let key = ClusterKey {
            namespace: cluster.namespace.clone(),
            cluster: cluster.name.clone(),
        };
        let known = self
            .by_cluster
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        known.get(&key).cloned().unwrap_or_default()
    }

    /// Returns when it has been filled once.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), WatchEnded> {
        let mut filled = self.filled.clone();
        filled
            .wait_for(|filled| *filled)
            .await
            .map_err(|_| WatchEnded)?;
        Ok(())
    }
}

/// The end of a cache that the watch writes to.
#[derive(Debug)]
pub(crate) struct Filling<K: Child> {
    by_cluster: Arc<RwLock<ByCluster<K::Facts>>>,
    filled: watch::Sender<bool>,
    /// What a new list has brought so far; it counts only as a whole.
    listed: ByCluster<K::Facts>,
}

pub(crate) fn cache<K: Child>() -> (Cache<K::Facts>, Filling<K>) {
    let by_cluster = Arc::default();
    let (sender, filled) = watch::channel(false);
    let filling = Filling {
        by_cluster: Arc::clone(&by_cluster),
        filled: sender,
        listed: HashMap::new(),
    };
    (Cache { by_cluster, filled }, filling)
}

impl<K: Child> Filling<K> {
    /// Takes in what the watch tells, and says whose children are not what they were.
    pub(crate) fn note(&mut self, event: Event<K>) -> Vec<ObjectRef<EtcdCluster>> {
        let mut known = self
            .by_cluster
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(child) => {
                let Some((key, child)) = kept(child) else {
                    return Vec::new();
                };
                apply(&mut known, key, child)
            }
            Event::Delete(child) => {
                let Some(key) = ClusterKey::of(child.meta()) else {
                    return Vec::new();
                };
                let gone = remove(&mut known, &key, &child.name_any());
                gone.then(|| key.reference()).into_iter().collect()
            }
            Event::Init => {
                self.listed = HashMap::new();
                Vec::new()
            }
            Event::InitApply(child) => {
                if let Some((key, child)) = kept(child) {
                    self.listed.entry(key).or_default().push(Arc::new(child));
                }
                Vec::new()
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let before = std::mem::replace(&mut *known, listed);
                self.filled.send_replace(true);
                differing(&before, &known)
            }
        }
    }
}

fn kept<K: Child>(child: K) -> Option<(ClusterKey, Kept<K::Facts>)> {
    let meta = child.meta();
    let key = ClusterKey::of(meta)?;
    let owners = meta.owner_references.iter().flatten();
    let kept = Kept {
        name: child.name_any(),
        terminating: meta.deletion_timestamp.is_some(),
        owners: owners.map(|owner| owner.uid.clone()).collect(),
        said: child.annotations().get(labels::CLUSTER_UID).cloned(),
        facts: child.facts(),
    };
    Some((key, kept))
}

fn apply<Facts: PartialEq>(
    known: &mut ByCluster<Facts>,
    key: ClusterKey,
    child: Kept<Facts>,
) -> Vec<ObjectRef<EtcdCluster>> {
    let children = known.entry(key.clone()).or_default();
    if let Some(before) = children.iter_mut().find(|known| known.name == child.name) {
        if **before == child {
            return Vec::new();
        }
        *before = Arc::new(child);
        return vec![key.reference()];
    }
    // New to this cluster. Should somebody have changed its label, it is no longer where it was.
    let mut touched = vec![key.reference()];
    let elsewhere: Vec<ClusterKey> = known
        .iter()
        .filter(|(other, children)| {
            other.namespace == key.namespace && children.iter().any(|one| one.name == child.name)
        })
        .map(|(other, _)| other.clone())
        .collect();
    for other in elsewhere {
        remove(known, &other, &child.name);
        touched.push(other.reference());
    }
    known.entry(key).or_default().push(Arc::new(child));
    touched
}

fn remove<Facts>(known: &mut ByCluster<Facts>, key: &ClusterKey, name: &str) -> bool {
    let Some(children) = known.get_mut(key) else {
        return false;
    };
    let before = children.len();
    children.retain(|child| child.name != name);
    let gone = children.len() < before;
    if children.is_empty() {
        known.remove(key);
    }
    gone
}

/// The clusters whose children are not the same in both.
fn differing<Facts: PartialEq>(
    before: &ByCluster<Facts>,
    after: &ByCluster<Facts>,
) -> Vec<ObjectRef<EtcdCluster>> {
    let same = |one: &Children<Facts>, other: &Children<Facts>| {
        one.len() == other.len() && one.iter().all(|child| other.contains(child))
    };
    let changed = after
        .iter()
        .filter(|(key, now)| before.get(key).is_none_or(|then| !same(then, now)));
    let gone = before.iter().filter(|(key, _)| !after.contains_key(key));
    changed
        .chain(gone)
        .map(|(key, _)| key.reference())
        .collect()
}

/// Watches one kind of child that carries our label: what changes wakes its cluster.
pub(crate) fn watch_children<K: Child>(
    api: Api<K>,
) -> (impl Stream<Item = ObjectRef<EtcdCluster>>, Cache<K::Facts>) {
    let (cache, mut filling) = cache::<K>();
    let (key, value) = labels::MANAGED_BY;
    let ours = watcher::Config::default().labels(&format!("{key}={value}"));
    let changes = watcher(api, ours)
        .default_backoff()
        .map(move |event| match event {
            Ok(event) => stream::iter(filling.note(event)),
            Err(error) => {
                let kind = K::kind(&());
                tracing::debug!(%error, %kind, "a watch is interrupted");
                stream::iter(Vec::new())
            }
        })
        .flatten();
    (changes, cache)
}

//! Waiting on what the API server says, by watching it: no sleep, no polling.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
    pin::pin,
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, watch_object, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::report;

/// Far above what any wait takes on a slow, busy machine: reaching it means it would never have come.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// Nothing was seen to be wrong; what was waited for did not come in time. The one kind of failure that a machine too busy with
/// other things can cause by itself, so the one that is worth a second look.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct GaveUp(pub(crate) String);

/// Waits until `condition` holds of the object called `name` (`None` while it does not exist), and returns it.
/// `what` completes the sentence "waited for …".
pub async fn until<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    condition: impl Fn(Option<&K>) -> bool,
) -> anyhow::Result<Option<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let mut last: Option<K> = None;
    let mut trouble = None;
    let watching = async {
        let mut stream = pin!(watch_object(api, name).default_backoff());
        while let Some(seen) = stream.next().await {
            match seen {
                Ok(object) if condition(object.as_ref()) => return Some(object),
                Ok(object) => last = object,
                Err(error) => trouble = Some(error),
            }
        }
        None
    };
    if let Ok(Some(object)) = timeout(PATIENCE, watching).await {
        return Ok(object);
    }
    let seen = match last {
        Some(object) => format!("{name} was last seen as:\n{}", report::yaml(&object)),
        None => format!("{name} was never seen"),
    };
    Err(gave_up(what, trouble.as_ref(), &seen))
}

/// Waits until `condition` holds of all the objects that match, and returns them in the order of their names.
pub async fn until_all<K>(
    api: Api<K>,
    config: watcher::Config,
    what: &str,
    condition: impl Fn(&[K]) -> bool,
) -> anyhow::Result<Vec<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut known: BTreeMap<(Option<String>, String), K> = BTreeMap::new();
    let mut trouble = None;
    let key = |object: &K| (object.namespace(), object.name_any());
    let watching = async {
        let mut stream = pin!(watcher(api, config).default_backoff());
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => {
                    known.clear();
                    continue;
                }
                Ok(watcher::Event::InitApply(object)) => {
                    known.insert(key(&object), object);
                    continue;
                }
                Ok(watcher::Event::InitDone) => {}
                Ok(watcher::Event::Apply(object)) => {
                    known.insert(key(&object), object);
                }
                Ok(watcher::Event::Delete(object)) => {
                    known.remove(&key(&object));
                }
                Err(error) => {
                    trouble = Some(error);
                    continue;
                }
            }
            let all: Vec<K> = known.values().cloned().collect();
            if condition(&all) {
                return Some(all);
            }
        }
        None
    };
    if let Ok(Some(all)) = timeout(PATIENCE, watching).await {
        return Ok(all);
    }
    let names: Vec<&str> = known.keys().map(|(_, name)| name.as_str()).collect();
    Err(gave_up(
        what,
        trouble.as_ref(),
        &format!("last seen: [{}]", names.join(", ")),
    ))
}

/// Asks again and again, at `pace`, where nothing can be watched: etcd's own answers, a file.
pub async fn until_answer<T, F>(
    what: &str,
    pace: Duration,
    mut ask: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let mut trouble = None;
    let asking = async {
        let mut ticks = tokio::time::interval(pace);
        loop {
            ticks.tick().await;
            match ask().await {
                Ok(Some(answer)) => return answer,
                Ok(None) => trouble = None,
                Err(error) => trouble = Some(error),
            }
        }
    };
    match timeout(PATIENCE, asking).await {
        Ok(answer) => Ok(answer),
        Err(_) => Err(gave_up(what, trouble.as_ref(), "")),
    }
}

fn gave_up(what: &str, trouble: Option<&(impl Display + ?Sized)>, seen: &str) -> anyhow::Error {
    let trouble = trouble.map_or_else(String::new, |error| format!(" (last error: {error:#})"));
    let waited = PATIENCE.as_secs();
    GaveUp(format!("waited {waited} s for {what}{trouble}\n{seen}")).into()
}

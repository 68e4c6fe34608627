//! The order in which pods go: watched from the side, as a person with `kubectl get pods --watch` would.

use std::{collections::BTreeMap, pin::pin};

use anyhow::{Context as _, bail, ensure};
use etcd_operator_tests::{Cluster, Context, Outcome, PATIENCE};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

/// One pod asked to go, and which others were not ready at that moment.
#[derive(Debug)]
struct Departure {
    member: String,
    others_not_ready: Vec<String>,
}

/// A roll through all members, from before its first restart to after its last.
#[derive(Debug)]
pub(crate) struct Restarts {
    members: Vec<String>,
    watching: JoinHandle<anyhow::Result<Vec<Departure>>>,
}

impl Restarts {
    /// Begins to watch; from its return on, no restart is missed.
    pub(crate) async fn watched(context: &Context, cluster: &Cluster<'_>) -> anyhow::Result<Self> {
        let pods = cluster.pods().await?;
        let members: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        let before = pods.into_iter().map(|pod| (pod.name_any(), pod)).collect();
        let (known, begun) = oneshot::channel();
        let own = watcher::Config::default().labels(&format!("etcd_cluster={}", cluster.name()));
        let watching = tokio::spawn(watch(context.api(), own, before, known));
        timeout(PATIENCE, begun)
            .await
            .context("the watch of pods does not begin")?
            .context("the watch of pods ended")?;
        Ok(Self { members, watching })
    }

    /// Every member was restarted once, and each only while all the others were ready.
    pub(crate) async fn each_member_once_and_alone(self) -> Outcome {
        let departures = timeout(PATIENCE, self.watching)
            .await
            .context("not every member was restarted")?
            .context("the watch of pods")??;
        let crowded: Vec<&Departure> = departures
            .iter()
            .filter(|one| !one.others_not_ready.is_empty())
            .collect();
        ensure!(
            crowded.is_empty(),
            "restarted while others were not ready: {crowded:?}"
        );
        let mut restarted: Vec<&str> = departures.iter().map(|one| one.member.as_str()).collect();
        restarted.sort_unstable();
        ensure!(
            restarted == self.members,
            "each of {:?} restarts once, but these did: {restarted:?}",
            self.members
        );
        Ok(())
    }
}

/// Until a new and ready pod has come for each of those that were there `before`.
async fn watch(
    api: Api<Pod>,
    own: watcher::Config,
    before: BTreeMap<String, Pod>,
    begun: oneshot::Sender<()>,
) -> anyhow::Result<Vec<Departure>> {
    let mut begun = Some(begun);
    let mut now = before.clone();
    let mut departures = Vec::new();
    let mut stream = pin!(watcher(api, own).default_backoff());
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::InitDone) => {
                if let Some(begun) = begun.take() {
                    let _ = begun.send(());
                }
            }
            Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => {
                let name = pod.name_any();
                let stayed = now.get(&name).filter(|old| !leaving(old));
                if stayed.is_some_and(|old| leaving(&pod) || old.uid() != pod.uid()) {
                    departures.push(departure(&now, &name));
                }
                now.insert(name, pod);
            }
            Ok(watcher::Event::Delete(pod)) => {
                let name = pod.name_any();
                if now.get(&name).is_some_and(|old| !leaving(old)) {
                    departures.push(departure(&now, &name));
                }
                now.remove(&name);
            }
            Ok(watcher::Event::Init) | Err(_) => {}
        }
        let renewed = before.iter().all(|(name, old)| {
            now.get(name)
                .is_some_and(|pod| pod.uid() != old.uid() && ready(pod))
        });
        if renewed {
            return Ok(departures);
        }
    }
    bail!("the watch of pods ended")
}

fn departure(now: &BTreeMap<String, Pod>, member: &str) -> Departure {
    let others = now
        .iter()
        .filter(|(name, pod)| *name != member && !ready(pod));
    Departure {
        member: member.to_owned(),
        others_not_ready: others.map(|(name, _)| name.clone()).collect(),
    }
}

fn leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Ready to serve and not on its way out.
pub(crate) fn ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    !leaving(pod)
        && conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one.type_ == "Ready" && one.status == "True")
        })
}

//! The second member of a cluster that knows no learners: a place first, then the membership and the word to start, at once.

use etcd_operator_api::ValidatedCluster;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{ActError, asks, create, pod_of};
use crate::cluster::{
    Context,
    children::labels,
    keep, names, observe,
    observed::{Awaits, Observed, Start},
    step::Step,
};

/// Creates the pod. It waits: how it is to start is not in the ConfigMap yet.
pub(super) async fn make_a_place(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    name: &str,
) -> Result<(), ActError> {
    let mut pod = pod_of(context, cluster, seen, name)?;
    pod.annotations_mut()
        .insert(labels::NEWCOMER.to_owned(), "waits".to_owned());
    create(context, cluster, pod).await
}

/// Adds the member whose pod is in its place.
///
/// The word is written before the member is added: if we die in between, the kubelet starts it without us. Should it look in that very
/// moment, etcd finds itself in no list and ends, and the pod is made anew.
pub(super) async fn add(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    name: &str,
    step: &Step,
) -> Result<(), ActError> {
    let out_of_date = || ActError::OutOfDate {
        what: step.to_string(),
    };
    let what = format!("Pod {name}");
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let live = pods.get_opt(name).await;
    let live = live.map_err(|source| ActError::Api { what, source })?;
    let facts = observe::pod_facts(&live.ok_or_else(out_of_date)?);
    let known = seen.members.get(name).and_then(|known| known.pod.as_ref());
    let same = known.is_some_and(|known| known.uid == facts.uid);
    if !same || facts.terminating || facts.awaits != Some(Awaits::Word) {
        return Err(out_of_date());
    }
    let first = seen.voters().map(|(voter, _)| voter.clone());
    let all: Vec<String> = first.chain([name.to_owned()]).collect();
    let mut starts = seen.starts.clone();
    starts.insert(
        name.to_owned(),
        Start::Join {
            initial_cluster: names::initial_cluster(cluster, &all),
        },
    );
    keep::write_starts(context, cluster, &starts).await?;
    Box::pin(asks::ask(context, cluster, seen, step)).await?;
    give_the_word(context, cluster, name, &facts.uid).await
}

/// Any change of the pod makes its kubelet look at it at once, instead of in ten seconds.
pub(super) async fn give_the_word(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    uid: &str,
) -> Result<(), ActError> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let now = jiff::Timestamp::now().to_string();
    let change = json!({"metadata": {"uid": uid, "annotations": {labels::NEWCOMER: now}}});
    pods.patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .map_err(|source| ActError::Api {
            what: format!("Pod {name}"),
            source,
        })?;
    Ok(())
}

//! Takes over the children that CoreOS's operator made: labels and annotations are added, and nothing of them is restarted.

use etcd_operator_api::{ValidatedCluster, Version};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{ActError, writes::patch_claim};
use crate::cluster::{
    Context,
    children::{InPlace, fingerprint, labels},
    observed::{Member, Observed},
};

/// Makes them ours. Each change names the UID it means, and all of them may be made again.
pub(super) async fn take_over(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
) -> Result<(), ActError> {
    let claims = seen.members.iter().filter_map(|(name, member)| {
        let claim = member.claim.as_ref()?;
        let metadata = json!({
            "uid": claim.uid,
            "labels": labels::of_member(cluster, name),
            "annotations": {labels::CLAIM_VERSION: version(cluster, member).to_string()},
        });
        let change = json!({"metadata": metadata});
        Some(patch_claim(context, cluster, name, change))
    });
    try_join_all(claims).await?;
    let pods = seen.members.iter().filter_map(|(name, member)| {
        let pod = member.pod.as_ref()?;
        let version = version(cluster, member);
        let mut all_labels = labels::of_member(cluster, name);
        all_labels.insert(labels::VERSION.to_owned(), version.to_string());
        // It counts as made by the spec as it is: what is changed from now on is what is carried out.
        let annotations = json!({
            labels::CONFIG: fingerprint(cluster, name),
            labels::IN_PLACE: InPlace::of(cluster).text(),
        });
        let metadata = json!({"uid": pod.uid, "labels": all_labels, "annotations": annotations});
        Some(patch_pod(
            context,
            cluster,
            name,
            json!({"metadata": metadata}),
        ))
    });
    try_join_all(pods).await?;
    Ok(())
}

/// What it runs by its own word; the spec's where it does not answer, as CoreOS's operator would have it.
fn version(cluster: &ValidatedCluster, member: &Member) -> Version {
    let answer = member.answer.as_ref();
    answer
        .and_then(|answer| answer.version.parse().ok())
        .unwrap_or(cluster.version)
}

/// Another image for a pod that keeps its data in itself. The kubelet starts a container anew whose image has changed, whatever the
/// pod's restart policy, and leaves its volumes alone.
pub(super) async fn swap_image(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    uid: &str,
) -> Result<(), ActError> {
    let change = json!({
        "metadata": {
            "uid": uid,
            "labels": {labels::VERSION: cluster.version.to_string()},
            "annotations": {
                labels::CONFIG: fingerprint(cluster, name),
                "etcd.version": cluster.version.to_string(),
            },
        },
        "spec": {"containers": [{"name": "etcd", "image": cluster.image}]},
    });
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
    pods.patch(name, &PatchParams::default(), &Patch::Strategic(&change))
        .await
        .map_err(|source| ActError::Api {
            what: format!("Pod {name}"),
            source,
        })?;
    Ok(())
}

async fn patch_pod(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    change: Value,
) -> Result<(), ActError> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
    pods.patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .map_err(|source| ActError::Api {
            what: format!("Pod {name}"),
            source,
        })?;
    Ok(())
}

//! The third guard: what is stored all the same is held by the controller, and nothing is touched.

use anyhow::{Context as _, bail, ensure};
use etcd_operator_tests::{Context, Outcome, condition_is, until};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
};

use super::{BESIDE_EACH_OTHER, walker::Walker};

/// Stored, and held by the controller in the same words, and without a single child.
pub(super) async fn held(context: &Context, walkers: &[&Walker]) -> Outcome {
    let walkers: Vec<Walker> = walkers.iter().copied().cloned().collect();
    let stored: Vec<(Walker, DynamicObject)> = stream::iter(walkers)
        .map(|walker| async move {
            let object = walker.object(context, &walker.example.new, "held")?;
            let stored = walker
                .api(context)
                .create(&PostParams::default(), &object)
                .await
                .with_context(|| format!("{walker}: storing it"))?;
            anyhow::Ok((walker, stored))
        })
        .buffer_unordered(BESIDE_EACH_OTHER)
        .try_collect()
        .await?;
    for (walker, object) in &stored {
        let held = stalled(walker.api(context), &object.name_any(), &walker.words)
            .await
            .with_context(|| walker.to_string())?;
        let status = &held.data["status"];
        ensure!(
            status["phase"].is_null() && held.finalizers().is_empty(),
            "{walker}: held, and yet begun: {status}"
        );
    }
    let owned = children(context).await?;
    let clusters = context.clusters().list(&ListParams::default()).await?;
    for (walker, object) in &stored {
        let uid = object.uid().context("a stored object has a UID")?;
        // A cluster that a restore has made is owned by nobody, and bears the UID in its annotation.
        let made = |cluster: &&DynamicObject| {
            let mut annotations = cluster.annotations().values();
            annotations.any(|text| text.contains(&uid))
        };
        if let Some(cluster) = clusters.items.iter().find(made) {
            bail!(
                "{walker}: held, and yet there is a cluster {}",
                cluster.name_any()
            );
        }
        let children: Vec<&String> = owned
            .iter()
            .filter(|(owner, _)| *owner == uid)
            .map(|(_, child)| child)
            .collect();
        ensure!(
            children.is_empty(),
            "{walker}: held, and yet there are {children:?}"
        );
    }
    Ok(())
}

/// Waits until the controller has looked at the spec as it is and holds it, and sees that it says what the judge says.
pub(super) async fn stalled(
    api: Api<DynamicObject>,
    name: &str,
    words: &[(String, String)],
) -> anyhow::Result<DynamicObject> {
    let held = until(api, name, "the controller to hold it", |found| {
        found.is_some_and(|object| condition_is(object, "Stalled", "True"))
    })
    .await?
    .context("a held object exists")?;
    let conditions = held.data["status"]["conditions"].as_array();
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Stalled")
        .context("a condition Stalled")?;
    let message = condition["message"].as_str().unwrap_or_default();
    for (_, words) in words {
        ensure!(
            message.contains(words.as_str()),
            "`{words}` is not in `{message}`"
        );
    }
    Ok(held)
}

/// (owner's UID, what it is) of every child in the namespace.
async fn children(context: &Context) -> anyhow::Result<Vec<(String, String)>> {
    async fn of<K>(context: &Context) -> anyhow::Result<Vec<(String, String)>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let all = context.api::<K>().list(&ListParams::default()).await?;
        let owners = all.items.iter().flat_map(|child| {
            let name = format!("{} {}", K::kind(&()), child.name_any());
            child
                .owner_references()
                .iter()
                .map(move |owner| (owner.uid.clone(), name.clone()))
        });
        Ok(owners.collect())
    }
    let mut all = of::<Pod>(context).await?;
    all.extend(of::<Job>(context).await?);
    all.extend(of::<PersistentVolumeClaim>(context).await?);
    all.extend(of::<Service>(context).await?);
    all.extend(of::<ConfigMap>(context).await?);
    all.extend(of::<Secret>(context).await?);
    all.extend(of::<PodDisruptionBudget>(context).await?);
    Ok(all)
}

/// The members' pods and claims, by what changes when one of them is touched.
pub(super) async fn members(context: &Context, cluster: &str) -> anyhow::Result<Vec<String>> {
    let cluster = context.cluster(cluster);
    let pods = cluster.pods().await?.into_iter().map(|pod| {
        let restarts: i32 = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten())
            .map(|container| container.restart_count)
            .sum();
        format!("pod {} {:?} {restarts}", pod.name_any(), pod.metadata.uid)
    });
    let claims = cluster.claims().await?.into_iter().map(|claim| {
        format!(
            "claim {} {:?} {:?} {:?}",
            claim.name_any(),
            claim.metadata.uid,
            claim.annotations(),
            claim.spec.as_ref().and_then(|spec| spec.resources.as_ref())
        )
    });
    Ok(pods.chain(claims).collect())
}

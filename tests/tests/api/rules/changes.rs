//! Changes of what may not change: the controller judges them against what it last acted on. Putting the spec back is let in by every
//! guard, and the cluster goes on.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Cluster, Context, Outcome, condition_is, until, until_answer};
use futures::future::try_join_all;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    held::{members, stalled},
    walker::Walker,
};

/// Clusters that were acted on as the examples stood before they were changed.
pub(super) struct Changes<'a> {
    context: &'a Context,
    /// Each with its spec as it was stored.
    all: Vec<(Walker, Value)>,
}

impl<'a> Changes<'a> {
    /// Asks for them; they come up while the other guards are asked.
    pub(super) async fn start(context: &'a Context, walkers: &[Walker]) -> anyhow::Result<Self> {
        let mut all = Vec::new();
        let of_clusters = walkers
            .iter()
            .filter(|walker| walker.example.kind() == "EtcdCluster")
            .filter(|walker| walker.is_change() && !walker.is_of_running_etcd());
        for walker in of_clusters {
            let old = walker.example.old.as_ref().context("a change")?;
            let stored = context
                .cluster(&walker.changed_name())
                .create(&alone(&old["spec"]))
                .await
                .with_context(|| walker.to_string())?;
            all.push((walker.clone(), stored.data["spec"].clone()));
        }
        ensure!(all.len() > 10, "only {} changes", all.len());
        Ok(Self { context, all })
    }

    /// Changes each of them with no guard left but the controller.
    pub(super) async fn hold(&self) -> Outcome {
        try_join_all(self.all.iter().map(|(walker, _)| async move {
            self.hold_one(walker)
                .await
                .with_context(|| walker.to_string())
        }))
        .await?;
        Ok(())
    }

    async fn hold_one(&self, walker: &Walker) -> Outcome {
        let cluster = self.context.cluster(&walker.changed_name());
        self.settled(&cluster).await?;
        let before = members(self.context, cluster.name()).await?;
        ensure!(!before.is_empty(), "the cluster has members");
        let new = alone(&walker.example.new["spec"]);
        self.replace_spec(&cluster, &new).await?;
        stalled(self.context.clusters(), cluster.name(), &walker.words).await?;
        // A second look, at a spec that differs in nothing that matters: still held, still untouched.
        cluster.change(&json!({"deletionProtection": true})).await?;
        stalled(self.context.clusters(), cluster.name(), &walker.words).await?;
        let after = members(self.context, cluster.name()).await?;
        ensure!(before == after, "held, and yet {before:?} became {after:?}");
        Ok(())
    }

    /// Puts each of them back, and sees that it goes on.
    pub(super) async fn put_back(&self) -> Outcome {
        try_join_all(self.all.iter().map(|(walker, before)| async move {
            self.put_one_back(walker, before)
                .await
                .with_context(|| walker.to_string())
        }))
        .await?;
        Ok(())
    }

    async fn put_one_back(&self, walker: &Walker, before: &Value) -> Outcome {
        let cluster = self.context.cluster(&walker.changed_name());
        self.replace_spec(&cluster, before).await?;
        until(
            self.context.clusters(),
            cluster.name(),
            "the controller to go on",
            |found| found.is_some_and(|cluster| condition_is(cluster, "Stalled", "False")),
        )
        .await?;
        self.settled(&cluster).await?;
        // Or the controller would heal it in a namespace that is being deleted.
        cluster.delete().await?;
        cluster.gone().await
    }

    /// Ready; or, where its class does not exist, with a member that waits for its volume.
    async fn settled(&self, cluster: &Cluster<'_>) -> Outcome {
        let named_class = |cluster: &DynamicObject| {
            let spec = &cluster.data["spec"];
            !spec["storage"]["className"].is_null()
                || !spec["pod"]["persistentVolumeClaimSpec"]["storageClassName"].is_null()
        };
        if !named_class(&cluster.get().await?) {
            cluster.ready().await?;
            return Ok(());
        }
        until_answer(
            "a member that waits for its volume",
            Duration::from_millis(200),
            || async {
                let accepted = &cluster.get().await?.data["status"]["accepted"];
                let found = (cluster.pods().await?.len(), cluster.claims().await?.len());
                Ok((accepted.is_object() && found == (1, 1)).then_some(()))
            },
        )
        .await
    }

    async fn replace_spec(&self, cluster: &Cluster<'_>, spec: &Value) -> Outcome {
        let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
        self.context
            .clusters()
            .patch(
                cluster.name(),
                &PatchParams::default(),
                &Patch::<Value>::Json(serde_json::from_value(patch)?),
            )
            .await
            .with_context(|| format!("making the spec of {} {spec}", cluster.name()))?;
        Ok(())
    }
}

impl Walker {
    fn changed_name(&self) -> String {
        format!("changes-{}", self.number)
    }
}

/// The same, of one member: there are many of these clusters.
fn alone(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["size"] = json!(1);
    spec
}

//! Changes of version: the controller judges them against the etcd that runs.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, Outcome, until};
use futures::future::try_join_all;
use serde_json::json;

use super::{
    held::{members, stalled},
    walker::Walker,
};

/// Clusters that really run what the examples about versions start from.
pub(super) struct Running<'a> {
    context: &'a Context,
}

impl<'a> Running<'a> {
    /// Asks for them; they come up while the other guards are asked.
    pub(super) async fn start(context: &'a Context, walkers: &[Walker]) -> anyhow::Result<Self> {
        for walker in walkers.iter().filter(|walker| walker.is_of_running_etcd()) {
            let versions = walker.versions()?;
            // Members on two minors are found halfway through an upgrade, and there must be a half.
            let size = if versions.len() > 1 { 3 } else { 1 };
            let spec = json!({"size": size, "version": versions[0]});
            context
                .cluster(&walker.running_name())
                .create(&spec)
                .await?;
        }
        Ok(Self { context })
    }

    pub(super) async fn hold(&self, walkers: &[&Walker]) -> Outcome {
        try_join_all(walkers.iter().map(|walker| async move {
            self.hold_one(walker)
                .await
                .with_context(|| walker.to_string())
        }))
        .await?;
        Ok(())
    }

    /// An illegal change is held and touches no member, and putting the version back leaves it.
    async fn hold_one(&self, walker: &Walker) -> Outcome {
        let cluster = self.context.cluster(&walker.running_name());
        cluster.ready().await?;
        let versions = walker.versions()?;
        let mut back = versions[0].clone();
        if let Some(onward) = versions.get(1) {
            cluster.change(&json!({"version": onward})).await?;
            until(
                self.context.clusters(),
                cluster.name(),
                "members of two minors",
                |found| {
                    found.is_some_and(|cluster| {
                        let members = cluster.data["status"]["memberStatus"].as_array();
                        let runs = |version: &String| {
                            members.is_some_and(|all| {
                                all.iter().any(|member| member["version"] == **version)
                            })
                        };
                        versions.iter().all(runs)
                    })
                },
            )
            .await?;
            back.clone_from(onward);
        }
        let target = walker.example.new["spec"]["version"].clone();
        cluster.change(&json!({"version": target})).await?;
        stalled(self.context.clusters(), cluster.name(), &walker.words).await?;
        let before = members(self.context, cluster.name()).await?;
        ensure!(!before.is_empty(), "the cluster has members");
        // A second look, at a spec that differs in nothing that matters: still held, still untouched.
        cluster.change(&json!({"deletionProtection": true})).await?;
        stalled(self.context.clusters(), cluster.name(), &walker.words).await?;
        let after = members(self.context, cluster.name()).await?;
        ensure!(before == after, "held, and yet {before:?} became {after:?}");
        cluster
            .change(&json!({"version": back, "deletionProtection": false}))
            .await?;
        cluster.ready().await?;
        // Or the controller would heal it in a namespace that is being deleted.
        cluster.delete().await?;
        cluster.gone().await
    }
}

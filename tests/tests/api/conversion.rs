//! v1alpha1, served through the conversion webhook.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, Outcome};
use serde_json::{Value, json};

const OLD: &str = "etcdclusters.v1alpha1.etcd.database.coreos.com";

pub(crate) async fn a_v1beta2_object_reads_as_v1alpha1(context: &Context) -> Outcome {
    context
        .cluster("new")
        .create(&json!({"size": 5, "paused": true, "storage": {"size": "10Gi"}}))
        .await?;
    let text = context
        .kubectl(&["get", OLD, "new", "--output=json"])
        .await?
        .ok()?;
    let old: Value = serde_json::from_str(&text)?;
    ensure!(
        old["apiVersion"] == "etcd.database.coreos.com/v1alpha1",
        "{old:#}"
    );
    ensure!(
        old["spec"]["replicas"] == 5,
        "size is not replicas: {old:#}"
    );
    ensure!(
        old["spec"]["storage"] == "10Gi",
        "storage.size is not storage: {old:#}"
    );
    ensure!(old["spec"]["version"].is_string(), "no version: {old:#}");
    Ok(())
}

pub(crate) async fn what_v1alpha1_cannot_say_survives_a_write_through_it(
    context: &Context,
) -> Outcome {
    let spec = json!({"size": 3, "paused": true, "options": {"quotaBackend": "1Gi"}, "pod": {"labels": {"team": "a"}}});
    context.cluster("kept").create(&spec).await?;
    let before = context.cluster("kept").get().await?;
    let text = context
        .kubectl(&["get", OLD, "kept", "--output=json"])
        .await?
        .ok()?;
    let mut old: Value = serde_json::from_str(&text)?;
    *old.pointer_mut("/spec/replicas")
        .context("v1alpha1 has replicas")? = json!(5);
    context.kubectl_with(&["replace"], &old).await?.ok()?;

    let after = context.cluster("kept").get().await?;
    let mut wanted = before.data["spec"].clone();
    wanted["size"] = json!(5);
    ensure!(
        after.data["spec"] == wanted,
        "changed on the way: {:#}\nwanted: {wanted:#}",
        after.data["spec"]
    );
    ensure!(
        before.metadata.annotations == after.metadata.annotations,
        "annotations: {:?}",
        after.metadata.annotations
    );
    Ok(())
}

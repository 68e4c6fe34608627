//! The custom resource definition as a person meets it.

use anyhow::ensure;
use etcd_operator_tests::{Context, Outcome};
use serde_json::json;

pub(crate) async fn a_person_can_ask_what_the_fields_mean(context: &Context) -> Outcome {
    let text = context
        .kubectl(&["explain", "etcdcluster.spec"])
        .await?
        .ok()?;
    for field in [
        "size",
        "version",
        "storage",
        "security",
        "options",
        "pod",
        "deletionProtection",
    ] {
        ensure!(
            text.contains(field),
            "`kubectl explain` does not know {field}:\n{text}"
        );
    }
    let text = context
        .kubectl(&["explain", "etcdcluster.spec.size"])
        .await?
        .ok()?;
    ensure!(
        text.to_lowercase().contains("members"),
        "`size` is not explained:\n{text}"
    );
    Ok(())
}

pub(crate) async fn short_names_and_the_category_find_a_cluster(context: &Context) -> Outcome {
    context
        .cluster("found")
        .create(&json!({"paused": true}))
        .await?;
    for name in ["etcd", "etcdclus", "etcdcluster", "etcdclusters"] {
        let text = context
            .kubectl(&["get", name, "--output=name"])
            .await?
            .ok()?;
        ensure!(
            text.contains("/found"),
            "`kubectl get {name}` shows: {text}"
        );
    }
    Ok(())
}

pub(crate) async fn a_name_too_long_for_its_children_is_refused(context: &Context) -> Outcome {
    let longest = "n".repeat(40);
    context
        .kubectl_with(
            &["create", "--dry-run=server"],
            &context.manifest(&longest, &json!({})),
        )
        .await?
        .ok()?;
    let message = context
        .kubectl_with(
            &["create", "--dry-run=server"],
            &context.manifest(&format!("{longest}n"), &json!({})),
        )
        .await?
        .refused()?;
    ensure!(message.contains("40"), "the bound is not told: {message}");
    Ok(())
}

//! What is let in, what is refused, and what is written into what is let in.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, GROUP, Outcome, until_answer, without_admission};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod, Secret, Service};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use std::time::Duration;

/// Server-side dry-run: admission in full, nothing stored.
async fn dry(context: &Context, spec: &Value) -> anyhow::Result<etcd_operator_tests::Finished> {
    let manifest = context.manifest("dry", spec);
    context
        .kubectl_with(&["create", "--dry-run=server", "--output=json"], &manifest)
        .await
}

async fn refusal(context: &Context, spec: &Value) -> anyhow::Result<String> {
    dry(context, spec).await?.refused()
}

async fn admitted(context: &Context, spec: &Value) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&dry(context, spec).await?.ok()?)?)
}

fn names_both_neighbours(message: &str) -> Outcome {
    ensure!(
        message.contains("spec.size"),
        "the field is not named: {message}"
    );
    ensure!(message.contains("odd"), "the reason is not told: {message}");
    let offers = |size: &str| {
        message
            .split(|letter: char| !letter.is_ascii_alphanumeric())
            .any(|word| word == size)
    };
    ensure!(
        offers("3") && offers("5"),
        "3 and 5 are not offered: {message}"
    );
    Ok(())
}

pub(crate) async fn an_even_size_is_refused_with_its_reason_and_both_odd_neighbours(
    context: &Context,
) -> Outcome {
    let message = context
        .kubectl_with(&["apply"], &context.manifest("even", &json!({"size": 4})))
        .await?
        .refused()?;
    names_both_neighbours(&message)?;
    let left = context.clusters().list(&ListParams::default()).await?;
    ensure!(left.items.is_empty(), "a refused resource was stored");
    Ok(())
}

pub(crate) async fn every_fault_is_named_at_once(context: &Context) -> Outcome {
    // Faults that CEL cannot see: on those that it sees, the API server answers alone, before the webhook is asked.
    for (spec, faults) in [
        (
            json!({"version": "3.5.1", "options": {"extraArgs": {"data-dir": "/elsewhere"}}}),
            ["spec.version", "data-dir"],
        ),
        (
            json!({"options": {"extraArgs": {"data-dir": "/elsewhere", "no-such-flag": "1"}}}),
            ["data-dir", "no-such-flag"],
        ),
    ] {
        let message = refusal(context, &spec).await?;
        for fault in faults {
            ensure!(message.contains(fault), "{fault} is not named: {message}");
        }
    }
    Ok(())
}

pub(crate) async fn scaling_to_an_even_size_is_refused(context: &Context) -> Outcome {
    context
        .cluster("held")
        .create(&json!({"paused": true}))
        .await?;
    let message = context
        .kubectl(&["scale", "etcdcluster/held", "--replicas=4"])
        .await?
        .refused()?;
    names_both_neighbours(&message.replace("spec.replicas", "spec.size"))?;
    let size = context.cluster("held").get().await?.data["spec"]["size"].clone();
    ensure!(size == 3, "the size moved to {size}");
    context
        .kubectl(&["scale", "etcdcluster/held", "--replicas=5"])
        .await?
        .ok()?;
    let size = context.cluster("held").get().await?.data["spec"]["size"].clone();
    ensure!(size == 5, "scaling to 5 left the size at {size}");
    Ok(())
}

pub(crate) async fn what_is_left_unset_is_filled_and_what_is_written_stays(
    context: &Context,
) -> Outcome {
    let spec = admitted(context, &json!({})).await?["spec"].clone();
    let version = spec["version"]
        .as_str()
        .context("no version was filled in")?;
    ensure!(version.split('.').count() == 3, "{version} is not X.Y.Z");
    for (field, wanted) in [
        ("/size", json!(3)),
        ("/repository", json!("gcr.io/etcd-development/etcd")),
        ("/storage/size", json!("8Gi")),
        ("/storage/reclaim", json!("Delete")),
        ("/security/peerTLS/mode", json!("Auto")),
        ("/security/clientTLS/mode", json!("Off")),
        ("/options/quotaBackend", json!("2Gi")),
        ("/options/heartbeatInterval", json!("100ms")),
        ("/options/electionTimeout", json!("1s")),
        ("/options/autoCompaction/mode", json!("Periodic")),
        ("/options/autoCompaction/retention", json!("1h")),
        ("/recovery/unreachableAfter", json!("5m")),
    ] {
        ensure!(
            spec.pointer(field) == Some(&wanted),
            "spec{field} should be {wanted} in {spec:#}"
        );
    }

    let written = json!({"size": 5, "version": "v3.5.35", "storage": {"size": "9Gi"}, "options": {"quotaBackend": "1Gi"}});
    let spec = admitted(context, &written).await?["spec"].clone();
    for field in [
        "/size",
        "/version",
        "/storage/size",
        "/options/quotaBackend",
    ] {
        ensure!(
            spec.pointer(field) == written.pointer(field),
            "spec{field} was rewritten: {spec:#}"
        );
    }
    Ok(())
}

pub(crate) async fn applying_the_same_manifest_again_changes_nothing(context: &Context) -> Outcome {
    let manifest = context.manifest("twice", &json!({"size": 3, "paused": true}));
    context
        .kubectl_with(&["apply", "--server-side"], &manifest)
        .await?
        .ok()?;
    let first = context.cluster("twice").get().await?;
    context
        .kubectl_with(&["apply", "--server-side"], &manifest)
        .await?
        .ok()?;
    let second = context.cluster("twice").get().await?;
    ensure!(
        first.metadata.generation == second.metadata.generation,
        "the spec changed: {:#}",
        second.data["spec"]
    );
    ensure!(
        first.data["spec"] == second.data["spec"],
        "the spec changed: {:#}",
        second.data["spec"]
    );
    Ok(())
}

pub(crate) async fn a_dry_run_leaves_nothing_behind(context: &Context) -> Outcome {
    admitted(context, &json!({})).await?;
    refusal(context, &json!({"size": 4})).await?;
    // A real object after the dry-run: once the operator has seen this one, it would have acted on the other too.
    let real = context.cluster("real");
    real.create(&json!({"paused": true})).await?;
    until_answer(
        "the operator to see the object",
        Duration::from_millis(100),
        || async {
            let cluster = real.get().await?;
            Ok((cluster.data["status"]["observedGeneration"].as_i64()
                == cluster.metadata.generation)
                .then_some(()))
        },
    )
    .await?;
    let named = |names: Vec<String>| {
        names
            .into_iter()
            .filter(|name| name.starts_with("dry"))
            .collect::<Vec<_>>()
    };
    let mut left = named(names(&context.clusters()).await?);
    left.extend(named(names(&context.api::<Pod>()).await?));
    left.extend(named(names(&context.api::<Service>()).await?));
    left.extend(named(names(&context.api::<PersistentVolumeClaim>()).await?));
    left.extend(named(names(&context.api::<Secret>()).await?));
    left.extend(named(names(&context.api::<Event>()).await?));
    ensure!(left.is_empty(), "a dry-run left {left:?}");
    Ok(())
}

async fn names<K>(api: &Api<K>) -> anyhow::Result<Vec<String>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    Ok(api
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .map(kube::ResourceExt::name_any)
        .collect())
}

pub(crate) async fn a_risky_setting_is_let_in_with_a_warning(context: &Context) -> Outcome {
    let answer = dry(context, &json!({"size": 1})).await?;
    let warned = answer.stderr.clone();
    answer.ok()?;
    ensure!(
        warned.contains("Warning:") && warned.contains("size"),
        "no warning about one member: {warned}"
    );
    Ok(())
}

/// Without it the API server's own validation would refuse the manifest as a whole.
pub(crate) async fn a_misspelt_field_is_let_in_with_what_was_probably_meant(
    context: &Context,
) -> Outcome {
    let manifest = context.manifest("misspelt", &json!({"paused": true, "sise": 5}));
    let apply = ["apply", "--validate=false"];
    let first = context.kubectl_with(&apply, &manifest).await?;
    let told = "Warning: spec.sise: unknown field, ignored; did you mean spec.size?";
    ensure!(
        first.stderr.contains(told),
        "not told when it was created: {}",
        first.stderr
    );
    first.ok()?;
    let manifest = context.manifest("misspelt", &json!({"paused": true, "versoin": "3.6.16"}));
    let second = context.kubectl_with(&apply, &manifest).await?;
    ensure!(
        second.stderr.contains("did you mean spec.version?"),
        "not told where nothing but the manifest changed: {}",
        second.stderr
    );
    second.ok()?;
    Ok(())
}

pub(crate) async fn a_minor_that_nobody_knows_is_refused(context: &Context) -> Outcome {
    let message = refusal(context, &json!({"version": "3.99.0"})).await?;
    ensure!(
        message.contains("spec.version") && message.contains("3.7"),
        "{message}"
    );
    Ok(())
}

/// Takes the webhook configurations away: nothing else may run beside it.
pub(crate) async fn without_the_webhook_the_api_server_itself_refuses_an_even_size(
    context: &Context,
) -> Outcome {
    without_admission(context, even_size_without_webhook(context)).await
}

async fn even_size_without_webhook(context: &Context) -> Outcome {
    let message = refusal(context, &json!({"size": 4})).await?;
    ensure!(
        !message.contains(&format!("admission webhook \"{GROUP}")),
        "a webhook answered: {message}"
    );
    names_both_neighbours(&message)?;
    let message = refusal(context, &json!({"size": 9})).await?;
    ensure!(message.contains("spec.size"), "{message}");
    Ok(())
}

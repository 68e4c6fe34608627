//! The chart as Argo CD and Flux see it: rendered, applied server-side under a name of their own, compared with what is there; and the
//! rendered file for those who use kubectl alone.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, Finished, OPERATOR_NAMESPACE, Outcome, RELEASE, run, until};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::Deployment,
    coordination::v1::Lease,
};
use kube::Api;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::process::Command;

/// A release of its own: what another owns in the suite's release, Helm could not change any more.
const OURS: &str = "gitops";
const MANAGER: &str = "--field-manager=gitops";

pub(crate) async fn one_who_applies_the_rendered_chart_finds_nothing_to_change_while_the_operator_runs(
    context: &Context,
) -> Outcome {
    let namespace = context.namespace();
    let only_here = format!("watchNamespaces={{{namespace}}}");
    let objects = rendered(
        context,
        OURS,
        namespace,
        &["--set=crds.install=false", "--set", &only_here],
    )
    .await?;
    let played = apply_twice(context, &objects).await;
    kubectl(
        context,
        &["delete", "--ignore-not-found", "--wait=false"],
        &objects,
    )
    .await?
    .ok()?;
    played?;

    // The suite's own release, definitions and all: looked at, not touched.
    let objects = rendered(context, RELEASE, OPERATOR_NAMESPACE, &[]).await?;
    no_difference(context, &objects).await
}

async fn apply_twice(context: &Context, objects: &Value) -> Outcome {
    let apply = ["apply", "--server-side", MANAGER];
    kubectl(context, &apply, objects).await?.ok()?;
    works(context).await?;
    no_difference(context, objects).await?;
    let before = as_they_are(context, objects).await?;
    kubectl(context, &apply, objects).await?.ok()?;
    let after = as_they_are(context, objects).await?;
    for (before, after) in before.iter().zip(&after) {
        ensure!(
            before == after,
            "changed by the same apply:\n{before:#}\n{after:#}"
        );
    }
    ensure!(before.len() == after.len() && !after.is_empty());
    Ok(())
}

/// Both programs are up, the authority is published and the lease is held: all that the operator ever writes about itself is written.
async fn works(context: &Context) -> Outcome {
    let full = format!("{OURS}-{RELEASE}");
    for program in ["webhook", "controller"] {
        until(
            context.api::<Deployment>(),
            &format!("{full}-{program}"),
            &format!("the {program} to be available"),
            |found| {
                found.is_some_and(|deployment| {
                    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                    let status = deployment.status.clone().unwrap_or_default();
                    status.observed_generation == deployment.metadata.generation
                        && status.available_replicas == wanted
                })
            },
        )
        .await?;
    }
    let configuration = format!("{full}.{}", context.namespace());
    until(
        Api::<ValidatingWebhookConfiguration>::all(context.client()),
        &configuration,
        "the authority to be published for validation",
        |found| {
            found
                .and_then(|found| found.webhooks.as_ref())
                .is_some_and(|hooks| {
                    hooks
                        .iter()
                        .all(|hook| hook.client_config.ca_bundle.is_some())
                })
        },
    )
    .await?;
    until(
        Api::<MutatingWebhookConfiguration>::all(context.client()),
        &configuration,
        "the authority to be published for defaults",
        |found| {
            found
                .and_then(|found| found.webhooks.as_ref())
                .is_some_and(|hooks| {
                    hooks
                        .iter()
                        .all(|hook| hook.client_config.ca_bundle.is_some())
                })
        },
    )
    .await?;
    until(
        context.api::<Lease>(),
        &format!("{full}-controller"),
        "the lease to be held",
        |found| {
            found
                .and_then(|lease| lease.spec.as_ref()?.holder_identity.as_ref())
                .is_some_and(|holder| !holder.is_empty())
        },
    )
    .await?;
    Ok(())
}

/// `kubectl diff` leaves with 1 and shows what an apply would change.
async fn no_difference(context: &Context, objects: &Value) -> Outcome {
    kubectl(context, &["diff", "--server-side", MANAGER], objects)
        .await?
        .ok()
        .context("what is there is not what is rendered")?;
    Ok(())
}

/// What is there, without what moves by itself.
async fn as_they_are(context: &Context, objects: &Value) -> anyhow::Result<Vec<Value>> {
    let text = kubectl(context, &["get", "--output=json"], objects)
        .await?
        .ok()?;
    let mut answer: Value = serde_json::from_str(&text)?;
    let items = answer["items"].as_array_mut().context("a list")?;
    Ok(items
        .iter_mut()
        .map(|object| {
            let moves = object.get("status").is_some();
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            if let (true, Some(metadata)) = (moves, object["metadata"].as_object_mut()) {
                metadata.remove("resourceVersion");
            }
            object.take()
        })
        .collect())
}

/// What the release consists of, as one list.
async fn rendered(
    context: &Context,
    release: &str,
    namespace: &str,
    more: &[&str],
) -> anyhow::Result<Value> {
    let environment = context.environment();
    let mut helm = Command::new(&environment.helm);
    helm.args(["template", release])
        .arg(&environment.chart)
        .args(["--namespace", namespace, "--no-hooks"])
        .args(&environment.chart_arguments)
        .args(more);
    let text = run(helm, None).await?.ok()?;
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let objects = documents
        .map(Value::deserialize)
        .collect::<Result<Vec<_>, _>>()?;
    let objects: Vec<Value> = objects
        .into_iter()
        .filter(|object| !object.is_null())
        .collect();
    ensure!(objects.len() > 10, "only {} are rendered", objects.len());
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": objects}))
}

/// `kubectl <arguments> -f -`, in no namespace but the objects' own.
async fn kubectl(
    context: &Context,
    arguments: &[&str],
    objects: &Value,
) -> anyhow::Result<Finished> {
    let environment = context.environment();
    let mut kubectl = Command::new(&environment.kubectl);
    kubectl
        .args(arguments)
        .args(["-f", "-"])
        .env("KUBECONFIG", &environment.kubeconfig);
    run(kubectl, Some(&objects.to_string())).await
}

pub(crate) async fn the_file_without_helm_is_accepted_with_kubectl_and_with_kustomize(
    context: &Context,
) -> Outcome {
    let environment = context.environment();
    let folder = environment
        .chart
        .ancestors()
        .nth(2)
        .context("the chart is two folders below the checkout")?
        .join("deploy");
    for (flag, path) in [("-f", folder.join("etcd-operator.yaml")), ("-k", folder)] {
        let mut kubectl = Command::new(&environment.kubectl);
        kubectl
            .args(["apply", "--dry-run=server", flag])
            .arg(path)
            .env("KUBECONFIG", &environment.kubeconfig);
        let said = run(kubectl, None).await?.ok()?;
        for kind in [
            "namespace/",
            "customresourcedefinition.",
            "deployment.apps/",
        ] {
            ensure!(said.contains(kind), "no {kind} in {said}");
        }
    }
    Ok(())
}

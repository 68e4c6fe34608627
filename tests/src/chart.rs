//! Installing the operator as a user does, with Helm, from the chart; and taking parts of it away for a while.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::Deployment,
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::process::Command;

use crate::{Context, Finished, Outcome, command, until, until_answer};

pub const RELEASE: &str = "etcd-operator";
pub const OPERATOR_NAMESPACE: &str = "etcd-operator";

/// Which Helm: the chart must work with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helm {
    Three,
    Four,
}

impl Helm {
    /// `helm …` to its end, in this namespace.
    pub async fn run(
        self,
        context: &Context,
        namespace: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Finished> {
        let environment = context.environment();
        let mut helm = Command::new(match self {
            Self::Three => &environment.helm3,
            Self::Four => &environment.helm,
        });
        helm.args(arguments)
            .args(["--namespace", namespace])
            .env("KUBECONFIG", &environment.kubeconfig);
        command::run(helm, None).await
    }

    /// `helm upgrade --install … --wait`: returns when Helm says that everything is up.
    pub async fn install(
        self,
        context: &Context,
        (release, namespace): (&str, &str),
        more: &[&str],
    ) -> anyhow::Result<String> {
        let environment = context.environment();
        let chart = environment.chart.to_string_lossy();
        let mut arguments = vec!["upgrade", "--install", release, chart.as_ref()];
        arguments.extend(["--wait", "--timeout", "3m"]);
        arguments.extend(environment.chart_arguments.iter().map(String::as_str));
        arguments.extend(more);
        self.run(context, namespace, &arguments)
            .await?
            .ok()
            .context("installing the chart")
    }

    /// `helm uninstall … --wait`.
    pub async fn uninstall(self, context: &Context, (release, namespace): (&str, &str)) -> Outcome {
        let words = ["uninstall", release, "--wait", "--timeout", "3m"];
        let finished = self.run(context, namespace, &words).await?;
        finished.ok().context("uninstalling the chart")?;
        Ok(())
    }

    /// `helm test`.
    pub async fn test(self, context: &Context, (release, namespace): (&str, &str)) -> Outcome {
        let words = ["test", release, "--timeout", "3m"];
        let said = self.run(context, namespace, &words).await?.ok()?;
        ensure!(said.contains("Succeeded"), "helm test says: {said}");
        Ok(())
    }
}

/// The suite's own release, as a user installs it.
///
/// The namespace is made first and enforces the restricted Pod Security level, which the chart's pods must meet.
pub async fn install(context: &Context) -> anyhow::Result<String> {
    install_with(context, &[]).await
}

/// The same with more arguments, such as `--set`.
pub async fn install_with(context: &Context, more: &[&str]) -> anyhow::Result<String> {
    context.create_namespace(OPERATOR_NAMESPACE).await?;
    Helm::Four
        .install(context, (RELEASE, OPERATOR_NAMESPACE), more)
        .await
}

/// Plays with the webhook configurations deleted; Helm puts them back, whatever came of it. Nothing else may run beside it.
pub async fn without_admission(context: &Context, play: impl Future<Output = Outcome>) -> Outcome {
    let played = async {
        take_admission_away(context).await?;
        play.await
    }
    .await;
    install(context)
        .await
        .context("putting the webhook configurations back")?;
    until_answer(
        "admission to be back",
        Duration::from_millis(100),
        || async { Ok(is_defaulted(context).await?.then_some(())) },
    )
    .await?;
    played
}

async fn take_admission_away(context: &Context) -> Outcome {
    let of_release = ListParams::default().labels(&format!("app.kubernetes.io/instance={RELEASE}"));
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(context.client());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(context.client());
    ensure!(
        mutating.list(&of_release).await?.items.len() == 1,
        "the release has one mutating configuration"
    );
    ensure!(
        validating.list(&of_release).await?.items.len() == 1,
        "the release has one validating configuration"
    );
    let now = DeleteParams::default();
    mutating.delete_collection(&now, &of_release).await?;
    validating.delete_collection(&now, &of_release).await?;
    // API servers notice a deleted configuration a moment later: the first undefaulted answer shows it.
    until_answer(
        "admission to forget the webhook",
        Duration::from_millis(100),
        || async { Ok((!is_defaulted(context).await?).then_some(())) },
    )
    .await
}

/// Whether the webhook fills in what a new object leaves unset.
async fn is_defaulted(context: &Context) -> anyhow::Result<bool> {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let bare: DynamicObject = serde_json::from_value(context.manifest("bare", &json!({})))?;
    let answer = context.clusters().create(&dry_run, &bare).await?;
    Ok(answer.data["spec"]["version"].is_string())
}

/// Plays with no controller running, and brings it back, whatever came of it.
pub async fn without_controller(context: &Context, play: impl Future<Output = Outcome>) -> Outcome {
    let wanted = scale_controller(context, 0).await?;
    let played = play.await;
    scale_controller(context, wanted).await?;
    played
}

/// Returns how many ran before.
async fn scale_controller(context: &Context, replicas: i32) -> anyhow::Result<i32> {
    let name = "etcd-operator-controller";
    let deployments: Api<Deployment> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let before = deployments.get_scale(name).await?.spec;
    let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments
        .patch_scale(name, &PatchParams::default(), &scale)
        .await?;
    until(
        deployments,
        name,
        &format!("{replicas} controllers to run"),
        |found| {
            found.is_some_and(|deployment| {
                let status = deployment.status.clone().unwrap_or_default();
                status.observed_generation == deployment.metadata.generation
                    && status.replicas.unwrap_or_default() == replicas
                    && status.ready_replicas.unwrap_or_default() == replicas
            })
        },
    )
    .await?;
    Ok(before.and_then(|spec| spec.replicas).unwrap_or(1))
}

//! Installing the operator as a user does: with Helm, from the chart.

use anyhow::Context as _;
use tokio::process::Command;

use crate::{Context, command};

pub const RELEASE: &str = "etcd-operator";
pub const OPERATOR_NAMESPACE: &str = "etcd-operator";

/// `helm upgrade --install … --wait`: returns when Helm says that everything is up.
///
/// The namespace is made first and enforces the restricted Pod Security level, which the chart's pods must meet.
pub async fn install(context: &Context) -> anyhow::Result<String> {
    context.create_namespace(OPERATOR_NAMESPACE).await?;
    let environment = context.environment();
    let mut helm = Command::new(&environment.helm);
    helm.args(["upgrade", "--install", RELEASE])
        .arg(&environment.chart)
        .args([
            "--namespace",
            OPERATOR_NAMESPACE,
            "--wait",
            "--timeout",
            "3m",
        ])
        .args(&environment.chart_arguments)
        .env("KUBECONFIG", &environment.kubeconfig);
    command::run(helm, None)
        .await?
        .ok()
        .context("installing the chart")
}

//! The chart as a user installs it.

use anyhow::ensure;
use etcd_operator_tests::{Context, OPERATOR_NAMESPACE, Outcome, RELEASE, install};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

pub(crate) async fn installs_and_an_apply_right_after_works(context: &Context) -> Outcome {
    install(context).await?;
    // No wait and no second try: when Helm says it is up, the webhook's certificates are trusted already.
    context
        .kubectl_with(
            &["apply"],
            &context.manifest("right-after", &json!({"paused": true})),
        )
        .await?
        .ok()?;

    let deployments: Api<Deployment> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let of_release = ListParams::default().labels(&format!("app.kubernetes.io/instance={RELEASE}"));
    let deployments = deployments.list(&of_release).await?.items;
    let names: Vec<String> = deployments.iter().map(ResourceExt::name_any).collect();
    ensure!(
        names == ["etcd-operator-controller", "etcd-operator-webhook"],
        "deployments: {names:?}"
    );
    for deployment in deployments {
        let status = deployment.status.unwrap_or_default();
        let wanted = deployment.spec.and_then(|spec| spec.replicas);
        ensure!(
            status.available_replicas == wanted,
            "{names:?} are not all available: {status:?}"
        );
    }
    Ok(())
}

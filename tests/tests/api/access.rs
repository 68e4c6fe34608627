//! What the operator's accounts may do: what they need, and no more.

use anyhow::ensure;
use etcd_operator_tests::{Context, OPERATOR_NAMESPACE, Outcome};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, api::PostParams};
use serde_json::json;

fn account(program: &str) -> String {
    format!("system:serviceaccount:{OPERATOR_NAMESPACE}:etcd-operator-{program}")
}

/// (verb, group, resource)
type Act = (&'static str, &'static str, &'static str);

async fn may(
    context: &Context,
    program: &str,
    (verb, group, resource): Act,
) -> anyhow::Result<bool> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
        "user": account(program),
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": context.namespace(), "name": "anything",
        },
    }}))?;
    let reviews: Api<SubjectAccessReview> = Api::all(context.client());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn may_not(context: &Context, program: &str, acts: &[Act]) -> Outcome {
    let mut granted = Vec::new();
    for act in acts {
        if may(context, program, *act).await? {
            granted.push(act);
        }
    }
    ensure!(granted.is_empty(), "the {program} may: {granted:?}");
    Ok(())
}

pub(crate) async fn the_webhook_may_read_a_secret_by_its_name_but_list_none_nor_write_anything_else(
    context: &Context,
) -> Outcome {
    // The review itself must be able to say yes, or a denial would prove nothing.
    ensure!(
        may(context, "webhook", ("get", "", "secrets")).await?,
        "the webhook may not look at the Secret that an object names"
    );
    may_not(
        context,
        "webhook",
        &[
            ("list", "", "secrets"),
            ("watch", "", "secrets"),
            ("create", "", "secrets"),
            ("update", "", "secrets"),
            ("patch", "", "secrets"),
            ("delete", "", "secrets"),
            ("get", "", "configmaps"),
            ("create", "", "pods"),
            ("delete", "", "pods"),
            ("create", "etcd.database.coreos.com", "etcdclusters"),
            ("patch", "etcd.database.coreos.com", "etcdclusters"),
            ("delete", "etcd.database.coreos.com", "etcdclusters"),
            ("patch", "etcd.database.coreos.com", "etcdclusters/status"),
            (
                "patch",
                "admissionregistration.k8s.io",
                "validatingwebhookconfigurations",
            ),
            (
                "create",
                "admissionregistration.k8s.io",
                "mutatingwebhookconfigurations",
            ),
            ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
            ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
            ("*", "*", "*"),
        ],
    )
    .await
}

pub(crate) async fn the_controller_may_not_touch_admission_nor_roles(context: &Context) -> Outcome {
    // The review itself must be able to say yes, or a denial would prove nothing.
    ensure!(
        may(context, "controller", ("create", "", "pods")).await?,
        "the controller may not create pods"
    );
    may_not(
        context,
        "controller",
        &[
            // It makes the cluster that a restore asks for; it never changes what somebody wrote.
            ("update", "etcd.database.coreos.com", "etcdclusters"),
            ("patch", "etcd.database.coreos.com", "etcdclusters"),
            ("delete", "etcd.database.coreos.com", "etcdclusters"),
            ("create", "etcd.database.coreos.com", "etcdbackups"),
            ("create", "etcd.database.coreos.com", "etcdrestores"),
            (
                "patch",
                "admissionregistration.k8s.io",
                "validatingwebhookconfigurations",
            ),
            ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
            ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
            ("create", "", "pods/exec"),
            ("delete", "", "namespaces"),
            ("delete", "", "nodes"),
            ("create", "apps", "deployments"),
            ("*", "*", "*"),
        ],
    )
    .await
}

pub(crate) async fn no_request_of_the_operator_was_ever_forbidden(context: &Context) -> Outcome {
    let accounts = [account("webhook"), account("controller")];
    let requests = context.requests_of_suite().since()?;
    let of_operator: Vec<_> = requests
        .into_iter()
        .filter(|request| accounts.contains(&request.user))
        .collect();
    for account in &accounts {
        ensure!(
            of_operator.iter().any(|request| request.user == *account),
            "the audit log does not know {account}"
        );
    }
    let forbidden: Vec<String> = of_operator
        .iter()
        .filter(|request| request.forbidden)
        .map(ToString::to_string)
        .collect();
    ensure!(forbidden.is_empty(), "forbidden:\n{}", forbidden.join("\n"));
    Ok(())
}

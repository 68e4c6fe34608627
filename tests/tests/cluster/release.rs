//! The operator's own life: its release is installed, tested, upgraded, rolled back and removed with each Helm, while an etcd cluster of
//! one member serves on and is never restarted.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    Cluster, Context, Finished, Helm, OPERATOR_NAMESPACE, Outcome, RELEASE, install, until_answer,
};
use kube::ResourceExt;
use serde_json::{Value, json};

const DEFINITION: &str = "etcdclusters.etcd.database.coreos.com";
const OLD_VERSION: &str = "etcd.database.coreos.com/v1alpha1";
const OURS: (&str, &str) = (RELEASE, OPERATOR_NAMESPACE);
const PACE: Duration = Duration::from_millis(500);

pub(crate) async fn on_helm_3_a_release_comes_changes_and_goes_and_no_member_notices(
    context: &Context,
) -> Outcome {
    let served = Served::start(context).await?;
    Helm::Four.uninstall(context, OURS).await?;
    served.goes_on_alone().await?;

    install_test_and_do_nothing(context, Helm::Three).await?;
    served.is_looked_after_again().await?;
    change_and_roll_back(context, Helm::Three, async || {
        beside_another_release(context, Helm::Three).await
    })
    .await?;
    served.never_noticed().await?;

    // Back to the release that the suite had, from what Helm 3 leaves behind.
    Helm::Three.uninstall(context, OURS).await?;
    served.goes_on_alone().await?;
    install(context).await?;
    served.is_looked_after_again().await
}

pub(crate) async fn on_helm_4_a_release_comes_changes_and_goes_and_no_member_notices(
    context: &Context,
) -> Outcome {
    let served = Served::start(context).await?;
    Helm::Four.uninstall(context, OURS).await?;
    served.goes_on_alone().await?;

    install_test_and_do_nothing(context, Helm::Four).await?;
    served.is_looked_after_again().await?;
    change_and_roll_back(context, Helm::Four, async || Ok(())).await?;
    served.never_noticed().await
}

async fn install_test_and_do_nothing(context: &Context, helm: Helm) -> Outcome {
    helm.install(context, OURS, &[])
        .await
        .context("installing over what was kept")?;
    helm.test(context, OURS).await?;
    let before = generations(context).await?;
    helm.install(context, OURS, &[])
        .await
        .context("upgrading with nothing changed")?;
    let after = generations(context).await?;
    ensure!(
        before == after,
        "an upgrade that changes nothing moves generations:\n{before}\nto:\n{after}"
    );
    Ok(())
}

/// `meanwhile` is played while the release looks after this scenario's namespace alone.
async fn change_and_roll_back(
    context: &Context,
    helm: Helm,
    meanwhile: impl AsyncFnOnce() -> Outcome,
) -> Outcome {
    let namespaces = format!("watchNamespaces={{{}}}", context.namespace());
    helm.install(
        context,
        OURS,
        &["--set", &namespaces, "--set", "log.format=json"],
    )
    .await
    .context("upgrading with changed values")?;
    judges(context, context.namespace()).await?;
    meanwhile().await?;
    let back = ["rollback", RELEASE, "2", "--wait", "--timeout", "3m"];
    helm.run(context, OPERATOR_NAMESPACE, &back)
        .await?
        .ok()
        .context("rolling back")?;
    judges(context, "default").await
}

/// A second release that looks after another namespace: each judges its own, neither may touch the other's, and when the second goes
/// the first is as before.
async fn beside_another_release(context: &Context, helm: Helm) -> Outcome {
    let second = format!("{}-b", context.namespace());
    context.create_namespace(&second).await?;
    let namespaces = format!("watchNamespaces={{{second}}}");
    let release = ("second", second.as_str());
    let alone = ["--set", "crds.install=false", "--set", &namespaces];
    helm.install(context, release, &alone)
        .await
        .context("installing a second release")?;
    helm.test(context, release).await?;
    judges(context, context.namespace()).await?;
    may_not_touch_what_is_foreign(context, &second).await?;
    let converting = conversion(context).await?;
    helm.uninstall(context, release).await?;
    ensure!(
        converting == conversion(context).await?,
        "the second release took the conversion with it: {converting:#}"
    );
    judges(context, context.namespace()).await?;
    context
        .kubectl(&["delete", "namespace", &second, "--wait=false"])
        .await?
        .ok()?;
    Ok(())
}

/// Tried, not asked for: as each account, where neither has any business.
async fn may_not_touch_what_is_foreign(context: &Context, second: &str) -> Outcome {
    let foreign: [&[&str]; 6] = [
        &["--namespace=kube-system", "get", "secret", "any"],
        &["get", "secrets"],
        &["--namespace=kube-system", "delete", "pod", "any"],
        &["--namespace=kube-system", "create", "configmap", "any"],
        &[
            "patch",
            "validatingwebhookconfiguration",
            "another",
            "--type=merge",
            "--patch={}",
        ],
        &["patch", "crd", "another", "--type=merge", "--patch={}"],
    ];
    for program in ["webhook", "controller"] {
        let account = format!("--as=system:serviceaccount:{second}:second-etcd-operator-{program}");
        // The way in works, or a refusal would prove nothing.
        let own = [
            &account,
            "--namespace",
            second,
            "get",
            "etcdclusters",
            "any",
        ];
        let reason = context.kubectl(&own).await?.refused()?;
        ensure!(reason.contains("NotFound"), "{own:?}: {reason}");
        for what in foreign {
            let mut words = vec![account.as_str()];
            words.extend(what);
            let reason = context.kubectl(&words).await?.refused()?;
            let told = reason.to_lowercase();
            ensure!(told.contains("forbidden"), "{words:?}: {reason}");
        }
    }
    Ok(())
}

/// An EtcdCluster that was made in the old API version, and its members as they were.
struct Served<'a> {
    context: &'a Context,
    cluster: Cluster<'a>,
    members: Vec<(String, Option<String>, i32)>,
}

impl<'a> Served<'a> {
    async fn start(context: &'a Context) -> anyhow::Result<Self> {
        let mut old = context.manifest("served", &json!({"replicas": 1}));
        old["apiVersion"] = json!(OLD_VERSION);
        context.kubectl_with(&["apply"], &old).await?.ok()?;
        let cluster = context.cluster("served");
        cluster.ready().await?;
        cluster.etcd().await?.put("key", "value", None).await?;
        let members = members(&cluster).await?;
        Ok(Self {
            context,
            cluster,
            members,
        })
    }

    /// Without an operator: etcd serves, the object can be read and written, in the version that is stored; and nothing of the release is left.
    async fn goes_on_alone(&self) -> Outcome {
        self.never_noticed().await?;
        let conversion = conversion(self.context).await?;
        ensure!(conversion["strategy"] == "None", "{conversion:#}");
        // An API server hears a moment later that there is no webhook any more, and that a version is not served.
        until_answer("the EtcdCluster to be writable", PACE, || async {
            let words = ["annotate", "--overwrite", "etcdcluster", "served", "a=b"];
            Ok(Some(self.context.kubectl(&words).await?.ok()?))
        })
        .await?;
        until_answer("the old version to be withdrawn", PACE, || async {
            let old = self.as_old_version().await;
            ensure!(old.is_err(), "it is served unconverted: {old:?}");
            Ok(Some(()))
        })
        .await?;
        until_answer("the release to be gone", PACE, || async {
            let left = self
                .context
                .kubectl(&[
                    "get",
                    "deployments,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,jobs,\
                     mutatingwebhookconfigurations,validatingwebhookconfigurations",
                    "--all-namespaces",
                    "--output=name",
                    &format!("--selector=app.kubernetes.io/instance={RELEASE}"),
                ])
                .await?
                .ok()?;
            ensure!(left.is_empty(), "left: {left}");
            Ok(Some(()))
        })
        .await
    }

    async fn is_looked_after_again(&self) -> Outcome {
        judges(self.context, self.context.namespace()).await?;
        let old = until_answer("the old version to be served", PACE, || async {
            Ok(Some(self.as_old_version().await?))
        })
        .await?;
        ensure!(old["spec"]["replicas"] == 1, "not converted: {old:#}");
        // Changed in place, so that it shows without a restart that somebody acts.
        let label = json!({"pod": {"labels": {"seen": "yes"}}});
        self.cluster.change(&label).await?;
        self.cluster.ready().await?;
        self.cluster
            .change(&json!({"pod": {"labels": {"seen": null}}}))
            .await?;
        self.cluster.ready().await?;
        self.never_noticed().await
    }

    async fn never_noticed(&self) -> Outcome {
        let now = members(&self.cluster).await?;
        ensure!(
            now == self.members,
            "members were {:?} and are {now:?}",
            self.members
        );
        let answer = self.cluster.etcd().await?.get("key", None).await?;
        ensure!(answer.kvs().len() == 1, "the key is gone");
        Ok(())
    }

    /// By its address: `kubectl` remembers for hours which versions there are.
    async fn as_old_version(&self) -> anyhow::Result<Value> {
        let path = format!(
            "/apis/{OLD_VERSION}/namespaces/{}/etcdclusters/served",
            self.context.namespace()
        );
        let text = self.context.kubectl(&["get", "--raw", &path]).await?.ok()?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Name, UID and restarts of each pod.
async fn members(cluster: &Cluster<'_>) -> anyhow::Result<Vec<(String, Option<String>, i32)>> {
    let pods = cluster.pods().await?;
    Ok(pods
        .iter()
        .map(|pod| {
            let containers = pod
                .status
                .as_ref()
                .and_then(|status| status.container_statuses.as_ref());
            let restarts = containers
                .into_iter()
                .flatten()
                .map(|one| one.restart_count);
            (pod.name_any(), pod.uid(), restarts.sum())
        })
        .collect())
}

/// One is let in and filled in, which only the webhook does, and one is refused, in this namespace. An API server hears a moment later of changed
/// configurations.
async fn judges(context: &Context, namespace: &str) -> Outcome {
    until_answer("admission to judge", PACE, || async {
        let sound = offer(context, namespace, &json!({})).await?.ok()?;
        let sound: Value = serde_json::from_str(&sound)?;
        ensure!(
            sound["spec"]["version"].is_string(),
            "not filled in: {sound:#}"
        );
        let reason = offer(context, namespace, &json!({"size": 2}))
            .await?
            .refused()?;
        ensure!(reason.contains("spec.size: must be odd"), "{reason}");
        Ok(Some(()))
    })
    .await
}

async fn offer(context: &Context, namespace: &str, spec: &Value) -> anyhow::Result<Finished> {
    let mut manifest = context.manifest("judged", spec);
    manifest["metadata"]["namespace"] = json!(namespace);
    let words = [
        "--namespace",
        namespace,
        "create",
        "--dry-run=server",
        "--output=json",
    ];
    context.kubectl_with(&words, &manifest).await
}

async fn conversion(context: &Context) -> anyhow::Result<Value> {
    let words = [
        "get",
        "crd",
        DEFINITION,
        "--output=jsonpath={.spec.conversion}",
    ];
    let text = context.kubectl(&words).await?.ok()?;
    Ok(serde_json::from_str(&text)?)
}

/// One line for each object of the release that has a generation.
async fn generations(context: &Context) -> anyhow::Result<String> {
    let lines = context
        .kubectl(&[
            "get",
            "deployments,poddisruptionbudgets,crds,mutatingwebhookconfigurations,validatingwebhookconfigurations",
            "--all-namespaces",
            &format!("--selector=app.kubernetes.io/instance={RELEASE}"),
            "--output=jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.generation}{\"\\n\"}{end}",
        ])
        .await?
        .ok()?;
    ensure!(lines.lines().count() >= 6, "too few objects:\n{lines}");
    Ok(lines)
}

//! Operations that are interrupted: by a controller that dies, by a person who thinks again, by the end of everything. Traffic runs
//! where there is a cluster left to write to.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    Chance, Cluster, Context, OPERATOR_NAMESPACE, Outcome, Process, condition_is, etcdclusters,
    history::Traffic, until, until_all, until_answer,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::{Lease, LeaseSpec},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use serde_json::json;

use crate::{
    change::{exactly, tell},
    order::{self, Restarts},
};

const CONTROLLER: &str = "etcd-operator-controller";
const WEBHOOK: &str = "etcd-operator-webhook";
const INTERRUPTIONS: usize = 10;
/// A step of an upgrade takes about a second, a member's restart a few.
const UNTIL_THE_NEXT: Duration = Duration::from_secs(4);

fn of_operator<K>(context: &Context) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(context.client(), OPERATOR_NAMESPACE)
}

/// Changes how many pods a part of the operator has, and waits until they are there.
async fn scale(context: &Context, deployment: &str, replicas: i32) -> Outcome {
    let deployments: Api<Deployment> = of_operator(context);
    deployments
        .patch(
            deployment,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": replicas}})),
        )
        .await?;
    until(deployments, deployment, "its pods to be there", |found| {
        found.is_some_and(|found| {
            let status = found.status.clone().unwrap_or_default();
            status.observed_generation == found.metadata.generation
                && status.replicas.unwrap_or_default() == replicas
                && status.available_replicas.unwrap_or_default() == replicas
        })
    })
    .await?;
    Ok(())
}

fn of_lease(lease: Option<&Lease>) -> Option<&LeaseSpec> {
    lease.and_then(|lease| lease.spec.as_ref())
}

/// Waits until a living controller holds the lease, and returns its pod.
async fn leading(context: &Context, not: Option<&LeaseSpec>) -> anyhow::Result<Pod> {
    let lease = until(
        of_operator::<Lease>(context),
        CONTROLLER,
        "a controller to lead",
        |lease| {
            of_lease(lease).is_some_and(|lease| {
                Some(lease) != not
                    && lease
                        .holder_identity
                        .as_ref()
                        .is_some_and(|holder| !holder.is_empty())
            })
        },
    )
    .await?;
    let holder = of_lease(lease.as_ref())
        .and_then(|lease| lease.holder_identity.clone())
        .context("a lease has a holder")?;
    let pod = until(
        of_operator::<Pod>(context),
        &holder,
        "the leader's pod to run",
        |pod| pod.is_none_or(order::ready),
    )
    .await?;
    pod.with_context(|| format!("{holder} leads and has no pod"))
}

/// `kill -9`. What a pod's status says of its process is for a moment what was true before the last time.
async fn kill(context: &Context, controller: &str) -> Outcome {
    let process = until_answer(
        "the controller's process",
        Duration::from_millis(100),
        || async {
            let pod: Pod = of_operator(context).get(controller).await?;
            Process::of(&pod, "controller").map(Some)
        },
    )
    .await?;
    process.kill()
}

/// `kill -9` to whichever controller leads, and waits until one leads again.
pub(crate) async fn kill_the_leader(context: &Context) -> Outcome {
    let last = leading(context, None).await?;
    kill(context, &last.name_any()).await?;
    let left: Lease = of_operator(context).get(CONTROLLER).await?;
    leading(context, left.spec.as_ref()).await?;
    Ok(())
}

/// A cluster that is upgraded back and forth, each time as soon as the last time is done.
struct Rolling<'a> {
    cluster: Cluster<'a>,
    versions: [&'static str; 2],
    traffic: Traffic,
    under_way: Option<Restarts>,
    rolls: usize,
}

impl<'a> Rolling<'a> {
    async fn start(
        context: &'a Context,
        name: &str,
        versions: [&'static str; 2],
    ) -> anyhow::Result<Self> {
        let cluster = context.cluster(name);
        cluster.create(&json!({"version": versions[0]})).await?;
        cluster.ready().await?;
        let traffic = Traffic::start(&cluster).await?;
        Ok(Self {
            cluster,
            versions,
            traffic,
            under_way: None,
            rolls: 0,
        })
    }

    /// Begins the next roll if none is under way.
    async fn roll(&mut self, context: &Context) -> Outcome {
        if self.under_way.is_some() {
            if !condition_is(&self.cluster.get().await?, "Ready", "True") {
                return Ok(());
            }
            self.finish().await?;
        }
        let version = self.versions[(self.rolls + 1) % 2];
        let restarts = Restarts::watched(context, &self.cluster).await?;
        self.cluster.change(&json!({"version": version})).await?;
        self.under_way = Some(restarts);
        Ok(())
    }

    /// Sees the roll through: interrupted or not, each member was restarted once, and alone.
    async fn finish(&mut self) -> Outcome {
        let Some(restarts) = self.under_way.take() else {
            return Ok(());
        };
        let ready = self.cluster.ready().await?;
        self.rolls += 1;
        let version = self.versions[self.rolls % 2];
        ensure!(
            ready.data["status"]["currentVersion"] == version,
            "{version} wanted: {:#}",
            ready.data["status"]
        );
        restarts.each_member_once_and_alone().await?;
        self.traffic.goes_on().await
    }
}

pub(crate) async fn upgrades_go_on_where_a_killed_controller_left_them(
    context: &Context,
) -> Outcome {
    let mut chance = Chance::from_process();
    println!("  controllers are killed at moments of {}", chance.told());
    scale(context, CONTROLLER, 2).await?;
    let played = Box::pin(interrupted(context, &mut chance)).await;
    scale(context, CONTROLLER, 1).await?;
    played.with_context(|| chance.told())
}

async fn interrupted(context: &Context, chance: &mut Chance) -> Outcome {
    let mut rolling = [
        Rolling::start(context, "patches", ["3.6.10", "3.6.16"]).await?,
        Rolling::start(context, "minors", ["3.5.35", "3.6.16"]).await?,
    ];
    let (mut taken_over, mut last) = (0, leading(context, None).await?);
    for _ in 0..INTERRUPTIONS {
        for one in &mut rolling {
            one.roll(context).await?;
        }
        // Not to wait for anything: this is when fate strikes.
        tokio::time::sleep(chance.moment(UNTIL_THE_NEXT)).await;
        kill(context, &last.name_any()).await?;
        // From here on every renewal is another process's.
        let left: Lease = of_operator(context).get(CONTROLLER).await?;
        // A process that died is started again in its pod, and may take up its own lease; a pod that is gone may not.
        if chance.below(2) == 0 {
            let at_once = DeleteParams::default().grace_period(0);
            of_operator::<Pod>(context)
                .delete(&last.name_any(), &at_once)
                .await?;
        }
        let next = leading(context, left.spec.as_ref()).await?;
        taken_over += usize::from(next.uid() != last.uid());
        last = next;
    }
    for mut one in rolling {
        one.finish().await?;
        let words = format!(
            "{} ↔ {}, {} rolls through {INTERRUPTIONS} kills of the controller, {taken_over} times another took over",
            one.versions[0], one.versions[1], one.rolls
        );
        tell(&words, &one.traffic.stop().await?);
        let members = one.cluster.members().await?;
        ensure!(members.len() == 3, "{members:?}");
    }
    ensure!(taken_over > 0, "no second controller ever took over");
    Ok(())
}

/// Waits until a member serves this version while others still serve another.
async fn mixed(context: &Context, version: &str) -> Outcome {
    until_all(
        context.api::<Pod>(),
        watcher::Config::default(),
        "a member of the new version to be ready",
        |pods| {
            let new = |pod: &&Pod| pod.labels().values().any(|value| value.as_str() == version);
            pods.iter().filter(new).any(order::ready) && !pods.iter().all(|pod| new(&pod))
        },
    )
    .await?;
    Ok(())
}

pub(crate) async fn a_version_put_back_in_the_middle_of_a_roll_is_put_back_everywhere(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("second-thoughts");
    cluster.create(&json!({"version": "3.5.35"})).await?;
    cluster.ready().await?;
    let members = cluster.members().await?;
    let traffic = Traffic::start(&cluster).await?;
    let runs = async |version: &str| -> Outcome {
        let ready = cluster.ready().await?;
        ensure!(
            ready.data["status"]["currentVersion"] == version,
            "{:#}",
            ready.data["status"]
        );
        for pod in cluster.pods().await? {
            let served = cluster.etcd_of(&pod).await?.status().await?;
            ensure!(
                served.version() == version,
                "{} serves {}, not {version}",
                pod.name_any(),
                served.version()
            );
        }
        traffic.goes_on().await
    };
    for (from, to) in [("3.5.35", "3.6.10"), ("3.6.10", "3.6.16")] {
        cluster.change(&json!({"version": to})).await?;
        mixed(context, to).await?;
        cluster.change(&json!({"version": from})).await?;
        runs(from).await?;
        // And onward all the same, once it is wanted.
        cluster.change(&json!({"version": to})).await?;
        runs(to).await?;
    }
    tell(
        "3.5.35 → 3.6.10 and → 3.6.16, each put back on the way",
        &traffic.stop().await?,
    );
    ensure!(
        cluster.members().await? == members,
        "the members changed from {members:?}"
    );
    exactly(context, &cluster, 3).await
}

pub(crate) async fn a_namespace_with_a_cluster_at_work_goes_without_a_trace(
    context: &Context,
) -> Outcome {
    let namespace = format!("{}-x", context.namespace());
    context.create_namespace(&namespace).await?;
    let clusters = etcdclusters(context.client(), &namespace);
    let mut manifest = context.manifest("doomed", &json!({"size": 1}));
    manifest["metadata"]["namespace"] = json!(namespace);
    clusters
        .create(&PostParams::default(), &serde_json::from_value(manifest)?)
        .await?;
    until(
        clusters.clone(),
        "doomed",
        "the cluster to be Ready",
        |it| it.is_some_and(|it| condition_is(it, "Ready", "True")),
    )
    .await?;
    clusters
        .patch(
            "doomed",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"size": 3}})),
        )
        .await?;
    until_all(
        Api::<Pod>::namespaced(context.client(), &namespace),
        watcher::Config::default(),
        "the growth to be under way",
        |pods| pods.len() > 1,
    )
    .await?;
    context
        .kubectl(&[
            "delete",
            "namespace",
            &namespace,
            "--wait=true",
            "--timeout=150s",
        ])
        .await?
        .ok()?;
    Ok(())
}

pub(crate) async fn without_the_webhook_clusters_are_healed_and_deleted_all_the_same(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("unjudged");
    cluster.create(&json!({})).await?;
    cluster.ready().await?;
    scale(context, WEBHOOK, 0).await?;
    let played = unjudged(context, &cluster).await;
    scale(context, WEBHOOK, 2).await?;
    played
}

async fn unjudged(context: &Context, cluster: &Cluster<'_>) -> Outcome {
    // A pod on its way out finishes what it was asked, and is still asked on connections that are open.
    until_all(
        of_operator::<Pod>(context),
        watcher::Config::default().labels("app.kubernetes.io/component=webhook"),
        "the webhook to be gone",
        <[_]>::is_empty,
    )
    .await?;
    let refused = context
        .kubectl(&[
            "patch",
            "etcd",
            "unjudged",
            "--type=merge",
            "-p",
            r#"{"spec":{"size":5}}"#,
        ])
        .await?
        .refused()?;
    ensure!(refused.contains("webhook"), "who refused? {refused}");
    let pod = &cluster.pods().await?[0];
    context
        .api::<Pod>()
        .delete(&pod.name_any(), &DeleteParams::default())
        .await?;
    until(
        context.api::<Pod>(),
        &pod.name_any(),
        "the member to come back",
        |found| found.is_some_and(|found| found.uid() != pod.uid() && order::ready(found)),
    )
    .await?;
    cluster.delete().await?;
    cluster.gone().await?;
    until_all(
        context.api::<Pod>(),
        watcher::Config::default(),
        "the pods to be gone",
        <[_]>::is_empty,
    )
    .await?;
    Ok(())
}

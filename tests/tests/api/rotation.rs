//! Certificates that change, and pods that are replaced, while the API server keeps asking: 50 admissions and conversions a second
//! through two replicas, and not one may fail. The policy is `Fail`, so a call that does not get through is a refused write.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use etcd_operator_certs::certificates_in;
use etcd_operator_tests::{
    Context, OPERATOR_NAMESPACE, Outcome, Scraped, install, install_with, until_answer,
};
use futures::StreamExt;
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Secret};
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
    runtime::{WatchStreamExt, watcher::watch_object},
};
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

const PACE: Duration = Duration::from_millis(20);
const CONFIGURATION: &str = "etcd-operator.etcd-operator";
const AUTHORITY: &str = "etcd-operator-webhook-ca";
/// Short lives, so that the wall clock brings rotations within a test; everything else is as always.
const SHORT_LIVES: &str = r#"webhook.extraArgs=["--leaf-lifetime=1m","--authority-lifetime=3m","--announce-authority-for=10s","--retain-authority-for=20s"]"#;

pub(crate) async fn no_admission_fails_while_certificates_and_pods_change(
    context: &Context,
) -> Outcome {
    context
        .cluster("steady")
        .create(&json!({"paused": true}))
        .await?;
    install_with(
        context,
        &["--set", "webhook.replicas=2", "--set-json", SHORT_LIVES],
    )
    .await?;
    // An authority of the short life takes over from the one that is there.
    let secrets: Api<Secret> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    secrets.delete(AUTHORITY, &DeleteParams::default()).await?;
    let load = Load::start(context);
    let changed = changes(context, &load).await;
    let told = load.stop().await;
    install(context)
        .await
        .context("putting the usual lives back")?;
    // What failed on the way matters more than how far the changes came.
    let judged = told?.judge();
    changed?;
    judged
}

async fn changes(context: &Context, load: &Load) -> Outcome {
    load.phase("leaves and the authority are rotated");
    let leaves = tokio::spawn(leaves_change(context.clone()));
    authority_rotates(context).await?;
    leaves.await??;
    load.phase("the Deployment is restarted");
    let deployment = "deployment/etcd-operator-webhook";
    let namespace = ["--namespace", OPERATOR_NAMESPACE];
    let kubectl = async |arguments: &[&str]| {
        let arguments = [arguments, &namespace].concat();
        context.kubectl(&arguments).await?.ok()
    };
    kubectl(&["rollout", "restart", deployment]).await?;
    kubectl(&["rollout", "status", deployment, "--timeout=3m"]).await?;
    // The last of the old pods drains on after the rollout counts as done.
    until_answer(
        "the old pods to be gone",
        Duration::from_millis(500),
        || async {
            let selector = "--selector=app.kubernetes.io/component=webhook";
            let names = kubectl(&["get", "pods", "--output=name", selector]).await?;
            Ok((names.lines().count() == 2).then_some(()))
        },
    )
    .await
}

/// Waits for the whole way: the old authority alone, both, and then the new alone, in what the API server trusts.
async fn authority_rotates(context: &Context) -> Outcome {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(context.client());
    let mut seen = pin!(watch_object(configurations, CONFIGURATION).default_backoff());
    let mut way: Vec<BTreeSet<Vec<u8>>> = Vec::new();
    let rotated = |way: &[BTreeSet<Vec<u8>>]| {
        way.windows(3).any(|three| {
            let [old, both, new] = three else {
                return false;
            };
            old.len() == 1 && new.len() == 1 && old != new && both == &(old | new)
        })
    };
    let watching = async {
        while let Some(configuration) = seen.next().await {
            let Ok(Some(configuration)) = configuration else {
                continue;
            };
            let webhooks = configuration.webhooks.unwrap_or_default();
            let bundle = webhooks
                .first()
                .and_then(|webhook| webhook.client_config.ca_bundle.clone());
            let held = certificates_in(&bundle.map(|bundle| bundle.0).unwrap_or_default())?;
            let held: BTreeSet<Vec<u8>> = held.iter().map(|one| one.to_vec()).collect();
            if way.last() != Some(&held) {
                way.push(held);
            }
            if rotated(&way) {
                return anyhow::Ok(());
            }
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_mins(4), watching)
        .await
        .with_context(|| {
            let sizes: Vec<usize> = way.iter().map(BTreeSet::len).collect();
            format!("the authority was not rotated; bundles of {sizes:?} were seen")
        })?
}

/// Waits until each replica has served three certificates, one after the other.
async fn leaves_change(context: Context) -> Outcome {
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let pods = Scraped::pods(&context, "webhook").await?;
    ensure!(pods.len() == 2, "two replicas: {pods:?}");
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let looking = async {
        loop {
            ticks.tick().await;
            for (pod, address) in &pods {
                let metrics = Scraped::of(address).await?;
                let expiry = metrics.value(
                    r#"etcd_operator_certificate_expiry_timestamp_seconds{certificate="leaf"}"#,
                );
                seen.entry(pod.clone()).or_default().extend(expiry);
            }
            if seen.len() == 2 && seen.values().all(|leaves| leaves.len() >= 3) {
                return anyhow::Ok(());
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(4), looking)
        .await
        .with_context(|| format!("leaves seen: {seen:?}"))?
}

/// Requests at a steady pace, each a task of its own, so that a slow one delays no other.
struct Load {
    phase: watch::Sender<&'static str>,
    running: JoinHandle<anyhow::Result<Told>>,
    stop: mpsc::Sender<()>,
}

/// What came of it.
#[derive(Default)]
struct Told {
    counts: BTreeMap<&'static str, usize>,
    failures: Vec<String>,
    took: Vec<Duration>,
}

/// One of the ways the webhook is asked.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Create,
    Update,
    Refused,
    Convert,
}

impl Load {
    fn start(context: &Context) -> Self {
        let (phase, current) = watch::channel("at rest");
        let (stop, mut stopped) = mpsc::channel::<()>(1);
        let context = context.clone();
        let running = tokio::spawn(async move {
            let (send, mut answers) = mpsc::unbounded_channel();
            let mut ticks = tokio::time::interval(PACE);
            let mut asks = [Ask::Create, Ask::Update, Ask::Refused, Ask::Convert]
                .into_iter()
                .cycle();
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = stopped.recv() => break,
                }
                let Some(ask) = asks.next() else { break };
                let (context, send, phase) = (context.clone(), send.clone(), *current.borrow());
                tokio::spawn(async move {
                    let began = Instant::now();
                    let answer = ask
                        .of(&context)
                        .await
                        .map_err(|error| format!("{phase}: {ask:?}: {error:#}"));
                    // Nobody listens once the load is over.
                    let _over = send.send((phase, answer, began.elapsed()));
                });
            }
            drop(send);
            let mut told = Told::default();
            while let Some((phase, answer, took)) = answers.recv().await {
                *told.counts.entry(phase).or_default() += 1;
                told.took.push(took);
                told.failures.extend(answer.err());
            }
            Ok(told)
        });
        Self {
            phase,
            running,
            stop,
        }
    }

    fn phase(&self, phase: &'static str) {
        self.phase.send_replace(phase);
    }

    async fn stop(self) -> anyhow::Result<Told> {
        self.stop.send(()).await?;
        self.running.await?
    }
}

impl Ask {
    async fn of(self, context: &Context) -> Outcome {
        let clusters = context.clusters();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match self {
            Self::Create => {
                let object: DynamicObject =
                    serde_json::from_value(context.manifest("sound", &json!({})))?;
                let answer = clusters.create(&dry_run, &object).await?;
                ensure!(
                    answer.data["spec"]["size"] == 3,
                    "not filled in: {:#}",
                    answer.data
                );
            }
            Self::Update => {
                let params = PatchParams {
                    dry_run: true,
                    ..PatchParams::default()
                };
                let patch = Patch::Merge(json!({"spec": {"size": 5}}));
                clusters.patch("steady", &params, &patch).await?;
            }
            Self::Refused => {
                let object: DynamicObject =
                    serde_json::from_value(context.manifest("even", &json!({"size": 4})))?;
                match clusters.create(&dry_run, &object).await {
                    Err(kube::Error::Api(status)) if status.message.contains("spec.size: must") => {
                    }
                    other => anyhow::bail!("an even size: {other:?}"),
                }
            }
            Self::Convert => {
                let kind =
                    GroupVersionKind::gvk("etcd.database.coreos.com", "v1alpha1", "EtcdCluster");
                let resource = ApiResource::from_gvk_with_plural(&kind, "etcdclusters");
                let old: Api<DynamicObject> =
                    Api::namespaced_with(context.client(), context.namespace(), &resource);
                let read = old.get("steady").await?;
                ensure!(
                    read.data["spec"]["replicas"] == 3,
                    "not converted: {:#}",
                    read.data
                );
            }
        }
        Ok(())
    }
}

impl Told {
    fn judge(mut self) -> Outcome {
        self.took.sort();
        let at = |part: usize| {
            self.took
                .get(self.took.len() * part / 1000)
                .copied()
                .unwrap_or_default()
        };
        let asked: usize = self.counts.values().sum();
        println!(
            "{asked} requests, {} failed; p50 {:?}, p99 {:?}, p99.9 {:?}",
            self.failures.len(),
            at(500),
            at(990),
            at(999)
        );
        for (phase, count) in &self.counts {
            println!("  {count} while {phase}");
        }
        ensure!(
            self.counts.len() >= 2 && asked > 500,
            "too few requests to tell: {:?}",
            self.counts
        );
        let some: Vec<&String> = self.failures.iter().take(10).collect();
        ensure!(
            self.failures.is_empty(),
            "{} of {asked} failed, among them {some:#?}",
            self.failures.len()
        );
        Ok(())
    }
}

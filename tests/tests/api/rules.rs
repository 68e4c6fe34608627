//! Every rule before every guard. The examples are the api crate's own list, each of which breaks one rule: with the webhook in place it
//! refuses them; with the webhook gone the API server's CEL does; what CEL cannot say is held by the controller. In the same words, and
//! with no rule left over.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::{Context as _, anyhow, bail, ensure};
use etcd_operator_api::{
    examples::{Example, breaking},
    policy::Policy,
};
use etcd_operator_tests::{
    Context, GROUP, Outcome, condition_is, until, until_answer, without_admission,
    without_controller,
};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service},
        policy::v1::PodDisruptionBudget,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};

/// So many requests at once: the API server has better things to do as well.
const BESIDE_EACH_OTHER: usize = 8;
/// Who, beside the webhook and the API server, reads objects of this kind and can hold them.
const WITH_A_CONTROLLER: [&str; 1] = ["EtcdCluster"];

/// One example on its way through the guards.
#[derive(Clone, Debug)]
struct Walker {
    number: usize,
    example: Example,
    /// What the judge says of it: (field, message).
    words: Vec<(String, String)>,
}

/// Which guard stopped an example once the webhook was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stopped {
    ByApiServer,
    ByController,
    /// No controller reads the kind: it is stored, and nothing happens.
    NobodyReads,
}

impl Walker {
    fn all() -> anyhow::Result<Vec<Self>> {
        breaking()
            .into_iter()
            .enumerate()
            .map(|(number, example)| {
                let judgement = example.judge(&Policy::default())?;
                let words = judgement.violations.into_iter();
                Ok(Self {
                    number,
                    words: words.map(|wrong| (wrong.field, wrong.message)).collect(),
                    example,
                })
            })
            .collect()
    }

    fn is_change(&self) -> bool {
        self.example.old.is_some()
    }

    /// A change of version is judged against what runs: by the controller against etcd itself.
    fn is_of_running_etcd(&self) -> bool {
        self.is_change() && !self.example.by_api_server
    }

    fn api(&self, context: &Context) -> Api<DynamicObject> {
        let kind = self.example.kind();
        let kind = GroupVersionKind::gvk(GROUP, "v1beta2", kind);
        let plural = format!("{}s", kind.kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
        Api::namespaced_with(context.client(), context.namespace(), &resource)
    }

    /// The object of the scenario's namespace; one that is stored gets a name of its own, unless its name is what is wrong.
    fn object(&self, context: &Context, from: &Value, name: &str) -> anyhow::Result<DynamicObject> {
        let mut object = from.clone();
        object["metadata"]["namespace"] = json!(context.namespace());
        if object["metadata"]["name"] == "example" {
            object["metadata"]["name"] = json!(format!("{name}-{}", self.number));
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        Ok(serde_json::from_value(object)?)
    }

    /// Puts the example before whoever guards, storing nothing of it. For a change, what stood before is stored, with its status: that
    /// stands in for an etcd that runs, and no controller is there to correct it.
    async fn refusal(
        &self,
        context: &Context,
        name: &str,
    ) -> anyhow::Result<Option<kube::core::Status>> {
        let api = self.api(context);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let new = self.object(context, &self.example.new, name)?;
        let answer = match &self.example.old {
            None => api.create(&dry_run, &new).await,
            Some(old) => {
                let before = self.object(context, old, name)?;
                let mut stored = api
                    .create(&PostParams::default(), &before)
                    .await
                    .with_context(|| format!("{self}: storing what stood before"))?;
                if !old["status"].is_null() {
                    let status = Patch::Merge(json!({"status": old["status"]}));
                    let params = PatchParams::default();
                    stored = api
                        .patch_status(&stored.name_any(), &params, &status)
                        .await
                        .with_context(|| format!("{self}: giving it the status it has"))?;
                }
                stored.data["spec"] = new.data["spec"].clone();
                let answer = api.replace(&stored.name_any(), &dry_run, &stored).await;
                // Gone before there is a controller again that would make it real.
                api.delete(&stored.name_any(), &DeleteParams::default())
                    .await?;
                answer
            }
        };
        match answer {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(*status)),
            Err(error) => Err(anyhow!(error).context(self.to_string())),
        }
    }
}

impl std::fmt::Display for Walker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Example { reason, what, .. } = &self.example;
        write!(formatter, "{} {reason} ({what})", self.example.kind())
    }
}

/// Where a number is computed, CEL may write it differently; the words before it are the same.
fn beginning(message: &str) -> String {
    message.chars().take(40).collect()
}

pub(crate) async fn every_rule_stands_three_times(context: &Context) -> Outcome {
    let walkers = Walker::all()?;
    ensure!(walkers.len() > 100, "only {} examples", walkers.len());
    let running = Running::start(context, &walkers).await?;
    without_controller(context, by_the_webhook(context, &walkers)).await?;
    let mut stopped = BTreeMap::new();
    let unguarded = async {
        without_controller(context, async {
            stopped = by_the_api_server(context, &walkers).await?;
            Ok(())
        })
        .await?;
        for walker in walkers
            .iter()
            .filter(|one| !stopped.contains_key(&one.number))
            .collect::<Vec<_>>()
        {
            let guard = if WITH_A_CONTROLLER.contains(&walker.example.kind()) {
                Stopped::ByController
            } else {
                Stopped::NobodyReads
            };
            stopped.insert(walker.number, guard);
        }
        let let_in = |walker: &&Walker| stopped[&walker.number] == Stopped::ByController;
        let (changes, new): (Vec<_>, Vec<_>) = walkers
            .iter()
            .filter(let_in)
            .partition(|walker| walker.is_of_running_etcd());
        held(context, &new)
            .await
            .context("what the API server lets in")?;
        running.hold(&changes).await.context("changes of version")?;
        let unruled = async {
            let known_to_cel: Vec<_> = walkers
                .iter()
                .filter(|walker| walker.example.kind() == "EtcdCluster" && !walker.is_change())
                .filter(|walker| stopped[&walker.number] == Stopped::ByApiServer)
                .collect();
            held(context, &known_to_cel)
                .await
                .context("with the rules of the definition gone as well")
        };
        without_rules_in_the_definition(context, Box::pin(unruled)).await
    };
    without_admission(context, Box::pin(unguarded)).await?;
    println!("{}", table(&walkers, &stopped)?);
    Ok(())
}

/// Refused, with one cause for each thing the judge names and in its very words.
async fn by_the_webhook(context: &Context, walkers: &[Walker]) -> Outcome {
    // Owned, because a borrow in a stream of futures is more than the compiler can follow.
    let wrong: Vec<String> = stream::iter(walkers.to_vec())
        .map(|walker| async move {
            let Some(status) = walker.refusal(context, "webhook").await? else {
                return Ok(Some(format!("{walker}: let in")));
            };
            if !status.message.contains("admission webhook") {
                return Ok(Some(format!(
                    "{walker}: not the webhook: {}",
                    status.message
                )));
            }
            let causes = status
                .details
                .map(|details| details.causes)
                .unwrap_or_default();
            let told: Vec<(String, String)> = causes
                .into_iter()
                .map(|cause| (cause.field, cause.message))
                .collect();
            Ok((told != walker.words)
                .then(|| format!("{walker}: {told:?} instead of {:?}", walker.words)))
        })
        .buffer_unordered(BESIDE_EACH_OTHER)
        .try_filter_map(|wrong| async move { anyhow::Ok(wrong) })
        .try_collect()
        .await?;
    ensure!(wrong.is_empty(), "with the webhook:\n{}", wrong.join("\n"));
    Ok(())
}

/// Refused by the API server where the list says that it can, in the same words.
async fn by_the_api_server(
    context: &Context,
    walkers: &[Walker],
) -> anyhow::Result<BTreeMap<usize, Stopped>> {
    let answers: Vec<(Walker, Option<String>)> = stream::iter(walkers.to_vec())
        .map(|walker| async move {
            let status = walker.refusal(context, "alone").await?;
            anyhow::Ok((walker, status.map(|status| status.message)))
        })
        .buffer_unordered(BESIDE_EACH_OTHER)
        .try_collect()
        .await?;
    let mut wrong = Vec::new();
    let mut stopped = BTreeMap::new();
    for (walker, refusal) in answers {
        match refusal {
            Some(message) => {
                for (_, words) in &walker.words {
                    if !message.contains(&beginning(words)) {
                        wrong.push(format!(
                            "{walker}: `{}` is not in {message}",
                            beginning(words)
                        ));
                    }
                }
                if !walker.example.by_api_server {
                    wrong.push(format!(
                        "{walker}: said to be beyond the API server, but: {message}"
                    ));
                }
                stopped.insert(walker.number, Stopped::ByApiServer);
            }
            None if walker.example.by_api_server => wrong.push(format!("{walker}: let in")),
            None => {}
        }
    }
    ensure!(
        wrong.is_empty(),
        "without the webhook:\n{}",
        wrong.join("\n")
    );
    Ok(stopped)
}

/// Stored, and held by the controller in the same words, and without a single child.
async fn held(context: &Context, walkers: &[&Walker]) -> Outcome {
    let walkers: Vec<Walker> = walkers.iter().copied().cloned().collect();
    let stored: Vec<(Walker, DynamicObject)> = stream::iter(walkers)
        .map(|walker| async move {
            let object = walker.object(context, &walker.example.new, "held")?;
            let stored = walker
                .api(context)
                .create(&PostParams::default(), &object)
                .await
                .with_context(|| format!("{walker}: storing it"))?;
            anyhow::Ok((walker, stored))
        })
        .buffer_unordered(BESIDE_EACH_OTHER)
        .try_collect()
        .await?;
    for (walker, object) in &stored {
        stalled(context, &object.name_any(), &walker.words)
            .await
            .with_context(|| walker.to_string())?;
    }
    let owned = children(context).await?;
    for (walker, object) in &stored {
        let uid = object.uid().context("a stored object has a UID")?;
        let children: Vec<&String> = owned
            .iter()
            .filter(|(owner, _)| *owner == uid)
            .map(|(_, child)| child)
            .collect();
        ensure!(
            children.is_empty(),
            "{walker}: held, and yet there are {children:?}"
        );
    }
    Ok(())
}

/// Waits until the controller has looked at the spec as it is and holds it, and sees that it says what the judge says.
async fn stalled(context: &Context, name: &str, words: &[(String, String)]) -> Outcome {
    let held = until(
        context.clusters(),
        name,
        "the controller to hold it",
        |found| found.is_some_and(|cluster| condition_is(cluster, "Stalled", "True")),
    )
    .await?
    .context("a held cluster exists")?;
    let conditions = held.data["status"]["conditions"].as_array();
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Stalled")
        .context("a condition Stalled")?;
    let message = condition["message"].as_str().unwrap_or_default();
    for (_, words) in words {
        ensure!(
            message.contains(words.as_str()),
            "`{words}` is not in `{message}`"
        );
    }
    Ok(())
}

/// (owner's UID, what it is) of every child in the namespace.
async fn children(context: &Context) -> anyhow::Result<Vec<(String, String)>> {
    async fn of<K>(context: &Context) -> anyhow::Result<Vec<(String, String)>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let all = context.api::<K>().list(&ListParams::default()).await?;
        let owners = all.items.iter().flat_map(|child| {
            let name = format!("{} {}", K::kind(&()), child.name_any());
            child
                .owner_references()
                .iter()
                .map(move |owner| (owner.uid.clone(), name.clone()))
        });
        Ok(owners.collect())
    }
    let mut all = of::<Pod>(context).await?;
    all.extend(of::<PersistentVolumeClaim>(context).await?);
    all.extend(of::<Service>(context).await?);
    all.extend(of::<ConfigMap>(context).await?);
    all.extend(of::<Secret>(context).await?);
    all.extend(of::<PodDisruptionBudget>(context).await?);
    Ok(all)
}

/// Plays with every CEL rule taken out of the clusters' definition: what then reaches the controller is what an old definition, or one
/// of somebody's own making, would let in.
async fn without_rules_in_the_definition(
    context: &Context,
    play: impl Future<Output = Outcome>,
) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    let name = format!("etcdclusters.{GROUP}");
    let saved = definitions.get(&name).await?;
    replace_definition(context, &saved, Rules::Gone).await?;
    let played = play.await;
    replace_definition(context, &saved, Rules::There).await?;
    played
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    There,
    Gone,
}

async fn replace_definition(
    context: &Context,
    saved: &CustomResourceDefinition,
    rules: Rules,
) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    let now = definitions.get(&saved.name_any()).await?;
    let mut definition = serde_json::to_value(saved)?;
    definition["metadata"] = serde_json::to_value(&now.metadata)?;
    if rules == Rules::Gone {
        forget_rules(&mut definition);
    }
    let definition = serde_json::from_value(definition)?;
    let params = PostParams::default();
    definitions
        .replace(&saved.name_any(), &params, &definition)
        .await?;
    until_answer(
        "the API server to heed its definition",
        Duration::from_millis(100),
        || async {
            let even = context.manifest("even", &json!({"size": 4}));
            let even: DynamicObject = serde_json::from_value(even)?;
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let refused = context.clusters().create(&dry_run, &even).await.is_err();
            Ok((refused == (rules == Rules::There)).then_some(()))
        },
    )
    .await
}

fn forget_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(forget_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_rules),
        _ => {}
    }
}

/// Clusters that really run what the examples about versions start from.
struct Running<'a> {
    context: &'a Context,
}

impl<'a> Running<'a> {
    /// Asks for them; they come up while the other guards are asked.
    async fn start(context: &'a Context, walkers: &[Walker]) -> anyhow::Result<Self> {
        for walker in walkers.iter().filter(|walker| walker.is_of_running_etcd()) {
            let versions = walker.versions()?;
            // Members on two minors are found halfway through an upgrade, and there must be a half.
            let size = if versions.len() > 1 { 3 } else { 1 };
            let spec = json!({"size": size, "version": versions[0]});
            context
                .cluster(&walker.running_name())
                .create(&spec)
                .await?;
        }
        Ok(Self { context })
    }

    async fn hold(&self, walkers: &[&Walker]) -> Outcome {
        try_join_all(walkers.iter().map(|walker| async move {
            self.hold_one(walker)
                .await
                .with_context(|| walker.to_string())
        }))
        .await?;
        Ok(())
    }

    /// An illegal change is held and touches no member, and putting the version back leaves it.
    async fn hold_one(&self, walker: &Walker) -> Outcome {
        let cluster = self.context.cluster(&walker.running_name());
        cluster.ready().await?;
        let versions = walker.versions()?;
        let mut back = versions[0].clone();
        if let Some(onward) = versions.get(1) {
            cluster.change(&json!({"version": onward})).await?;
            until(
                self.context.clusters(),
                cluster.name(),
                "members of two minors",
                |found| {
                    found.is_some_and(|cluster| {
                        let members = cluster.data["status"]["memberStatus"].as_array();
                        let runs = |version: &String| {
                            members.is_some_and(|all| {
                                all.iter().any(|member| member["version"] == **version)
                            })
                        };
                        versions.iter().all(runs)
                    })
                },
            )
            .await?;
            back.clone_from(onward);
        }
        let target = walker.example.new["spec"]["version"].clone();
        cluster.change(&json!({"version": target})).await?;
        stalled(self.context, cluster.name(), &walker.words).await?;
        let before = members(self.context, cluster.name()).await?;
        ensure!(!before.is_empty(), "the cluster has members");
        // A second look, at a spec that differs in nothing that matters: still held, still untouched.
        cluster.change(&json!({"deletionProtection": true})).await?;
        stalled(self.context, cluster.name(), &walker.words).await?;
        let after = members(self.context, cluster.name()).await?;
        ensure!(before == after, "held, and yet {before:?} became {after:?}");
        cluster
            .change(&json!({"version": back, "deletionProtection": false}))
            .await?;
        cluster.ready().await?;
        // Or the controller would heal it in a namespace that is being deleted.
        cluster.delete().await?;
        cluster.gone().await
    }
}

impl Walker {
    fn running_name(&self) -> String {
        format!("runs-{}", self.number)
    }

    /// What runs, without repetition.
    fn versions(&self) -> anyhow::Result<Vec<String>> {
        let old = self.example.old.as_ref().context("a change")?;
        let members = old["status"]["memberStatus"]
            .as_array()
            .context("a cluster that runs")?;
        let mut versions: Vec<String> = members
            .iter()
            .filter_map(|member| Some(member["version"].as_str()?.to_owned()))
            .collect();
        versions.dedup();
        if versions.is_empty() {
            bail!("{self}: nothing runs");
        }
        Ok(versions)
    }
}

/// The members' pods and claims, by what changes when one of them is touched.
async fn members(context: &Context, cluster: &str) -> anyhow::Result<Vec<String>> {
    let cluster = context.cluster(cluster);
    let pods = cluster.pods().await?.into_iter().map(|pod| {
        let restarts: i32 = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten())
            .map(|container| container.restart_count)
            .sum();
        format!("pod {} {:?} {restarts}", pod.name_any(), pod.metadata.uid)
    });
    let claims = cluster.claims().await?.into_iter().map(|claim| {
        format!(
            "claim {} {:?} {:?}",
            claim.name_any(),
            claim.metadata.uid,
            claim.annotations()
        )
    });
    Ok(pods.chain(claims).collect())
}

/// How many examples of each kind each guard stopped once the webhook was gone.
fn table(walkers: &[Walker], stopped: &BTreeMap<usize, Stopped>) -> anyhow::Result<String> {
    let mut counts: BTreeMap<(String, Stopped), usize> = BTreeMap::new();
    for walker in walkers {
        let guard = stopped
            .get(&walker.number)
            .with_context(|| format!("{walker}: nobody accounts for it"))?;
        *counts
            .entry((walker.example.kind().to_owned(), *guard))
            .or_default() += 1;
    }
    let mut text = format!(
        "{} examples, all refused by the webhook; without it:",
        walkers.len()
    );
    for ((kind, guard), count) in counts {
        let guard = match guard {
            Stopped::ByApiServer => "refused by the API server",
            Stopped::ByController => "held by the controller, nothing touched",
            Stopped::NobodyReads => "stored, and no controller reads the kind",
        };
        write!(text, "\n  {kind:<12} {count:>3} {guard}")?;
    }
    Ok(text)
}

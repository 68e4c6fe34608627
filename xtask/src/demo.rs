//! `cargo xtask demo`: the whole path in one go, each step with the command that a person would type and its real output.
//!
//! Starts the local cluster `demo` and leaves it running, or uses the one that a kubeconfig names and builds no Kubernetes.

mod narrator;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use self::narrator::Narrator;
use crate::{
    cache::Cache,
    local::{self, Options},
    operator::{self, CHART, NAMESPACE, RELEASE},
    programs::{self, Program},
};

const CLUSTER: &str = "demo";
const NODES: u8 = 3;
const EXAMPLE: &str = "examples/etcdcluster.yaml";
const EVEN: &str = "\
apiVersion: etcd.database.coreos.com/v1beta2
kind: EtcdCluster
metadata:
  name: even
spec:
  size: 4
";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Use the cluster that this kubeconfig names, and build no Kubernetes. The operator's image must be one that its
    /// nodes can pull: see --image-repository and --image-tag
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Where the operator's image is pulled from
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    image_repository: Option<String>,
    /// Which tag of it
    #[arg(long, value_name = "TAG", requires = "kubeconfig")]
    image_tag: Option<String>,
    /// Where the example is applied
    #[arg(long, default_value = "default")]
    namespace: String,
}

/// A cluster to show the operator on.
struct Stage {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    helm: PathBuf,
    /// What Helm is told beyond what a user would type.
    chart_arguments: Vec<String>,
    local: bool,
}

pub fn run(args: Args) -> Result<()> {
    let Args {
        kubeconfig,
        image_repository,
        image_tag,
        namespace,
    } = args;
    let stage = match kubeconfig {
        Some(kubeconfig) => existing(&kubeconfig, image_repository, image_tag)?,
        None => local()?,
    };
    let narrator = Narrator::new(&stage.kubectl, &stage.helm, &stage.kubeconfig);
    show(&narrator, &stage, &namespace)?;
    what_next(&stage, &namespace);
    Ok(())
}

fn local() -> Result<Stage> {
    let running = local::up(&Options {
        name: CLUSTER.to_owned(),
        nodes: NODES,
    })?;
    let image = operator::load(&running)?;
    Ok(Stage {
        kubeconfig: running.kubeconfig,
        kubectl: running.tools.kubectl,
        helm: running.tools.helm4,
        chart_arguments: operator::image_arguments(&image),
        local: true,
    })
}

fn existing(kubeconfig: &Path, repository: Option<String>, tag: Option<String>) -> Result<Stage> {
    let kubeconfig = std::path::absolute(kubeconfig)?;
    std::fs::metadata(&kubeconfig).with_context(|| kubeconfig.display().to_string())?;
    let mut chart_arguments = Vec::new();
    for (key, value) in [("repository", repository), ("tag", tag)] {
        if let Some(value) = value {
            chart_arguments.extend(["--set-string".to_owned(), format!("image.{key}={value}")]);
        }
    }
    println!(
        "Using the cluster of {}. Its nodes must be able to pull the operator's image: \
         --image-repository and --image-tag say where from.",
        kubeconfig.display()
    );
    Ok(Stage {
        kubectl: own_or_built("kubectl", &Program::Kubectl)?,
        helm: own_or_built("helm", &Program::Helm4)?,
        kubeconfig,
        chart_arguments,
        local: false,
    })
}

/// The user's own tool, else ours.
fn own_or_built(name: &str, program: &Program) -> Result<PathBuf> {
    let on_path = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    match on_path {
        Some(file) => Ok(file),
        None => programs::ensure(&Cache::open()?, std::slice::from_ref(program))?.file(program),
    }
}

fn show(narrator: &Narrator, stage: &Stage, namespace: &str) -> Result<()> {
    if stage.local {
        narrator.say("A Kubernetes of our own is up. For your own tools:");
        println!("$ export KUBECONFIG={}", stage.kubeconfig.display());
    }
    narrator.say("Install the operator.");
    let mut helm = vec![
        "upgrade",
        "--install",
        RELEASE,
        CHART,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--wait",
    ];
    // On a cluster that was shown before, pods of another build may run under the image's name.
    if !stage.local || narrator.installed(RELEASE, NAMESPACE) {
        helm.extend(stage.chart_arguments.iter().map(String::as_str));
    }
    narrator.helm(&helm)?;
    narrator.kubectl(&["get", "deployments", "--namespace", NAMESPACE])?;

    let kubectl = |words: &[&str]| narrator.kubectl(&[words, &["--namespace", namespace]].concat());
    narrator.say("Ask for an etcd of three members.");
    println!(
        "{}",
        std::fs::read_to_string(operator::checkout().join(EXAMPLE))?.trim_end()
    );
    kubectl(&["apply", "-f", EXAMPLE])?;
    narrator.say("Wait for it, and watch it come.");
    narrator.kubectl_beside(
        &[
            "get",
            "etcd",
            "example",
            "--watch",
            "--namespace",
            namespace,
        ],
        &[
            "wait",
            "--for=condition=Ready",
            "etcdcluster/example",
            "--timeout=5m",
            "--namespace",
            namespace,
        ],
    )?;

    narrator.say("Ask for something unsound: an even number of members.");
    narrator.kubectl_refused(&["apply", "-f", "-", "--namespace", namespace], EVEN)?;

    narrator.say(
        "What was left unsaid in the example has been filled in, and stands in the object itself.",
    );
    narrator.kubectl_until(
        &[
            "get",
            "etcdcluster",
            "example",
            "--output",
            "yaml",
            "--namespace",
            namespace,
        ],
        "status:",
    )?;

    narrator.say("At a glance, and the whole story.");
    kubectl(&["get", "etcd"])?;
    kubectl(&["get", "etcd", "--output", "wide"])?;
    kubectl(&[
        "get",
        "pods,persistentvolumeclaims,services",
        "--selector",
        "etcd_cluster=example",
    ])?;
    kubectl(&["describe", "etcdcluster", "example"])?;

    narrator.say("Write a key and read it, through the client Service.");
    let pods = narrator.kubectl_quietly(&[
        "get",
        "pods",
        "--selector",
        "etcd_cluster=example",
        "--output",
        "name",
        "--namespace",
        namespace,
    ])?;
    let pod = pods.lines().next().context("the cluster has a pod")?;
    let endpoint = format!("--endpoints=http://example-client.{namespace}.svc:2379");
    for words in [&["put", "greeting", "hello"][..], &["get", "greeting"]] {
        kubectl_exec(narrator, namespace, pod, &endpoint, words)?;
    }
    Ok(())
}

fn kubectl_exec(
    narrator: &Narrator,
    namespace: &str,
    pod: &str,
    endpoint: &str,
    words: &[&str],
) -> Result<()> {
    let exec = [
        "exec",
        "--namespace",
        namespace,
        pod,
        "--container",
        "etcd",
        "--",
        "etcdctl",
        endpoint,
    ];
    narrator.kubectl(&[&exec[..], words].concat())
}

fn what_next(stage: &Stage, namespace: &str) {
    println!("\nNow it is yours. To try next:");
    let own = if stage.local {
        "cargo xtask kubectl "
    } else {
        "kubectl "
    };
    let mut ideas = vec![
        (
            format!(
                "{own}delete pod --namespace {namespace} --selector etcd_cluster=example --wait=false"
            ),
            "every member comes back on its own volume; nothing is lost",
        ),
        (
            format!("{own}scale --namespace {namespace} etcdcluster/example --replicas=4"),
            "refused, and told why",
        ),
        (
            format!("{own}explain etcdcluster.spec"),
            "what else can be asked for",
        ),
        (
            format!("{own}delete --namespace {namespace} etcdcluster example"),
            "pods, volumes and Services go with it",
        ),
    ];
    if stage.local {
        ideas.insert(
            0,
            (
                "cargo xtask etcdctl example member list".to_owned(),
                "etcd's own view",
            ),
        );
        ideas.push((
            format!("cargo xtask down --name {CLUSTER}"),
            "stops the cluster and leaves nothing behind",
        ));
    } else {
        ideas.push((
            format!("helm uninstall --namespace {NAMESPACE} {RELEASE}"),
            "takes the operator away",
        ));
    }
    let width = ideas
        .iter()
        .map(|(command, _)| command.len())
        .max()
        .unwrap_or_default();
    for (command, effect) in ideas {
        println!("  {command:width$}  # {effect}");
    }
}

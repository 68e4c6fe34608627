//! The command line: which commands there are, and who does them.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{
    bench, bundle, cache, demo, generate, images,
    local::{
        self,
        access::{self, Tool},
    },
    manifests, programs, supply, test,
};

/// The developer commands of etcd-operator.
///
/// `demo` and `test` do everything by themselves. The others work with local clusters: a real Kubernetes on this machine, built
/// from source once and kept in a cache, started in a network namespace of its own. Starting one needs root on Linux.
///
/// The cache is $ETCD_OPERATOR_CACHE, else $XDG_CACHE_HOME/etcd-operator, else ~/.cache/etcd-operator.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the operator at work: cluster, chart, an etcd, a refusal, a key written and read.
    Demo(demo::Args),
    /// Run the tests, all tiers or one, and sum up.
    Test(test::Args),
    /// Measure start-up times and memory.
    Bench(bench::Args),
    /// Write the generated files: CRDs, roles, API reference.
    Generate(generate::Args),
    /// Write the operator as one file for `kubectl apply -f`, with a base for kustomize, from the chart.
    Manifests(manifests::Args),
    /// Write the bundle for OLM and OperatorHub, from the chart, and have the operator-framework judge it.
    Bundle(bundle::Args),
    /// Tell what is linked into the shipped programs: a bill of materials in CycloneDX.
    Sbom(supply::sbom::Args),
    /// Start a local Kubernetes, or find it running.
    ///
    /// Builds what is missing first (about half an hour on two cores, once per machine), then starts the control plane, the nodes,
    /// DNS, a default StorageClass and the etcd images. Called again, it starts what has ended and changes nothing else.
    Up {
        #[command(flatten)]
        cluster: Name,
        /// How many nodes, 1 to 5.
        #[arg(long, default_value_t = 3)]
        nodes: u8,
    },
    /// Take a local Kubernetes down and remove every trace, also after a crash.
    Down {
        #[command(flatten)]
        cluster: Name,
        /// Every local cluster of this cache.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List the local clusters, how they are, and where their kubeconfigs and logs are.
    Status,
    /// Run kubectl against a local cluster: `cargo xtask kubectl get pods -A`.
    Kubectl(Passed),
    /// Run Helm 4 against a local cluster: `cargo xtask helm list -A`.
    Helm(Passed),
    /// Run Helm 3 against a local cluster.
    Helm3(Passed),
    /// Run etcdctl in a ready member of an EtcdCluster: `cargo xtask etcdctl example endpoint status -w table`.
    Etcdctl {
        #[command(flatten)]
        cluster: Name,
        /// The namespace of the EtcdCluster.
        #[arg(long, short, default_value = "default")]
        namespace: String,
        /// The name of the EtcdCluster.
        etcd_cluster: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Show the log of a component of a local cluster; without one, which there are.
    Logs {
        #[command(flatten)]
        cluster: Name,
        component: Option<String>,
        /// Go on as the log grows.
        #[arg(long, short)]
        follow: bool,
    },
    /// Take a node's power away, or give it back: `cargo xtask node stop node2`.
    Node {
        #[command(flatten)]
        cluster: Name,
        what: Power,
        /// Which node, as `cargo xtask kubectl get nodes` names it.
        node: String,
    },
    /// Build every program of the local Kubernetes that is not in the cache yet.
    Build,
    /// Compile the operator into an image archive, and load it into a local cluster if that one is there.
    Images(Name),
    #[command(hide = true)]
    InternalGateway(local::gateway::Args),
    #[command(hide = true)]
    InternalVolumes(local::volumes::Args),
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Power {
    /// End all its processes at once, without a word to anybody
    Stop,
    /// Start it again; what was on its disk is still there
    Start,
}

#[derive(Debug, clap::Args)]
struct Name {
    /// Which local cluster.
    #[arg(long, default_value = "demo")]
    name: String,
}

#[derive(Debug, clap::Args)]
struct Passed {
    #[command(flatten)]
    cluster: Name,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Does what the command line asks for; an error is told in words.
pub fn main() -> ExitCode {
    run(Cli::parse().command).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(args)?,
        Command::Test(args) => test::run(args)?,
        Command::Bench(args) => bench::run(args)?,
        Command::Generate(args) => generate::run(args)?,
        Command::Manifests(args) => manifests::run(args)?,
        Command::Bundle(args) => bundle::run(args)?,
        Command::Sbom(args) => supply::sbom::run(args)?,
        Command::Up { cluster, nodes } => {
            let running = local::up(&local::Options {
                name: cluster.name,
                nodes,
            })?;
            println!("Cluster `{}` is ready.", running.name);
            println!("  export KUBECONFIG={}", running.kubeconfig.display());
            println!("  logs in {}", running.logs.display());
            println!(
                "  `cargo xtask kubectl --name {0} get pods -A` looks into it, `cargo xtask down --name {0}` takes it down.",
                running.name
            );
        }
        Command::Down { all: true, .. } => local::names()?
            .iter()
            .try_for_each(|name| local::down(name))?,
        Command::Down { cluster, .. } => local::down(&cluster.name)?,
        Command::Status => access::status()?,
        Command::Kubectl(passed) => {
            return access::tool(&passed.cluster.name, Tool::Kubectl, &passed.arguments);
        }
        Command::Helm(passed) => {
            return access::tool(&passed.cluster.name, Tool::Helm4, &passed.arguments);
        }
        Command::Helm3(passed) => {
            return access::tool(&passed.cluster.name, Tool::Helm3, &passed.arguments);
        }
        Command::Etcdctl {
            cluster,
            namespace,
            etcd_cluster,
            arguments,
        } => return access::etcdctl(&cluster.name, &namespace, &etcd_cluster, &arguments),
        Command::Logs {
            cluster,
            component,
            follow,
        } => return access::logs(&cluster.name, component.as_deref(), follow),
        Command::Node {
            cluster,
            what: Power::Stop,
            node,
        } => local::power::stop(&cluster.name, &node)?,
        Command::Node {
            cluster,
            what: Power::Start,
            node,
        } => local::power::start(&cluster.name, &node)?,
        Command::Build => {
            let cache = cache::Cache::open()?;
            let programs = programs::ensure(&cache, &programs::Program::all())?;
            images::of_a_cluster(&cache, &programs)?;
            println!("Everything is in {}.", cache.binaries().display());
        }
        Command::Images(cluster) => {
            let image = images::operator_image()?;
            println!(
                "{} is {} in {}",
                image.name,
                image.digest,
                image.archive.display()
            );
            if let Ok(running) = local::find(&cluster.name) {
                images::load(&running, &image)?;
                println!("Loaded into every node of cluster `{}`.", running.name);
            }
        }
        Command::InternalGateway(args) => local::gateway::run(&args)?,
        Command::InternalVolumes(args) => local::volumes::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

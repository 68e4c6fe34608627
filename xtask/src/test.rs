//! `cargo xtask test`: all tiers, each harder to set up than the one before, and one summary that says the truth.
//!
//! Runs cargo and helm in the checkout, and for the tiers that need one a local cluster of its own, `test` unless another is named.

mod count;
mod rights;
mod suites;
mod unit;

use std::process::exit;

use anyhow::{Result, anyhow};

use self::count::Count;
use crate::{
    local::{self, Options, Running},
    operator, progress,
};

const NODES: u8 = 3;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run only this tier (may be given more than once)
    #[arg(long, value_enum)]
    tier: Vec<Tier>,
    /// Run only tests whose name contains one of these words
    filter: Vec<String>,
    /// Leave the cluster running, for a look at what failed or for a quick next run
    #[arg(long)]
    keep: bool,
    /// Which local cluster: runs under different names do not disturb each other
    #[arg(long, default_value = "test")]
    name: String,
    /// How many scenarios run beside each other on the cluster
    #[arg(long, default_value_t = 4)]
    jobs: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tier {
    /// Formatting, lints, `cargo test --workspace`, generated files, the chart: needs no cluster
    Unit,
    /// A real API server with the operator installed: admission, schema, access
    Api,
    /// A real cluster with real etcd
    Cluster,
}

impl Tier {
    const ALL: [Self; 3] = [Self::Unit, Self::Api, Self::Cluster];

    fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Api => "api",
            Self::Cluster => "cluster",
        }
    }
}

pub fn run(args: Args) -> Result<()> {
    let Args {
        tier: wanted,
        filter,
        keep,
        name,
        jobs,
    } = args;
    let tiers: Vec<Tier> = Tier::ALL
        .into_iter()
        .filter(|tier| wanted.is_empty() || wanted.contains(tier))
        .collect();
    let needs_cluster = tiers.iter().any(|tier| *tier != Tier::Unit);
    let mut stage = None;
    let mut counts = Vec::new();
    for tier in tiers {
        println!("\n==== {}", tier.name());
        let count = match tier {
            Tier::Unit => unit::run(&filter),
            Tier::Api | Tier::Cluster => on_cluster(&mut stage, &name, tier, &filter, jobs),
        };
        counts.push((tier, count));
    }
    let mut down = Count::default();
    // Only what was played as a whole can tell what is needless.
    if filter.is_empty()
        && wanted.is_empty()
        && let Some(Ok(stage)) = &stage
        && let Some((_, last)) = counts.last_mut()
    {
        last.check("cluster::rights_that_nothing_used_can_be_told", || {
            rights::check(&stage.running.logs)
        });
    }
    if needs_cluster && !keep {
        down.check("the cluster comes down", || local::down(&name));
    } else if let Some(Ok(stage)) = &stage {
        progress::say(&format!(
            "The cluster is still there: export KUBECONFIG={}; `cargo xtask down --name {name}` takes it down.",
            stage.running.kubeconfig.display()
        ));
    }
    // A cluster that does not come down is a failure; one that does is no test passed.
    down.passed = 0;
    if let Some((_, last)) = counts.last_mut() {
        *last += down;
    }

    println!();
    let mut total = Count::default();
    for (tier, count) in counts {
        println!("{}: {count}", tier.name());
        total += count;
    }
    println!("{total}");
    if total.failed > 0 {
        // Not an error to be told once more: the summary is the last line, whoever reads it.
        exit(1);
    }
    Ok(())
}

/// A cluster with the operator's image on its nodes.
struct Stage {
    running: Running,
    chart_arguments: Vec<String>,
}

fn on_cluster(
    stage: &mut Option<Result<Stage, String>>,
    name: &str,
    tier: Tier,
    filter: &[String],
    jobs: usize,
) -> Count {
    let mut count = Count::default();
    // What could not be set up for one tier is not tried again for the next: it takes minutes to fail the same way.
    let prepared = stage.get_or_insert_with(|| prepare(name).map_err(|error| format!("{error:#}")));
    let played = match prepared {
        Ok(stage) => suites::run(stage, tier.name(), filter, jobs),
        Err(reason) => Err(anyhow!("the cluster could not be set up: {reason}")),
    };
    match played {
        Ok(played) => count += played,
        Err(error) => count.failed(&format!("{}: could not be run", tier.name()), &error),
    }
    count
}

fn prepare(name: &str) -> Result<Stage> {
    let running = local::up(&Options {
        name: name.to_owned(),
        nodes: NODES,
    })?;
    let image = operator::load(&running)?;
    Ok(Stage {
        running,
        chart_arguments: operator::image_arguments(&image),
    })
}

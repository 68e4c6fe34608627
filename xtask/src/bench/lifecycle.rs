//! `cargo xtask bench lifecycle`: what a cluster's life takes, and what the controller takes to look after many.
//!
//! Three parts, on a local cluster of its own. `changes`: creation, growth, shrinkage, replacement and upgrade of real clusters, and a
//! plain StatefulSet in the same rounds. `rest`: ten real clusters left alone, with every write to the API server counted. `many`: a
//! thousand EtcdClusters whose members are played, not run; what exactly is played, `many` says.

mod changes;
mod fake_etcd;
mod many;
mod rest;

use anyhow::Result;
use kube::Client;

use super::{connect, table::Table};
use crate::{
    command,
    local::{self, Options, Running},
    operator,
};

const NODES: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// How long create, grow, shrink, replace and upgrade take
    Changes,
    /// What the controller costs while real clusters rest
    Rest,
    /// What the controller costs with a thousand simulated clusters
    Many,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// Only this part (may be given more than once)
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// How many times each change is timed; the median is shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How many real clusters of three members rest
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=30))]
    resting: u16,
    /// How many EtcdClusters with simulated members there are
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=5000))]
    simulated: u16,
    /// Which local cluster
    #[arg(long, default_value = "bench")]
    name: String,
    /// Leave the cluster running
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let running = local::up(&Options {
        name: args.name.clone(),
        nodes: NODES,
    })?;
    let measured = measure(&running, args);
    if !args.keep {
        local::down(&args.name)?;
    }
    println!("\n{}", measured?);
    Ok(())
}

fn measure(running: &Running, args: &Args) -> Result<Table> {
    let image = operator::load(running)?;
    let mut install = operator::install(&running.tools.helm4, &running.kubeconfig);
    command::run(install.args(operator::image_arguments(&image)))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let client: Client = runtime.block_on(connect(running))?;
    let wanted = |part: Part| args.part.is_empty() || args.part.contains(&part);
    let mut table = Table::default();
    if wanted(Part::Changes) {
        runtime.block_on(changes::measure(
            &client,
            usize::from(args.rounds),
            &mut table,
        ))?;
    }
    if wanted(Part::Rest) {
        let resting = usize::from(args.resting);
        runtime.block_on(rest::measure(&client, running, resting, &mut table))?;
    }
    // Last: it stops parts of the cluster that real members need.
    if wanted(Part::Many) {
        let simulated = usize::from(args.simulated);
        many::measure(&runtime, &client, running, simulated, &mut table)?;
    }
    Ok(table)
}

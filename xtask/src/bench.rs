//! `cargo xtask bench`: how quick and how small the operator is, beside what it is measured against, in the same run.
//!
//! On a local cluster of its own, `bench`: time from `helm install` to the first accepted apply, from apply to Ready beside a plain StatefulSet, idle memory of both programs,
//! and their time from start to ready. `bench admission` measures the webhook under load, `bench lifecycle` the controller,
//! `bench backup` the agent.

mod admission;
mod backup;
mod creation;
mod install;
mod lifecycle;
mod memory;
mod start;
mod table;

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use self::table::{Row, Table};
use crate::{
    local::{self, Options, Running},
    operator,
};

const CLUSTER: &str = "bench";
const NODES: u8 = 3;

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// How many times each figure is taken; the median is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Leave the cluster `bench` running
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum What {
    /// Measure the webhook under load, beside one on controller-runtime, and through the API server.
    Admission(admission::Args),
    /// Measure what a cluster's life takes, and what the controller takes: at rest, and with a thousand clusters.
    Lifecycle(lifecycle::Args),
    /// Measure backup and restore of much data, beside etcd's own tools.
    Backup(backup::Args),
}

pub fn run(args: Args) -> Result<()> {
    let Args { what, rounds, keep } = args;
    match what {
        Some(What::Admission(args)) => return admission::run(args),
        Some(What::Lifecycle(args)) => return lifecycle::run(&args),
        Some(What::Backup(args)) => return backup::run(&args),
        None => {}
    }
    let running = local::up(&Options {
        name: CLUSTER.to_owned(),
        nodes: NODES,
    })?;
    let measured = measure(&running, usize::from(rounds));
    if !keep {
        local::down(CLUSTER)?;
    }
    println!("\n{}", measured?);
    Ok(())
}

fn measure(running: &Running, rounds: usize) -> Result<Table> {
    let image = operator::load(running)?;
    // Each round is an uninstall too: few are enough to see the middle one.
    let installs = install::rounds(running, &operator::image_arguments(&image), rounds.min(3))?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let client = runtime.block_on(connect(running))?;
    let fresh = runtime.block_on(memory::of_operator(&client))?;
    let times = runtime.block_on(creation::rounds(&client, rounds))?;
    let after = runtime.block_on(memory::of_operator(&client))?;
    let webhook = runtime.block_on(start::plan(&client, running, start::Program::Webhook))?;
    let controller = runtime.block_on(start::plan(&client, running, start::Program::Controller))?;

    let mut table = Table::default();
    table.push(Row::alone(
        "helm install to first accepted apply".to_owned(),
        "s",
        installs,
        5.0,
    ));
    table.push(Row::beside(
        "apply to Ready, 3 members",
        "s",
        times.operator,
        ("StatefulSet", times.stateful_set),
        1.5,
    ));
    for (program, megabytes) in fresh {
        table.push(Row::alone(
            format!("{program}: idle memory, fresh"),
            "MB",
            megabytes,
            12.0,
        ));
    }
    for (program, megabytes) in after {
        table.push(Row::alone(
            // One more than was timed: the first only warms up.
            format!("{program}: idle memory, after {} clusters", rounds + 1),
            "MB",
            megabytes,
            12.0,
        ));
    }
    table.push(Row::alone(
        "webhook: start to ready".to_owned(),
        "ms",
        webhook.measure(rounds)?,
        50.0,
    ));
    // Only one controller leads: the one of the cluster makes room for the one that is measured.
    runtime.block_on(start::make_room(&client))?;
    table.push(Row::alone(
        "controller: start to ready".to_owned(),
        "ms",
        controller.measure(rounds)?,
        50.0,
    ));
    Ok(table)
}

async fn connect(running: &Running) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(&running.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Client::try_from(config).context("the kubeconfig is not usable")
}

/// The middle one; of an even number, the mean of the middle two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(value) if sorted.len() % 2 == 1 => *value,
        Some(value) => f64::midpoint(sorted[middle - 1], *value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }
}

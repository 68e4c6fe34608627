//! `cargo xtask bench admission`: what one admission costs, beside a webhook on controller-runtime that checks the size only.
//!
//! Directly, as root: both programs pinned to one core and ahead of everything else, the same client on another, the same reviews over TLS on kept connections of
//! HTTP/1.1, which is what API servers use; all on loopback. Then as people see it: `kubectl create --dry-run=server` on a local
//! cluster of its own, in a namespace whose EtcdClusters are judged and in one whose are not.

mod load;
mod subject;
mod through;

use std::{fmt::Write as _, path::Path, time::Duration};

use anyhow::{Context, Result};

use self::{
    load::Load,
    subject::{Served, Subject},
};
use crate::{
    cache::{self, Cache},
    images, operator,
    programs::{self, Program},
    progress,
};

const CONNECTIONS: [usize; 3] = [1, 32, 256];
/// Goals, as shares of the yardstick: work for a second of CPU, the slow end of latency, memory.
const WORK: f64 = 4.0;
const SLOW_END: f64 = 1.0 / 3.0;
const MEMORY: f64 = 0.2;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Args {
    /// Seconds of load for each program and number of connections
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=60))]
    seconds: u8,
    /// Only the direct part, which needs no cluster
    #[arg(long)]
    direct: bool,
    /// How many times `kubectl create` is run in each of the two namespaces
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(3..=500))]
    creations: u16,
    /// Leave the cluster running
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(args: Args) -> Result<()> {
    let cache = Cache::open()?;
    let built = programs::ensure(&cache, &[Program::SizeWebhook, Program::AdmissionLoad])?;
    let yardstick = built.file(&Program::SizeWebhook)?;
    let client = built.file(&Program::AdmissionLoad)?;
    let image = images::operator_image()?;
    let folder = cache.build_logs().with_file_name("bench-admission");
    cache::remove(&folder)?;
    std::fs::create_dir_all(&folder)?;
    let measured = direct(
        &folder,
        &yardstick,
        &client,
        Duration::from_secs(args.seconds.into()),
    );
    cache::remove(&folder)?;
    println!("\n{}", report(&measured?));
    if !args.direct {
        println!(
            "{}",
            through::measure(&image, args.creations.into(), args.keep)?
        );
    }
    Ok(())
}

/// What was seen of one program under one load.
#[derive(Debug, Clone)]
struct Figures {
    connections: usize,
    load: Load,
    megabytes: f64,
}

#[derive(Debug)]
struct Both {
    ours: Vec<Figures>,
    yardstick: Vec<Figures>,
    /// Memory before the first request.
    fresh: (f64, f64),
}

fn direct(folder: &Path, yardstick: &Path, client: &Path, time: Duration) -> Result<Both> {
    let identity = subject::Identity::make(folder)?;
    let ours = Subject::ours(&operator::binaries().join("etcd-operator-webhook"), folder)?;
    let ours = ours.start(&identity).context("our webhook")?;
    let other = Subject::yardstick(yardstick)
        .start(&identity)
        .context("the yardstick")?;
    let fresh = (ours.megabytes()?, other.megabytes()?);
    let mut both = Both {
        ours: vec![],
        yardstick: vec![],
        fresh,
    };
    for connections in CONNECTIONS {
        for (served, figures) in [(&ours, &mut both.ours), (&other, &mut both.yardstick)] {
            progress::say(&format!("{} on {connections} connections", served.name));
            figures.push(one(served, &identity, client, connections, time)?);
        }
    }
    Ok(both)
}

fn one(
    served: &Served,
    identity: &subject::Identity,
    client: &Path,
    connections: usize,
    time: Duration,
) -> Result<Figures> {
    let load = load::run(client, served.address, identity, connections, time, || {
        served.cpu_seconds()
    })?;
    Ok(Figures {
        connections,
        megabytes: served.megabytes()?,
        load,
    })
}

fn report(both: &Both) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Direct, one core each, TLS on kept connections, UPDATE reviews of one EtcdCluster (ours judges all rules, controller-runtime the size only)\n"
    );
    let _ = writeln!(
        text,
        "{:>11}  {:18}  {:>9}  {:>13}  {:>8}  {:>8}  {:>8}  {:>6}",
        "connections", "webhook", "per s", "per CPU s", "p50 ms", "p99 ms", "p99.9 ms", "MB"
    );
    let _ = writeln!(
        text,
        "{:>11}  {:18}  {:>9}  {:>13}  {:>8}  {:>8}  {:>8}  {:>6.1}\n{:>11}  {:18}  {:>9}  {:>13}  {:>8}  {:>8}  {:>8}  {:>6.1}",
        "fresh",
        "etcd-operator",
        "",
        "",
        "",
        "",
        "",
        both.fresh.0,
        "fresh",
        "controller-runtime",
        "",
        "",
        "",
        "",
        "",
        both.fresh.1
    );
    for (ours, other) in both.ours.iter().zip(&both.yardstick) {
        for (name, figures) in [("etcd-operator", ours), ("controller-runtime", other)] {
            let _ = writeln!(
                text,
                "{:>11}  {:18}  {:>9.0}  {:>13.0}  {:>8.3}  {:>8.3}  {:>8.3}  {:>6.1}",
                figures.connections,
                name,
                figures.load.per_second(),
                figures.load.per_cpu_second(),
                figures.load.p50,
                figures.load.p99,
                figures.load.p999,
                figures.megabytes
            );
        }
    }
    let _ = writeln!(
        text,
        "\n{:>11}  {:24}  {:>7}  {:>8}",
        "connections", "ratio", "", "goal"
    );
    for (ours, other) in both.ours.iter().zip(&both.yardstick) {
        for (what, ratio, goal) in [
            (
                "requests per CPU second",
                ours.load.per_cpu_second() / other.load.per_cpu_second(),
                Goal::AtLeast(WORK),
            ),
            (
                "p99",
                ours.load.p99 / other.load.p99,
                Goal::AtMost(SLOW_END),
            ),
            (
                "memory",
                ours.megabytes / other.megabytes,
                Goal::AtMost(MEMORY),
            ),
        ] {
            let _ = writeln!(
                text,
                "{:>11}  {what:24}  {ratio:>5.2} ×  {:>8}  {}",
                ours.connections,
                goal.words(),
                if goal.is_met(ratio) { "ok" } else { "missed" }
            );
        }
    }
    text
}

#[derive(Debug, Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(goal) => ratio >= goal,
            Self::AtMost(goal) => ratio <= goal,
        }
    }

    fn words(self) -> String {
        match self {
            Self::AtLeast(goal) => format!("≥ {goal:.2} ×"),
            Self::AtMost(goal) => format!("≤ {goal:.2} ×"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_meets_no_goal() {
        for goal in [Goal::AtLeast(4.0), Goal::AtMost(0.2)] {
            assert!(!goal.is_met(f64::NAN));
        }
        assert!(Goal::AtLeast(4.0).is_met(4.0) && !Goal::AtLeast(4.0).is_met(3.9));
        assert!(Goal::AtMost(0.2).is_met(0.2) && !Goal::AtMost(0.2).is_met(0.21));
    }
}

//! Every rule before every guard. The examples are the api crate's own list, each of which breaks one rule: with the webhook in place it
//! refuses them; with the webhook gone the API server's CEL does; what CEL cannot say is held by the controller. In the same words, and
//! with no rule left over.

mod changes;
mod definition;
mod guards;
mod held;
mod running;
mod walker;

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, Outcome, without_admission, without_controller};

use self::{
    changes::Changes,
    definition::without_rules_in_the_definitions,
    guards::{by_the_api_server, by_the_webhook},
    held::held,
    running::Running,
    walker::Walker,
};

/// So many requests at once: the API server has better things to do as well.
const BESIDE_EACH_OTHER: usize = 8;
/// Each has rules of its own in its definition, and a controller that judges again.
const KINDS: [&str; 3] = ["EtcdCluster", "EtcdBackup", "EtcdRestore"];

/// Which guard stopped an example once the webhook was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stopped {
    ByApiServer,
    ByController,
}

pub(crate) async fn every_rule_stands_three_times(context: &Context) -> Outcome {
    let walkers = Walker::all()?;
    ensure!(walkers.len() > 100, "only {} examples", walkers.len());
    let running = Running::start(context, &walkers).await?;
    let changes = Changes::start(context, &walkers).await?;
    without_controller(context, by_the_webhook(context, &walkers)).await?;
    let mut stopped = BTreeMap::new();
    let unguarded = async {
        without_controller(context, async {
            stopped = by_the_api_server(context, &walkers).await?;
            Ok(())
        })
        .await?;
        for walker in &walkers {
            stopped
                .entry(walker.number)
                .or_insert(Stopped::ByController);
        }
        let let_in = |walker: &&Walker| stopped[&walker.number] == Stopped::ByController;
        let (versions, new): (Vec<_>, Vec<_>) = walkers
            .iter()
            .filter(let_in)
            .partition(|walker| walker.is_of_running_etcd());
        held(context, &new)
            .await
            .context("what the API server lets in")?;
        running
            .hold(&versions)
            .await
            .context("changes of version")?;
        let unruled = async {
            let known_to_cel: Vec<_> = walkers
                .iter()
                .filter(|walker| !walker.is_change())
                .filter(|walker| stopped[&walker.number] == Stopped::ByApiServer)
                .collect();
            held(context, &known_to_cel).await?;
            changes.hold().await
        };
        without_rules_in_the_definitions(context, &walkers, Box::pin(unruled))
            .await
            .context("with the rules of the definitions gone as well")
    };
    without_admission(context, Box::pin(unguarded)).await?;
    changes
        .put_back()
        .await
        .context("putting back, with every guard in its place")?;
    println!("{}", table(&walkers, &stopped)?);
    Ok(())
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
        };
        write!(text, "\n  {kind:<12} {count:>3} {guard}")?;
    }
    Ok(text)
}

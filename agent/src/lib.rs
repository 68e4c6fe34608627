//! The agent: takes, checks, fetches and restores snapshots, in Jobs and init containers.
//!
//! It is given one order and gives one report. It touches etcd (a snapshot, read only), one store, and the volumes of its own
//! pod; Kubernetes it does not know.

pub mod bolt;
mod disk;
mod etcd;
mod failure;
mod fetch;
mod install;
mod places;
mod progress;
mod prove;
mod report;
mod restore;
mod retention;
mod save;
mod snapshot;
pub mod status;
mod stop;
mod store;
mod tool;

use std::time::Duration;

use etcd_operator_api::orders::{Order, Report, SnapshotRef, Store};

pub use failure::Failure;
pub use places::{Places, ROOT};
pub use report::{give, line};
pub use stop::Stop;

/// How long a store that does not answer is asked again before the order fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Carries out orders.
#[derive(Debug)]
pub struct Agent {
    pub places: Places,
    pub patience: Duration,
    pub stop: Stop,
}

impl Agent {
    /// Does what the order says, or says why not.
    pub async fn obey(&self, order: Order) -> Report {
        let outcome = match order {
            // It looks after the signal itself: an upload has to be taken back.
            Order::Save {
                etcd,
                store,
                naming,
                owner,
                run,
                retention,
            } => {
                let wish = save::Wish {
                    etcd,
                    store,
                    naming,
                    owner,
                    run,
                    retention,
                };
                Box::pin(save::save(self, wish)).await
            }
            other => {
                tokio::select! {
                    outcome = Box::pin(self.carry_out(other)) => outcome,
                    () = self.stop.asked() => Err(Stop::failure()),
                }
            }
        };
        outcome.unwrap_or_else(|failure| Report::Failed {
            reason: failure.reason,
            message: failure.message,
        })
    }

    async fn carry_out(&self, order: Order) -> Result<Report, Failure> {
        match order {
            Order::Install { to } => install::install(&self.places.at(&to)),
            Order::Inspect { store, snapshot } => self.inspect(&store, &snapshot).await,
            Order::Prove {
                store,
                snapshot,
                tool,
            } => prove::prove(self, &store, &snapshot, tool).await,
            Order::Restore {
                store,
                snapshot,
                tool,
                member,
            } => restore::restore(self, &store, &snapshot, tool, &member).await,
            Order::Save { .. } => Err(Failure::internal("a backup is taken elsewhere")),
        }
    }

    async fn inspect(&self, store: &Store, snapshot: &SnapshotRef) -> Result<Report, Failure> {
        let opened = self.open(store)?;
        let file = self.places.scratch().join("snapshot.db");
        let depth = snapshot::Depth::Whole;
        let fetched = fetch::fetch(&opened, snapshot, &file, |size| size, depth).await;
        disk::remove(&file)?;
        Ok(Report::Sound {
            facts: fetched?.facts,
        })
    }

    fn open(&self, store: &Store) -> Result<store::Opened, Failure> {
        store::Opened::new(store, &self.places, self.patience)
    }
}

//! Two-signal shutdown: the first SIGTERM or SIGINT asks for a drain, the second ends the process at once.
//! Touches the signal handlers of the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Told once, to everyone who holds a `Drain`.
#[derive(Debug)]
pub struct DrainTrigger(watch::Sender<bool>);

/// Tells its holder when to stop taking new work. Clones hear the same word.
#[derive(Clone, Debug)]
pub struct Drain(watch::Receiver<bool>);

impl DrainTrigger {
    pub fn new() -> (Self, Drain) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Drain(receiver))
    }

    pub fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    /// Returns when the drain has started, also when it started long ago. A trigger that is gone can no longer be pulled by
    /// anyone, so that counts as started: waiting for ever would hang the shutdown.
    pub async fn started(&self) {
        let mut receiver = self.0.clone();
        let _gone = receiver.wait_for(|started| *started).await;
    }

    pub fn has_started(&self) -> bool {
        *self.0.borrow()
    }
}

/// The signals that end a process, registered when this is made so that none is missed while starting up.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn register() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Starts the drain at the first signal and returns at the second.
    pub async fn drain_then_abort(mut self, trigger: DrainTrigger) {
        let name = self.next().await;
        tracing::info!(signal = name, "draining; a second signal ends at once");
        trigger.start();
        let name = self.next().await;
        tracing::warn!(signal = name, "second signal, ending at once");
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_drain_is_heard_by_clones_made_before_and_after_it_started() {
        let (trigger, drain) = DrainTrigger::new();
        let before = drain.clone();
        assert!(!drain.has_started());
        trigger.start();
        before.started().await;
        drain.clone().started().await;
        assert!(drain.has_started());
    }

    #[tokio::test]
    async fn a_lost_trigger_counts_as_a_drain() {
        let (trigger, drain) = DrainTrigger::new();
        drop(trigger);
        drain.started().await;
    }
}

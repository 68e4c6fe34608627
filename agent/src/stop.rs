//! SIGTERM: what is under way is given up, and that is reported.

use etcd_operator_api::orders::FailureReason;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::failure::Failure;

/// Heard by whoever holds it.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// One that is pulled by hand.
    pub fn by_hand() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Pulled by SIGTERM or SIGINT.
    pub fn at_signals() -> std::io::Result<Self> {
        let (sender, stop) = Self::by_hand();
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            sender.send_replace(true);
            // The sender lives on: that it is gone would be no signal.
            sender.closed().await;
        });
        Ok(stop)
    }

    pub(crate) async fn asked(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|asked| *asked).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn failure() -> Failure {
        Failure::new(
            FailureReason::TimedOut,
            "it was told to end before it was done: its time was up, or its pod had to go",
        )
    }
}

//! A line in the log every few seconds, so that who waits sees that something happens.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const EVERY: Duration = Duration::from_secs(5);

/// Counts bytes; logs while it lives.
#[derive(Debug)]
pub(crate) struct Progress {
    done: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Progress {
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&done);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                let bytes = seen.load(Ordering::Relaxed);
                tracing::info!(bytes, total, "{what}");
            }
        });
        Self { done, task }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.task.abort();
    }
}

//! Answers on their way out. One that its peer does not take in time ends the connection, and until it is taken its room is not
//! given to another: a peer that asks and never reads, or opens no window of its stream, can make us hold no more than that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::OwnedSemaphorePermit;

/// The answers of one connection that have not all been handed to its socket.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsent(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    waiting: BTreeSet<u64>,
}

impl Unsent {
    /// The answer as bytes that are known to wait until the last of them is gone. `room` is what they take of the budget.
    pub(super) fn answer(&self, json: Vec<u8>, room: OwnedSemaphorePermit) -> Bytes {
        let mut numbers = self.numbers();
        let number = numbers.next;
        numbers.next += 1;
        numbers.waiting.insert(number);
        drop(numbers);
        Bytes::from_owner(Waiting {
            json,
            number,
            unsent: self.clone(),
            _room: room,
        })
    }

    /// Ends when an answer has waited for `limit`; it may have waited for twice that, since it is looked only so often.
    pub(super) async fn overdue(&self, limit: Duration) {
        let mut seen = 0;
        loop {
            tokio::time::sleep(limit).await;
            let numbers = self.numbers();
            if numbers.waiting.first().is_some_and(|oldest| *oldest < seen) {
                return;
            }
            seen = numbers.next;
        }
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiting {
    json: Vec<u8>,
    number: u64,
    unsent: Unsent,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.unsent.numbers().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::sync::Semaphore;

    const LIMIT: Duration = Duration::from_secs(10);

    async fn answer(unsent: &Unsent, budget: &Arc<Semaphore>) -> Bytes {
        let room = Arc::clone(budget).acquire_many_owned(4).await.unwrap();
        unsent.answer(b"{}".to_vec(), room)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_kept_is_overdue_however_many_others_are_taken() {
        let (unsent, budget) = (Unsent::default(), Arc::new(Semaphore::new(8)));
        let mut overdue = pin!(unsent.overdue(LIMIT));
        let kept = answer(&unsent, &budget).await;
        for _ in 0..9 {
            drop(answer(&unsent, &budget).await);
            let early = tokio::time::timeout(Duration::from_secs(1), &mut overdue).await;
            assert!(early.is_err());
        }
        assert_eq!(budget.available_permits(), 4);
        tokio::time::timeout(LIMIT * 2, overdue).await.unwrap();
        drop(kept);
        assert_eq!(budget.available_permits(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_are_taken_are_never_overdue() {
        let (unsent, budget) = (Unsent::default(), Arc::new(Semaphore::new(8)));
        let mut overdue = pin!(unsent.overdue(LIMIT));
        for _ in 0..100 {
            let taken = answer(&unsent, &budget).await;
            let early = tokio::time::timeout(LIMIT * 9 / 10, &mut overdue).await;
            assert!(early.is_err());
            drop(taken);
        }
    }
}

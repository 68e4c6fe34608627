//! Whose turn it is: how many passes are under way at once, how often clusters at rest are looked at, and how long one that fails is
//! left alone. Touches only the clock.
//!
//! A cluster that keeps us waiting (its members hang, it defragments for minutes) gives its place back after a moment and from then
//! on waits in a line of its own, until a pass over it is quick again. So one bad cluster, or a hundred, never slow the others.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

/// How many passes are under way at once.
pub(crate) const PLACES: usize = 16;
/// How many of the clusters that kept us waiting are looked at at once.
const SLOW_PLACES: usize = 8;
/// How long a pass may keep its place.
const QUICK: Duration = Duration::from_secs(2);
/// How many clusters at rest are looked at in a second, on average: what they cost together is bounded, however many they are.
const LOOKS_PER_SECOND: u32 = 6;

#[derive(Debug)]
pub(crate) struct Turns {
    places: Semaphore,
    slow_places: Semaphore,
    /// Those whose last pass was slow.
    slow: Mutex<HashSet<String>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            places: Semaphore::new(PLACES),
            slow_places: Semaphore::new(SLOW_PLACES),
            slow: Mutex::default(),
        }
    }
}

impl Turns {
    /// Makes one pass over this cluster when it is its turn; none after the end.
    pub(crate) async fn take<T>(&self, cluster: &str, pass: impl Future<Output = T>) -> Option<T> {
        let mut pass = pin!(pass);
        if self.is_slow(cluster) {
            let _place = self.slow_places.acquire().await.ok()?;
            let started = Instant::now();
            let outcome = pass.await;
            if started.elapsed() < QUICK {
                self.forget(cluster);
            }
            return Some(outcome);
        }
        let place = self.places.acquire().await.ok()?;
        if let Ok(outcome) = timeout(QUICK, &mut pass).await {
            return Some(outcome);
        }
        drop(place);
        self.slow().insert(cluster.to_owned());
        Some(pass.await)
    }

    /// The process is to end: what is under way is finished, and who still waits waits no longer.
    pub(crate) fn end(&self) {
        self.places.close();
        self.slow_places.close();
    }

    fn is_slow(&self, cluster: &str) -> bool {
        self.slow().contains(cluster)
    }

    /// It is gone, or no longer slow.
    pub(crate) fn forget(&self, cluster: &str) {
        self.slow().remove(cluster);
    }

    fn slow(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failures in a row, by cluster: each backs off on its own.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<HashMap<String, u32>>);

impl Failures {
    /// One more: how long the cluster is left alone, from half a second to a minute.
    pub(crate) fn one_more(&self, cluster: &str) -> Duration {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(cluster.to_owned()).or_default();
        let wait = Duration::from_millis(500) * 2_u32.pow(*count);
        *count = (*count + 1).min(7);
        wait
    }

    /// It is gone, or did not fail.
    pub(crate) fn forget(&self, cluster: &str) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.remove(cluster);
    }
}

/// When a cluster at rest is looked at again, one of so many. What happens to its pods wakes it at once; this look finds what only
/// etcd knows. Spread, so that clusters made in one go are not looked at in one go for ever after.
pub(crate) fn at_rest(look_again: Duration, clusters: usize) -> Duration {
    spread(look_again, clusters, RandomState::new().hash_one(0_u8))
}

fn spread(look_again: Duration, clusters: usize, chance: u64) -> Duration {
    let clusters = u32::try_from(clusters).unwrap_or(u32::MAX);
    let wait = look_again.max(Duration::from_secs(1) * clusters / LOOKS_PER_SECOND);
    // From nine to eleven tenths.
    let thousandths = 900 + u32::try_from(chance % 201).unwrap_or_default();
    wait * thousandths / 1000
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clusters_that_hang_do_not_keep_the_others_waiting() {
        let turns = Arc::new(Turns::default());
        let hang = || {
            for number in 0..100 {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move {
                    let name = format!("hangs-{number}");
                    turns.take(&name, pending::<()>()).await;
                });
            }
        };
        // The first time each of them is tried among the others; nobody knows yet.
        hang();
        tokio::time::sleep(QUICK * 20).await;
        // The second time they are known.
        hang();
        tokio::time::sleep(QUICK / 2).await;
        let started = Instant::now();
        turns.take("well", async {}).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_what_is_under_way_is_finished_and_nothing_else_begins() {
        let turns = Arc::new(Turns::default());
        let passes: Vec<_> = (0..PLACES + 10)
            .map(|number| {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move {
                    let pass = tokio::time::sleep(QUICK / 2);
                    turns.take(&format!("c-{number}"), pass).await
                })
            })
            .collect();
        tokio::time::sleep(QUICK / 4).await;
        turns.end();
        let mut finished = 0;
        for pass in passes {
            finished += usize::from(pass.await.unwrap().is_some());
        }
        assert_eq!(finished, PLACES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_is_quick_again_is_one_of_the_others_again() {
        let turns = Turns::default();
        turns.take("c", tokio::time::sleep(QUICK * 2)).await;
        assert!(turns.is_slow("c"));
        turns.take("c", async {}).await;
        assert!(!turns.is_slow("c"));
    }

    #[test]
    fn each_cluster_backs_off_on_its_own_and_up_to_a_minute() {
        let failures = Failures::default();
        let waits: Vec<Duration> = (0..20).map(|_| failures.one_more("bad")).collect();
        assert!(waits.is_sorted());
        assert_eq!(waits[0], Duration::from_millis(500));
        assert_eq!(waits[19], Duration::from_secs(64));
        assert_eq!(failures.one_more("other"), waits[0]);
        failures.forget("bad");
        assert_eq!(failures.one_more("bad"), waits[0]);
    }

    #[test]
    fn few_clusters_are_looked_at_often_and_many_only_so_many_in_a_second() {
        let often = Duration::from_secs(30);
        for chance in [0, 100, 200, u64::MAX] {
            let few = spread(often, 10, chance).as_secs_f64();
            assert!((27.0..=33.0).contains(&few), "{few}");
            let many = spread(often, 600, chance).as_secs_f64();
            assert!((90.0..=110.0).contains(&many), "{many}");
        }
        assert_ne!(spread(often, 10, 0), spread(often, 10, 200));
    }
}

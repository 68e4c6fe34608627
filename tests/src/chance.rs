//! Random moments for faults, from a seed that is printed: a run that failed can be played again.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

const VARIABLE: &str = "ETCD_OPERATOR_TEST_SEED";

/// SplitMix64: small, and good enough to choose moments and victims.
#[derive(Debug, Clone)]
pub struct Chance {
    seed: u64,
    state: u64,
}

impl Chance {
    /// From `ETCD_OPERATOR_TEST_SEED`, else a seed of its own.
    pub fn from_process() -> Self {
        let given = env::var(VARIABLE).ok().and_then(|seed| seed.parse().ok());
        Self::seeded(given.unwrap_or_else(|| RandomState::new().hash_one(VARIABLE)))
    }

    pub fn seeded(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// As a person types it to play the same again.
    pub fn told(&self) -> String {
        format!("{VARIABLE}={}", self.seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// A time up to `longest`.
    pub fn moment(&mut self, longest: Duration) -> Duration {
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.below(millis.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_plays_the_same_and_another_one_does_not() {
        let draw = |seed| {
            let mut chance = Chance::seeded(seed);
            (0..8).map(|_| chance.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn no_draw_reaches_its_bound() {
        let mut chance = Chance::seeded(1);
        assert!((0..1000).all(|_| chance.below(3) < 3));
        assert_eq!(chance.below(0), 0);
    }
}

//! How many members a cluster has: 1, 3, 5 or 7.

use std::fmt;

/// A legal number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterSize(u8);

/// The most members: beyond seven, every write waits for more members and nothing is gained.
pub const LARGEST: i32 = 7;

impl ClusterSize {
    /// Every legal size.
    pub const ALL: [Self; 4] = [Self(1), Self(3), Self(5), Self(7)];

    /// The size, where `members` is one.
    pub fn new(members: i32) -> Option<Self> {
        match members {
            1 => Some(Self(1)),
            3 => Some(Self(3)),
            5 => Some(Self(5)),
            7 => Some(Self(7)),
            _ => None,
        }
    }

    /// As a count.
    pub const fn members(self) -> usize {
        self.0 as usize
    }

    /// How many members must agree.
    pub const fn quorum(self) -> usize {
        self.members() / 2 + 1
    }

    /// How many members may fail.
    pub const fn tolerates(self) -> usize {
        self.members() - self.quorum()
    }
}

impl fmt::Display for ClusterSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an autoscaler's wish becomes: the next legal size up, and never more than the largest, so that it can neither make an
/// even cluster nor get stuck.
pub fn round_up_size(wish: i32) -> ClusterSize {
    ClusterSize::ALL
        .into_iter()
        .find(|size| i32::from(size.0) >= wish)
        .unwrap_or(ClusterSize(7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_odd_numbers_up_to_seven_are_sizes() {
        let legal: Vec<i32> = (-3..20)
            .filter(|n| ClusterSize::new(*n).is_some())
            .collect();
        assert_eq!(legal, [1, 3, 5, 7]);
    }

    #[test]
    fn an_even_size_would_tolerate_no_more_than_the_one_below() {
        let tolerance: Vec<_> = ClusterSize::ALL
            .iter()
            .map(|s| (s.quorum(), s.tolerates()))
            .collect();
        assert_eq!(tolerance, [(1, 0), (2, 1), (3, 2), (4, 3)]);
    }

    #[test]
    fn an_autoscalers_wish_is_rounded_up_and_capped() {
        for (wish, size) in [
            (i32::MIN, 1),
            (0, 1),
            (1, 1),
            (2, 3),
            (3, 3),
            (4, 5),
            (6, 7),
            (8, 7),
            (i32::MAX, 7),
        ] {
            assert_eq!(round_up_size(wish).members(), size, "{wish}");
        }
    }
}

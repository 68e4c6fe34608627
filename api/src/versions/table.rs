//! One row per minor: its state, its newest patch, what is wrong with older ones, what it can do.
//!
//! From etcd's changelogs and upgrade guides, and from what servers of each line answered when asked.

use super::{Minor, Version};

/// How etcd's maintainers treat a release line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Supported,
    EndOfLife,
}

/// A known defect in a range of patches, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    pub first: u32,
    pub last: u32,
    pub what: &'static str,
}

/// A release line.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    pub minor: Minor,
    pub state: State,
    /// The newest patch known when this operator was released; newer ones are fine.
    pub newest_patch: u32,
    /// Patches that must not run.
    pub bad: &'static [Defect],
    /// Patches that may run, with a warning; the worst first.
    pub doubtful: &'static [Defect],
    /// The oldest patch from which the step to the next minor is sound.
    pub floor_to_next: u32,
}

/// How a member is told to look for corruption when it starts and while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorruptionCheck {
    /// It cannot.
    None,
    /// `--experimental-initial-corrupt-check`.
    InitialFlag,
    /// `--experimental-initial-corrupt-check` and `--experimental-compact-hash-check-enabled`.
    InitialAndCompactHashFlags,
    /// `--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true`.
    FeatureGates,
}

/// What a version can do. A struct of plain facts: reading it needs no knowledge of etcd's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Each is one independent fact about a release.
pub struct Abilities {
    /// Members can join as learners. Before 3.4 etcd adds a voter instead, without an error.
    pub learners: bool,
    /// `--max-learners` exists.
    pub max_learners_flag: bool,
    /// MoveLeader is implemented.
    pub move_leader: bool,
    /// HashKV is implemented.
    pub hash_kv: bool,
    /// Status reports the raft applied index.
    pub applied_index: bool,
    /// `/livez` and `/readyz` are served; otherwise only `/health`.
    pub livez_readyz: bool,
    /// Asking `/health` is a read. Before, it is a request of the old store: it goes into the log, and 3.6 ends at once if it
    /// finds it there.
    pub health_is_read: bool,
    /// `--listen-metrics-urls` exists, so that probes need no client certificate.
    pub listen_metrics_urls: bool,
    /// The Downgrade API can take a running cluster one minor down.
    pub downgrade: bool,
    /// The image holds `etcdutl`; otherwise `ETCDCTL_API=3 etcdctl snapshot restore`.
    pub etcdutl: bool,
    /// `etcdutl snapshot restore` takes `--bump-revision` and `--mark-compacted`.
    pub bump_revision: bool,
    /// `--auto-compaction-mode` exists; before, retention is a whole number of hours.
    pub auto_compaction_mode: bool,
    /// `--log-level` and `--logger` exist.
    pub log_level: bool,
    /// A defragmentation is known to be sound whatever happens beside it.
    pub safe_defragment: bool,
    /// It can read requests of the old store, which etcd before 3.6 puts into its log at every start.
    pub reads_old_requests: bool,
    /// How corruption is looked for.
    pub corruption_check: CorruptionCheck,
}

const NOTHING: &[Defect] = &[];

const fn line(minor: u32, state: State, newest_patch: u32) -> Release {
    Release {
        minor: Minor::new(3, minor),
        state,
        newest_patch,
        bad: NOTHING,
        doubtful: NOTHING,
        floor_to_next: 0,
    }
}

const fn defect(first: u32, last: u32, what: &'static str) -> Defect {
    Defect { first, last, what }
}

/// Oldest first.
const RELEASES: [Release; 7] = [
    line(1, State::EndOfLife, 20),
    line(2, State::EndOfLife, 32),
    line(3, State::EndOfLife, 27),
    line(4, State::EndOfLife, 45),
    Release {
        bad: &[defect(0, 2, "can lose data when a member crashes")],
        doubtful: &[
            defect(0, 5, "can crash in a defragmentation"),
            defect(1, 19, "may forget that a learner was promoted"),
            defect(
                0,
                22,
                "can corrupt data when a snapshot meets a defragmentation",
            ),
            defect(0, 25, "can bring removed members back"),
            defect(0, 27, "has known authentication bypasses"),
            defect(0, 29, "cannot add a member while one is down"),
        ],
        // From older patches 3.6 can find removed members again.
        floor_to_next: 26,
        ..line(5, State::Supported, 35)
    },
    Release {
        doubtful: &[
            defect(0, 3, "can fail to replay its first start"),
            defect(
                0,
                4,
                "can corrupt data when a snapshot meets a defragmentation",
            ),
            defect(0, 8, "has known authentication bypasses"),
            defect(0, 10, "cannot add a member while one is down"),
        ],
        floor_to_next: 11,
        ..line(6, State::Supported, 16)
    },
    line(7, State::Supported, 3),
];

/// Every release line known, oldest first.
pub fn releases() -> &'static [Release] {
    &RELEASES
}

/// The row of a minor.
pub fn release(minor: Minor) -> Option<&'static Release> {
    RELEASES.iter().find(|release| release.minor == minor)
}

/// The oldest minor known.
pub const fn oldest() -> Minor {
    RELEASES[0].minor
}

/// The newest version known: what a cluster gets that names none.
pub const fn newest() -> Version {
    let last = &RELEASES[RELEASES.len() - 1];
    last.minor.patch(last.newest_patch)
}

impl Release {
    /// The newest patch known, as a version.
    pub const fn newest(&self) -> Version {
        self.minor.patch(self.newest_patch)
    }

    /// Why a patch of this line must not run.
    pub fn known_bad(&self, patch: u32) -> Option<&'static str> {
        named(self.bad, patch)
    }

    /// What a patch of this line suffers from.
    pub fn known_defect(&self, patch: u32) -> Option<&'static str> {
        named(self.doubtful, patch)
    }
}

fn named(defects: &'static [Defect], patch: u32) -> Option<&'static str> {
    defects
        .iter()
        .find(|defect| (defect.first..=defect.last).contains(&patch))
        .map(|defect| defect.what)
}

impl Version {
    /// What this version can do.
    pub fn abilities(self) -> Abilities {
        let from = |major, minor, patch| self >= Version::new(major, minor, patch);
        Abilities {
            learners: from(3, 4, 0),
            max_learners_flag: from(3, 6, 0),
            move_leader: from(3, 3, 0),
            hash_kv: from(3, 3, 0),
            applied_index: from(3, 4, 0),
            // Ported back to 3.4.29; 3.5 has them from 3.5.11.
            livez_readyz: from(3, 5, 11) || (from(3, 4, 29) && !from(3, 5, 0)),
            health_is_read: from(3, 5, 0),
            listen_metrics_urls: from(3, 3, 0),
            downgrade: from(3, 6, 0),
            etcdutl: from(3, 5, 0),
            bump_revision: from(3, 5, 10),
            auto_compaction_mode: from(3, 3, 0),
            log_level: from(3, 4, 0),
            reads_old_requests: !from(3, 7, 0),
            // Before, a snapshot that arrives meanwhile can corrupt the data.
            safe_defragment: from(3, 6, 5) || (from(3, 5, 23) && !from(3, 6, 0)),
            corruption_check: if from(3, 6, 0) {
                CorruptionCheck::FeatureGates
            } else if from(3, 5, 5) {
                CorruptionCheck::InitialAndCompactHashFlags
            } else if from(3, 3, 0) {
                CorruptionCheck::InitialFlag
            } else {
                CorruptionCheck::None
            },
        }
    }

    /// Where the official image of this version is found.
    pub fn default_repository(self) -> &'static str {
        if self < Version::new(3, 4, 0) {
            "quay.io/coreos/etcd"
        } else {
            "gcr.io/etcd-development/etcd"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::{FlagPresence, flag_presence};

    #[test]
    fn the_table_has_no_gap_and_is_oldest_first() {
        for pair in RELEASES.windows(2) {
            assert_eq!(pair[0].minor.next(), pair[1].minor);
        }
    }

    #[test]
    fn the_newest_patch_of_a_line_has_no_known_defect() {
        for release in releases() {
            assert_eq!(
                release.known_bad(release.newest_patch),
                None,
                "{}",
                release.minor
            );
            assert_eq!(
                release.known_defect(release.newest_patch),
                None,
                "{}",
                release.minor
            );
            assert!(release.floor_to_next <= release.newest_patch);
        }
    }

    #[test]
    fn the_version_default_is_supported() {
        assert_eq!(release(newest().minor()).unwrap().state, State::Supported);
    }

    #[test]
    fn abilities_agree_with_the_flags_each_line_has() {
        for release in releases() {
            let abilities = release.newest().abilities();
            let has = |flag| flag_presence(flag, release.minor) == FlagPresence::Present;
            assert_eq!(
                abilities.max_learners_flag,
                has("max-learners"),
                "{}",
                release.minor
            );
            assert_eq!(
                abilities.listen_metrics_urls,
                has("listen-metrics-urls"),
                "{}",
                release.minor
            );
            assert_eq!(
                abilities.auto_compaction_mode,
                has("auto-compaction-mode"),
                "{}",
                release.minor
            );
            assert_eq!(abilities.log_level, has("log-level"), "{}", release.minor);
            let check = abilities.corruption_check;
            assert_eq!(check == CorruptionCheck::FeatureGates, has("feature-gates"));
            if check == CorruptionCheck::InitialAndCompactHashFlags {
                assert!(has("experimental-compact-hash-check-enabled"));
            }
            if check == CorruptionCheck::InitialFlag {
                assert!(has("experimental-initial-corrupt-check"));
            }
        }
    }

    #[test]
    fn readyz_came_within_two_release_lines() {
        for (version, has) in [
            ("3.4.28", false),
            ("3.4.29", true),
            ("3.5.10", false),
            ("3.5.11", true),
            ("3.6.0", true),
            ("3.3.27", false),
        ] {
            let version: Version = version.parse().unwrap();
            assert_eq!(version.abilities().livez_readyz, has, "{version}");
        }
    }
}

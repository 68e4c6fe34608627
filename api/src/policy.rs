//! Which versions may run, and which step between versions is legal.
//!
//! etcd itself does not refuse a skipped minor, so this is the only guard. A change is judged against what *runs* (the
//! status), not against the previous spec: a typo corrected before anything moved must pass.

use std::fmt;

use crate::v1beta2::EtcdClusterStatus;
use crate::versions::{self, Minor, State, Version};

/// What the operator's owner decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The version of a cluster that names none.
    pub default_version: Version,
    /// What happens to versions that etcd's maintainers no longer patch.
    pub end_of_life: EndOfLife,
}

/// What happens to versions that etcd's maintainers no longer patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndOfLife {
    #[default]
    Warn,
    Deny,
}

/// Why a version cannot be the default.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDefault {
    #[error("the default etcd version must be of {oldest} to {newest}, not {0}", oldest = versions::oldest(), newest = versions::newest().minor())]
    Unknown(Version),
    #[error("the default etcd version must not be {0}: it {1}")]
    KnownBad(Version, &'static str),
    #[error("the default etcd version must not be {0}: etcd {minor} is end of life", minor = .0.minor())]
    EndOfLife(Version),
}

impl Policy {
    /// A policy whose default is sound: a cluster that names no version must not get one that is refused or warned of.
    pub fn new(default_version: Version, end_of_life: EndOfLife) -> Result<Self, BadDefault> {
        let Some(release) = versions::release(default_version.minor()) else {
            return Err(BadDefault::Unknown(default_version));
        };
        if let Some(defect) = release.known_bad(default_version.patch()) {
            return Err(BadDefault::KnownBad(default_version, defect));
        }
        if release.state == State::EndOfLife {
            return Err(BadDefault::EndOfLife(default_version));
        }
        Ok(Self {
            default_version,
            end_of_life,
        })
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            default_version: versions::newest(),
            end_of_life: EndOfLife::Warn,
        }
    }
}

/// The versions that run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    lowest: Version,
    highest: Version,
}

impl Running {
    /// All members on one version.
    pub const fn one(version: Version) -> Self {
        Self {
            lowest: version,
            highest: version,
        }
    }

    /// What a status says runs; nothing where no etcd has reported a version yet.
    pub fn of(status: Option<&EtcdClusterStatus>) -> Option<Self> {
        let status = status?;
        let reported = status
            .member_status
            .iter()
            .filter_map(|member| member.version.as_deref())
            .chain(status.current_version.as_deref())
            .filter_map(|text| text.parse().ok());
        Self::among(reported)
    }

    /// What a set of members runs.
    pub fn among(versions: impl IntoIterator<Item = Version>) -> Option<Self> {
        versions.into_iter().fold(None, |running, version| {
            Some(running.map_or(Self::one(version), |running: Self| Self {
                lowest: running.lowest.min(version),
                highest: running.highest.max(version),
            }))
        })
    }

    pub const fn lowest(self) -> Version {
        self.lowest
    }

    pub const fn highest(self) -> Version {
        self.highest
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lowest == self.highest {
            write!(f, "{}", self.lowest)
        } else {
            write!(f, "{} and {}", self.lowest, self.highest)
        }
    }
}

/// A legal change of version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionStep {
    /// What is asked for runs already.
    None,
    /// Within the minor.
    Patch,
    /// To the next minor.
    MinorUp,
    /// To the previous minor, through etcd's Downgrade API.
    MinorDown,
    /// Members are on two minors: on to the higher or back to the lower.
    FinishMixed,
}

/// Why a change of version is refused. The text names the next legal step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepRefusal {
    #[error("must not skip a minor: {running} runs, go to {next} first")]
    SkipsMinor { running: Version, next: Version },
    #[error(
        "must not step from {running} to {target_minor}: that step is sound from {floor} on, go to {next} first"
    )]
    BelowFloor {
        running: Version,
        target_minor: Minor,
        floor: Version,
        next: Version,
    },
    #[error("must go down one minor at a time: {running} runs, go to {next} first")]
    TooFarDown { running: Version, next: Version },
    #[error(
        "must not go down from {running}: etcd can go back a minor only from 3.6 on; stay on {stay} or restore a backup into a new cluster"
    )]
    CannotGoDown { running: Version, stay: Version },
    #[error(
        "must not change to {target} while members run {running}: finish with a {} version or go back to a {} version first",
        .running.highest.minor(), .running.lowest.minor()
    )]
    WhileMixed { running: Running, target: Version },
}

/// Judges the step from what runs to `target`, whose minor must be a known one.
pub fn judge_step(running: Running, target: Version) -> Result<VersionStep, StepRefusal> {
    let (low, high) = (running.lowest.minor(), running.highest.minor());
    let to = target.minor();
    if low != high {
        return if to == low || to == high {
            Ok(VersionStep::FinishMixed)
        } else {
            Err(StepRefusal::WhileMixed { running, target })
        };
    }
    if to == low {
        return Ok(if running == Running::one(target) {
            VersionStep::None
        } else {
            VersionStep::Patch
        });
    }
    if running.lowest != running.highest {
        return Err(StepRefusal::WhileMixed { running, target });
    }
    if to > low {
        judge_up(running.lowest, to)
    } else {
        judge_down(running.lowest, to)
    }
}

fn judge_up(running: Version, to: Minor) -> Result<VersionStep, StepRefusal> {
    let here = running.minor();
    let newest_here = newest_of(here, running);
    let floor = here.patch(versions::release(here).map_or(0, |release| release.floor_to_next));
    if running < floor {
        return Err(StepRefusal::BelowFloor {
            running,
            target_minor: here.next(),
            floor,
            next: newest_here,
        });
    }
    if to != here.next() {
        return Err(StepRefusal::SkipsMinor {
            running,
            next: newest_of(here.next(), running),
        });
    }
    Ok(VersionStep::MinorUp)
}

fn judge_down(running: Version, to: Minor) -> Result<VersionStep, StepRefusal> {
    let here = running.minor();
    if !running.abilities().downgrade {
        return Err(StepRefusal::CannotGoDown {
            running,
            stay: newest_of(here, running),
        });
    }
    match here.previous() {
        Some(previous) if previous == to => Ok(VersionStep::MinorDown),
        Some(previous) => Err(StepRefusal::TooFarDown {
            running,
            next: newest_of(previous, running),
        }),
        None => Err(StepRefusal::CannotGoDown {
            running,
            stay: newest_of(here, running),
        }),
    }
}

/// The newest patch known of a line; a running patch newer than the table stays itself.
fn newest_of(minor: Minor, running: Version) -> Version {
    let known = versions::release(minor).map_or(running, versions::Release::newest);
    if running.minor() == minor {
        known.max(running)
    } else {
        known
    }
}

/// The next version up from an end-of-life one, for the warning that names it.
pub fn next_step_up(version: Version) -> Option<Version> {
    let release = versions::release(version.minor())?;
    if version.patch() < release.floor_to_next {
        return Some(release.newest());
    }
    versions::release(version.minor().next()).map(versions::Release::newest)
}

/// The versions between this one and the first whose line is still patched, that one included: how far it is to a supported one.
pub fn way_to_supported(version: Version) -> Vec<Version> {
    std::iter::successors(Some(version), |version| {
        next_step_up(*version).filter(|_| is_end_of_life(*version))
    })
    .skip(1)
    .collect()
}

/// Whether etcd's maintainers still patch the line; an unknown line is not theirs to speak of.
pub fn is_end_of_life(version: Version) -> bool {
    versions::release(version.minor()).is_some_and(|release| release.state == State::EndOfLife)
}

#[cfg(test)]
mod tests {
    use super::*;
    use VersionStep::{FinishMixed, MinorDown, MinorUp, Patch};

    fn running(text: &str) -> Running {
        Running::among(text.split(' ').map(|v| v.parse().unwrap())).unwrap()
    }

    fn accepts(runs: &str, target: &str, step: VersionStep) {
        assert_eq!(
            judge_step(running(runs), target.parse().unwrap()),
            Ok(step),
            "{runs} -> {target}"
        );
    }

    fn rejects(runs: &str, target: &str, words: &str) {
        let refusal = judge_step(running(runs), target.parse().unwrap()).unwrap_err();
        assert!(
            refusal.to_string().contains(words),
            "{runs} -> {target}: {refusal}"
        );
    }

    #[test]
    fn any_patch_of_the_same_minor_is_legal() {
        accepts("3.6.16", "3.6.16", VersionStep::None);
        accepts("3.6.16", "3.6.10", Patch);
        accepts("3.6.10", "3.6.99", Patch);
        accepts("3.6.10 3.6.16", "3.6.12", Patch);
    }

    #[test]
    fn one_minor_up_is_legal_from_its_floor() {
        accepts("3.5.26", "3.6.16", MinorUp);
        accepts("3.6.11", "3.7.3", MinorUp);
        accepts("3.1.10", "3.2.13", MinorUp);
        accepts("3.4.31", "3.5.35", MinorUp);
        rejects(
            "3.5.25",
            "3.6.16",
            "sound from 3.5.26 on, go to 3.5.35 first",
        );
        rejects("3.6.10", "3.7.3", "go to 3.6.16 first");
    }

    #[test]
    fn a_skipped_minor_is_refused_and_the_next_step_named() {
        rejects("3.4.31", "3.6.16", "go to 3.5.35 first");
        rejects("3.5.35", "3.7.3", "go to 3.6.16 first");
        rejects("3.2.13", "3.7.3", "go to 3.3.27 first");
        // Below the floor even the first step needs a patch before it.
        rejects("3.5.10", "3.7.3", "go to 3.5.35 first");
    }

    #[test]
    fn one_minor_down_is_legal_where_etcd_can() {
        accepts("3.7.3", "3.6.16", MinorDown);
        accepts("3.6.16", "3.5.35", MinorDown);
        rejects("3.7.3", "3.5.35", "go to 3.6.16 first");
        rejects("3.5.35", "3.4.31", "stay on 3.5.35");
        rejects("3.2.13", "3.1.10", "stay on 3.2.32");
    }

    #[test]
    fn while_mixed_only_onward_or_back() {
        accepts("3.6.16 3.7.3", "3.7.3", FinishMixed);
        accepts("3.6.16 3.7.3", "3.6.16", FinishMixed);
        accepts("3.6.16 3.7.1", "3.7.3", FinishMixed);
        rejects(
            "3.6.16 3.7.3",
            "3.5.35",
            "finish with a 3.7 version or go back to a 3.6 version",
        );
        rejects(
            "3.6.12 3.6.16",
            "3.7.3",
            "while members run 3.6.12 and 3.6.16",
        );
    }

    #[test]
    fn an_end_of_life_version_is_so_many_legal_steps_from_a_supported_one() {
        let way = |from: &str| way_to_supported(from.parse().unwrap());
        for release in versions::releases() {
            let mut runs = release.newest();
            for next in way(&runs.to_string()) {
                assert_eq!(judge_step(Running::one(runs), next), Ok(MinorUp));
                runs = next;
            }
            assert!(!is_end_of_life(runs), "{runs}");
        }
        let words: Vec<String> = way("3.1.10").iter().map(ToString::to_string).collect();
        assert_eq!(words, ["3.2.32", "3.3.27", "3.4.45", "3.5.35"]);
        assert_eq!(way("3.5.35"), []);
        assert_eq!(way("3.9.0"), []);
    }

    #[test]
    fn a_patch_newer_than_the_table_is_its_own_newest() {
        rejects("3.5.40", "3.4.31", "stay on 3.5.40");
    }

    #[test]
    fn a_default_is_known_sound_and_alive() {
        let policy = |version: &str| Policy::new(version.parse().unwrap(), EndOfLife::Warn);
        assert!(policy("3.6.16").is_ok());
        assert!(matches!(policy("3.9.0"), Err(BadDefault::Unknown(_))));
        assert!(matches!(policy("3.5.1"), Err(BadDefault::KnownBad(..))));
        assert!(matches!(policy("3.4.45"), Err(BadDefault::EndOfLife(_))));
        let words = policy("3.4.45").unwrap_err().to_string();
        assert_eq!(
            words,
            "the default etcd version must not be 3.4.45: etcd 3.4 is end of life"
        );
    }

    #[test]
    fn nothing_runs_before_a_member_has_reported() {
        assert_eq!(Running::of(None), None);
        assert_eq!(Running::of(Some(&EtcdClusterStatus::default())), None);
        let coreos = EtcdClusterStatus {
            current_version: Some(String::new()),
            ..EtcdClusterStatus::default()
        };
        assert_eq!(Running::of(Some(&coreos)), None);
    }
}

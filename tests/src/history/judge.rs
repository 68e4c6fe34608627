//! Judges the history of one key: pure, no clock, no I/O.

use std::collections::BTreeMap;

/// A moment in the order of events that the clients themselves saw: a counter, not a clock.
pub type Tick = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// etcd said yes.
    Acknowledged { at: Tick, revision: i64 },
    /// etcd said that the precondition did not hold: this attempt never takes effect.
    Refused,
    /// No answer: it may have taken effect, or may yet.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub struct Write {
    pub value: u64,
    pub invoked: Tick,
    pub outcome: Outcome,
}

/// A linearizable read; value 0 is an absent key.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub value: u64,
    pub revision: i64,
    pub invoked: Tick,
    pub returned: Tick,
}

/// What etcd itself keeps of the key, one entry for each change.
#[derive(Debug, Clone, Copy)]
pub struct Committed {
    pub value: u64,
    pub revision: i64,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    pub committed: Vec<Committed>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// etcd acknowledged this write and no longer has it.
    LostWrite { value: u64, revision: i64 },
    /// etcd has, at this revision, a value that nobody wrote or that was refused.
    Phantom { value: u64, revision: i64 },
    /// A later revision holds an earlier value.
    OutOfOrder { revision: i64 },
    /// A read returned less than what was acknowledged, or read, before it began.
    StaleRead { value: u64, at_least: u64 },
    /// A read returned what had not been written yet when it ended.
    ReadFromFuture { value: u64 },
    /// A read that began after another ended saw an older revision of the store.
    RevisionWentBack { from: i64, to: i64 },
}

/// All that is wrong with the history; nothing means that it is linearizable and complete.
pub fn judge(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    judge_committed(history, &mut violations);
    judge_reads(history, &mut violations);
    violations
}

fn judge_committed(history: &History, violations: &mut Vec<Violation>) {
    let written: BTreeMap<u64, &Write> = history
        .writes
        .iter()
        .map(|write| (write.value, write))
        .collect();
    let kept: BTreeMap<u64, i64> = history
        .committed
        .iter()
        .map(|entry| (entry.value, entry.revision))
        .collect();
    for write in &history.writes {
        if let Outcome::Acknowledged { revision, .. } = write.outcome
            && kept.get(&write.value) != Some(&revision)
        {
            violations.push(Violation::LostWrite {
                value: write.value,
                revision,
            });
        }
    }
    for entry in &history.committed {
        if written
            .get(&entry.value)
            .is_none_or(|write| write.outcome == Outcome::Refused)
        {
            violations.push(Violation::Phantom {
                value: entry.value,
                revision: entry.revision,
            });
        }
    }
    for pair in history.committed.windows(2) {
        if pair[1].revision <= pair[0].revision || pair[1].value <= pair[0].value {
            violations.push(Violation::OutOfOrder {
                revision: pair[1].revision,
            });
        }
    }
}

fn judge_reads(history: &History, violations: &mut Vec<Violation>) {
    // By value, because a long history has tens of thousands of both.
    let written: BTreeMap<u64, &Write> = history
        .writes
        .iter()
        .map(|write| (write.value, write))
        .collect();
    // What is known to be in the store, in the order in which it became known: (when, value, revision).
    let mut known: Vec<(Tick, u64, i64)> = history
        .reads
        .iter()
        .map(|read| (read.returned, read.value, read.revision))
        .chain(
            history
                .writes
                .iter()
                .filter_map(|write| match write.outcome {
                    Outcome::Acknowledged { at, revision } => Some((at, write.value, revision)),
                    Outcome::Refused | Outcome::Unknown => None,
                }),
        )
        .collect();
    known.sort_unstable();
    let mut reads: Vec<&Read> = history.reads.iter().collect();
    reads.sort_unstable_by_key(|read| read.invoked);
    let mut upcoming = known.into_iter().peekable();
    let (mut value, mut revision) = (0, 0);
    for read in reads {
        while let Some((_, seen, at)) = upcoming.next_if(|(when, ..)| *when < read.invoked) {
            value = value.max(seen);
            revision = revision.max(at);
        }
        if read.value < value {
            violations.push(Violation::StaleRead {
                value: read.value,
                at_least: value,
            });
        }
        if read.revision < revision {
            violations.push(Violation::RevisionWentBack {
                from: revision,
                to: read.revision,
            });
        }
        let invoked = written.get(&read.value).is_some_and(|write| {
            write.invoked < read.returned && write.outcome != Outcome::Refused
        });
        if read.value != 0 && !invoked {
            violations.push(Violation::ReadFromFuture { value: read.value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(value: u64, invoked: Tick, at: Tick, revision: i64) -> Write {
        Write {
            value,
            invoked,
            outcome: Outcome::Acknowledged { at, revision },
        }
    }

    fn read(value: u64, revision: i64, invoked: Tick, returned: Tick) -> Read {
        Read {
            value,
            revision,
            invoked,
            returned,
        }
    }

    fn sound() -> History {
        History {
            writes: vec![
                acknowledged(1, 1, 2, 10),
                Write {
                    value: 2,
                    invoked: 3,
                    outcome: Outcome::Unknown,
                },
                Write {
                    value: 3,
                    invoked: 5,
                    outcome: Outcome::Refused,
                },
                acknowledged(4, 8, 9, 14),
            ],
            reads: vec![read(1, 10, 3, 4), read(2, 12, 6, 7), read(4, 14, 8, 12)],
            committed: vec![
                Committed {
                    value: 1,
                    revision: 10,
                },
                Committed {
                    value: 2,
                    revision: 12,
                },
                Committed {
                    value: 4,
                    revision: 14,
                },
            ],
        }
    }

    #[test]
    fn a_history_with_lost_answers_is_sound() {
        assert_eq!(judge(&sound()), []);
    }

    #[test]
    fn an_acknowledged_write_that_etcd_no_longer_has_is_lost() {
        let mut history = sound();
        history.committed.pop();
        assert_eq!(
            judge(&history),
            [Violation::LostWrite {
                value: 4,
                revision: 14
            }]
        );
    }

    #[test]
    fn a_write_kept_at_another_revision_than_acknowledged_is_lost() {
        let mut history = sound();
        history.committed[2].revision = 15;
        assert_eq!(
            judge(&history),
            [Violation::LostWrite {
                value: 4,
                revision: 14
            }]
        );
    }

    #[test]
    fn a_refused_value_in_the_store_is_a_phantom() {
        let mut history = sound();
        history.committed.insert(
            2,
            Committed {
                value: 3,
                revision: 13,
            },
        );
        assert_eq!(
            judge(&history),
            [Violation::Phantom {
                value: 3,
                revision: 13
            }]
        );
    }

    #[test]
    fn an_earlier_value_at_a_later_revision_is_out_of_order() {
        let mut history = sound();
        history.writes.push(Write {
            value: 5,
            invoked: 10,
            outcome: Outcome::Unknown,
        });
        history.committed.insert(
            1,
            Committed {
                value: 5,
                revision: 11,
            },
        );
        assert_eq!(judge(&history), [Violation::OutOfOrder { revision: 12 }]);
    }

    #[test]
    fn a_read_below_what_was_acknowledged_before_it_began_is_stale() {
        let mut history = sound();
        history.reads.push(read(2, 14, 10, 11));
        assert_eq!(
            judge(&history),
            [Violation::StaleRead {
                value: 2,
                at_least: 4
            }]
        );
    }

    #[test]
    fn a_read_beside_a_write_may_see_either() {
        let mut history = sound();
        history.reads.push(read(2, 13, 8, 10));
        assert_eq!(judge(&history), []);
    }

    #[test]
    fn a_read_of_what_nobody_wrote_yet_comes_from_the_future() {
        let mut history = sound();
        history.reads[0].value = 4;
        let violations = judge(&history);
        assert!(
            violations.contains(&Violation::ReadFromFuture { value: 4 }),
            "{violations:?}"
        );
    }

    #[test]
    fn a_store_that_goes_back_in_revision_is_caught() {
        let mut history = sound();
        history.reads.push(read(4, 13, 13, 14));
        assert_eq!(
            judge(&history),
            [Violation::RevisionWentBack { from: 14, to: 13 }]
        );
    }
}

//! Which snapshots are kept no longer. Pure.

use etcd_operator_api::orders::Retention;
use jiff::{SignedDuration, Timestamp};

/// A snapshot of ours in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) taken: Timestamp,
}

/// What is to go, oldest first. `just_saved` is sound and stays whatever clocks say; so does the newest.
pub(crate) fn outdated<'a>(
    held: &'a [Held],
    just_saved: &str,
    retention: Retention,
    now: Timestamp,
) -> Vec<&'a Held> {
    let mut newest_first: Vec<&Held> = held.iter().collect();
    newest_first.sort_by(|one, other| {
        other
            .taken
            .cmp(&one.taken)
            .then_with(|| other.name.cmp(&one.name))
    });
    let too_many = |place: usize| {
        retention
            .count
            .is_some_and(|count| place >= usize::try_from(count).unwrap_or(usize::MAX).max(1))
    };
    let too_old = |taken: Timestamp| {
        retention.age_seconds.is_some_and(|age| {
            let age = SignedDuration::from_secs(i64::try_from(age).unwrap_or(i64::MAX));
            now.duration_since(taken) > age
        })
    };
    let mut outdated: Vec<&Held> = newest_first
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(place, one)| one.name != just_saved && (too_many(*place) || too_old(one.taken)))
        .map(|(_, one)| *one)
        .collect();
    outdated.reverse();
    outdated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(ago: i64) -> Held {
        Held {
            name: format!("{ago}h"),
            taken: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1000 - ago),
        }
    }

    fn goes(
        held: &[Held],
        just_saved: &str,
        count: Option<u32>,
        age_seconds: Option<u64>,
    ) -> Vec<String> {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1000);
        let retention = Retention { count, age_seconds };
        let outdated = outdated(held, just_saved, retention, now);
        outdated.into_iter().map(|one| one.name.clone()).collect()
    }

    #[test]
    fn count_and_age_each_let_the_oldest_go_and_never_the_newest() {
        let held = [hours(3), hours(0), hours(1), hours(2)];
        assert_eq!(goes(&held, "0h", None, None), Vec::<String>::new());
        assert_eq!(goes(&held, "0h", Some(2), None), ["3h", "2h"]);
        assert_eq!(goes(&held, "0h", None, Some(5400)), ["3h", "2h"]);
        assert_eq!(goes(&held, "0h", Some(3), Some(5400)), ["3h", "2h"]);
        assert_eq!(goes(&held, "0h", Some(0), Some(0)), ["3h", "2h", "1h"]);
    }

    #[test]
    fn what_was_just_saved_stays_even_where_a_clock_went_back() {
        let held = [hours(5), hours(0)];
        assert_eq!(goes(&held, "5h", Some(1), Some(60)), Vec::<String>::new());
    }
}

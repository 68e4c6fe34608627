//! When runs are due. Pure: the clock is passed in.
//!
//! Of runs that were missed only the latest counts. A time that the clock of a time zone skips is when the clock has moved on, and
//! one that it shows twice is the first of the two: a nightly backup comes once every night.

use std::time::Duration;

use etcd_operator_api::{schedule::Schedule, validated::Recurrence};
use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, date},
    tz::TimeZone,
};

/// 29 February may be eight years away.
const FAR_AWAY_DAYS: usize = 366 * 9;

/// The latest time it was due, after `last` and not after `now`. `last` is when it was due before; the first time follows from
/// when the resource was made.
pub fn latest(
    recurrence: &Recurrence,
    created: Timestamp,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    match recurrence {
        Recurrence::Once => None,
        Recurrence::Every(interval) => {
            let first = first_of(*interval, created, last);
            let beyond = now.duration_since(first);
            if beyond.is_negative() {
                return None;
            }
            let interval = i128::from(seconds(*interval));
            let rounds = i128::from(beyond.as_secs()) / interval;
            let offset = i64::try_from(rounds * interval).ok()?;
            first.checked_add(SignedDuration::from_secs(offset)).ok()
        }
        Recurrence::Scheduled {
            schedule,
            time_zone,
        } => {
            let since = last.unwrap_or(created);
            let mut day = time_zone.to_datetime(now).date();
            let oldest = time_zone.to_datetime(since).date();
            while day >= oldest {
                let found = of_day(schedule, time_zone, day)
                    .filter(|at| *at > since && *at <= now)
                    .max();
                if found.is_some() {
                    return found;
                }
                day = day.yesterday().ok()?;
            }
            None
        }
    }
}

/// When it is due next, after `now`.
pub fn next(
    recurrence: &Recurrence,
    created: Timestamp,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    match recurrence {
        Recurrence::Once => None,
        Recurrence::Every(interval) => {
            let due = latest(recurrence, created, last, now);
            let then = match due {
                Some(due) => due.checked_add(whole(*interval)).ok()?,
                None => first_of(*interval, created, last),
            };
            Some(then)
        }
        Recurrence::Scheduled {
            schedule,
            time_zone,
        } => {
            let mut day = time_zone.to_datetime(now).date();
            for _ in 0..FAR_AWAY_DAYS {
                let found = of_day(schedule, time_zone, day)
                    .filter(|at| *at > now)
                    .min();
                if found.is_some() {
                    return found;
                }
                day = day.tomorrow().ok()?;
            }
            None
        }
    }
}

/// The first time that has not been obeyed: at once, then an interval after the last.
fn first_of(interval: Duration, created: Timestamp, last: Option<Timestamp>) -> Timestamp {
    last.map_or(created, |last| {
        last.checked_add(whole(interval)).unwrap_or(Timestamp::MAX)
    })
}

fn seconds(interval: Duration) -> i64 {
    i64::try_from(interval.as_secs()).unwrap_or(i64::MAX).max(1)
}

fn whole(interval: Duration) -> SignedDuration {
    SignedDuration::from_secs(seconds(interval))
}

/// Every time the schedule comes true on one day of that zone.
fn of_day<'a>(
    schedule: &'a Schedule,
    zone: &'a TimeZone,
    day: Date,
) -> impl Iterator<Item = Timestamp> + 'a {
    let small = |number: i8| u8::try_from(number).unwrap_or_default();
    let (month, of_month) = (small(day.month()), small(day.day()));
    let weekday = small(day.weekday().to_sunday_zero_offset());
    (0..24_u8)
        .flat_map(|hour| (0..60_u8).map(move |minute| (hour, minute)))
        .filter(move |(hour, minute)| schedule.at(month, of_month, weekday, *hour, *minute))
        .filter_map(move |(hour, minute)| {
            let (hour, minute) = (i8::try_from(hour).ok()?, i8::try_from(minute).ok()?);
            let time = date(day.year(), day.month(), day.day()).at(hour, minute, 0, 0);
            Some(zone.to_ambiguous_zoned(time).compatible().ok()?.timestamp())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn scheduled(schedule: &str, zone: &str) -> Recurrence {
        Recurrence::Scheduled {
            schedule: schedule.parse().unwrap(),
            time_zone: TimeZone::get(zone).unwrap(),
        }
    }

    const CREATED: &str = "2026-03-01T00:00:30Z";

    #[test]
    fn an_interval_begins_at_once_and_of_missed_runs_only_the_latest_counts() {
        let hourly = Recurrence::Every(Duration::from_hours(1));
        let due = |last: Option<&str>, now: &str| {
            latest(&hourly, at(CREATED), last.map(at), at(now)).map(|at| at.to_string())
        };
        assert_eq!(due(None, CREATED).as_deref(), Some(CREATED));
        assert_eq!(due(Some(CREATED), "2026-03-01T01:00:29Z"), None);
        assert_eq!(
            due(Some(CREATED), "2026-03-01T01:00:30Z").as_deref(),
            Some("2026-03-01T01:00:30Z")
        );
        assert_eq!(
            due(Some(CREATED), "2026-03-01T05:59:00Z").as_deref(),
            Some("2026-03-01T05:00:30Z")
        );
        assert_eq!(
            next(
                &hourly,
                at(CREATED),
                Some(at(CREATED)),
                at("2026-03-01T00:10:00Z")
            ),
            Some(at("2026-03-01T01:00:30Z"))
        );
    }

    #[test]
    fn a_schedule_waits_for_its_time_in_its_zone() {
        let nightly = scheduled("30 2 * * *", "Europe/Berlin");
        let created = at(CREATED);
        let due = |last: Option<&str>, now: &str| {
            latest(&nightly, created, last.map(at), at(now)).map(|at| at.to_string())
        };
        assert_eq!(due(None, "2026-03-01T01:29:59Z"), None);
        assert_eq!(
            due(None, "2026-03-01T01:30:00Z").as_deref(),
            Some("2026-03-01T01:30:00Z")
        );
        assert_eq!(
            due(Some("2026-03-01T01:30:00Z"), "2026-03-01T23:00:00Z"),
            None
        );
        // Days were missed: the latest alone.
        assert_eq!(
            due(Some("2026-03-01T01:30:00Z"), "2026-03-09T12:00:00Z").as_deref(),
            Some("2026-03-09T01:30:00Z")
        );
        assert_eq!(
            next(&nightly, created, None, at("2026-03-01T12:00:00Z")),
            Some(at("2026-03-02T01:30:00Z"))
        );
    }

    #[test]
    fn the_nights_on_which_clocks_change_have_one_backup_each() {
        let nightly = scheduled("30 2 * * *", "Europe/Berlin");
        let nights = |from: &str, to: &str| {
            let (mut now, end, mut found) = (at(from), at(to), Vec::new());
            while let Some(then) = next(&nightly, at(CREATED), None, now).filter(|at| *at < end) {
                found.push(then.to_string());
                now = then;
            }
            found
        };
        assert_eq!(
            nights("2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z"),
            ["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(
            nights("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
    }

    #[test]
    fn a_leap_day_is_found_though_it_is_years_away() {
        let leap = scheduled("0 0 29 2 *", "UTC");
        assert_eq!(
            next(&leap, at(CREATED), None, at(CREATED)),
            Some(at("2028-02-29T00:00:00Z"))
        );
        assert_eq!(latest(&leap, at(CREATED), None, at(CREATED)), None);
    }

    #[test]
    fn what_runs_once_is_never_due_by_the_clock() {
        assert_eq!(
            latest(&Recurrence::Once, at(CREATED), None, at(CREATED)),
            None
        );
        assert_eq!(
            next(&Recurrence::Once, at(CREATED), None, at(CREATED)),
            None
        );
    }
}

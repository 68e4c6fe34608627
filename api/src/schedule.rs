//! Schedules as a CronJob writes them: five fields, or a word such as `@daily`.
//!
//! The grammar is that of Kubernetes' CronJob (robfig/cron's standard parser), so that what works there works here. Read into
//! sets of numbers; no clock, no time zone.

use std::str::FromStr;

/// A schedule that comes true now and then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
    /// Whether day and weekday both say something: then either suffices, as in every cron.
    either_day: bool,
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotASchedule {
    #[error("neither five fields nor a word such as @daily")]
    Shape,
    #[error("`{found}` is no {field}")]
    Field {
        /// `minute`, `hour`, `day of month`, `month` or `day of week`.
        field: &'static str,
        least: u8,
        most: u8,
        found: String,
    },
    #[error("no month has such a day")]
    Never,
}

/// The words that stand for five fields.
pub(crate) const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// February has 29 in some years.
const LONGEST_MONTHS: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// One field's rules.
struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    words: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field::of("minute", 0, 59, &[]),
    Field::of("hour", 0, 23, &[]),
    Field::of("day of month", 1, 31, &[]),
    Field::of("month", 1, 12, &MONTHS),
    Field::of("day of week", 0, 6, &WEEKDAYS),
];

/// Numbers below 64, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    bits: u64,
    /// Written as `*` or `?`.
    all: bool,
}

impl Set {
    const fn has(self, number: u8) -> bool {
        number < 64 && self.bits >> number & 1 == 1
    }
}

impl Field {
    const fn of(name: &'static str, least: u8, most: u8, words: &'static [&'static str]) -> Self {
        Self {
            name,
            least,
            most,
            words,
        }
    }

    fn read(&self, text: &str) -> Result<Set, NotASchedule> {
        let mut set = Set {
            bits: 0,
            all: false,
        };
        for part in text.split(',') {
            let (numbers, all) = self.part(part).ok_or_else(|| NotASchedule::Field {
                field: self.name,
                least: self.least,
                most: self.most,
                found: part.to_owned(),
            })?;
            set.bits |= numbers;
            set.all |= all;
        }
        Ok(set)
    }

    /// `*`, `5`, `1-5`, each also with `/step`.
    fn part(&self, text: &str) -> Option<(u64, bool)> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(number(step).filter(|step| *step > 0)?)),
            None => (text, None),
        };
        let all = matches!(range, "*" | "?");
        let (first, last) = if all {
            (self.least, self.most)
        } else if let Some((first, last)) = range.split_once('-') {
            (self.value(first)?, self.value(last)?)
        } else {
            let first = self.value(range)?;
            // `5/15` means from 5 on.
            (first, if step.is_some() { self.most } else { first })
        };
        if first < self.least || last > self.most || first > last {
            return None;
        }
        let numbers = (first..=last)
            .step_by(usize::from(step.unwrap_or(1)))
            .fold(0, |bits, number| bits | 1 << number);
        // A step makes a choice, so that `*/2` no longer means every day.
        Some((numbers, all && step.is_none_or(|step| step == 1)))
    }

    fn value(&self, text: &str) -> Option<u8> {
        let word = text.to_ascii_lowercase();
        let position = self.words.iter().position(|name| *name == word);
        match position {
            Some(position) => u8::try_from(position).ok()?.checked_add(self.least),
            None => number(text),
        }
    }
}

/// Digits alone: Rust would also take a `+`.
fn number(text: &str) -> Option<u8> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

impl FromStr for Schedule {
    type Err = NotASchedule;

    fn from_str(text: &str) -> Result<Self, NotASchedule> {
        let text = text.trim();
        let fields = WORDS
            .iter()
            .find(|(word, _)| *word == text)
            .map_or(text, |(_, fields)| fields);
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(NotASchedule::Shape);
        };
        let [minutes, hours, days, months, weekdays] = &FIELDS;
        let schedule = Self {
            minutes: minutes.read(minute)?,
            hours: hours.read(hour)?,
            days: days.read(day)?,
            months: months.read(month)?,
            weekdays: weekdays.read(weekday)?,
            either_day: false,
        };
        let either_day = !schedule.days.all && !schedule.weekdays.all;
        let schedule = Self {
            either_day,
            ..schedule
        };
        if schedule.comes_true() {
            Ok(schedule)
        } else {
            Err(NotASchedule::Never)
        }
    }
}

impl Schedule {
    /// Whether it comes true in this minute; months from 1, weekdays from Sunday, which is 0.
    pub const fn at(&self, month: u8, day: u8, weekday: u8, hour: u8, minute: u8) -> bool {
        let (by_day, by_weekday) = (self.days.has(day), self.weekdays.has(weekday));
        let day_fits = if self.either_day {
            by_day || by_weekday
        } else {
            by_day && by_weekday
        };
        day_fits && self.months.has(month) && self.hours.has(hour) && self.minutes.has(minute)
    }

    /// Every date falls on every weekday in some year, but 30 February never comes.
    fn comes_true(&self) -> bool {
        self.either_day
            || (1..=12u8).zip(LONGEST_MONTHS).any(|(month, longest)| {
                self.months.has(month) && (1..=longest).any(|day| self.days.has(day))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Schedule, NotASchedule> {
        text.parse()
    }

    #[test]
    fn reads_what_a_cronjob_reads() {
        for text in [
            "0 3 * * *",
            "*/15 0-6,22-23 1,15 JAN-mar Mon-Fri",
            "5/20 * ? * ?",
            "@hourly",
            "@daily",
            " 0  0\t* * 0 ",
            "0 0 29 2 *",
            "0 0 30 2 1",
        ] {
            assert!(read(text).is_ok(), "{text}: {:?}", read(text));
        }
    }

    #[test]
    fn refuses_what_a_cronjob_refuses() {
        for text in [
            "",
            "daily",
            "@every 1h",
            "@reboot",
            "0 3 * *",
            "0 0 3 * * *",
            "TZ=UTC 0 3 * * *",
        ] {
            assert_eq!(read(text), Err(NotASchedule::Shape), "{text}");
        }
        for (text, name) in [
            ("60 * * * *", "minute"),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day of month"),
            ("* * * 13 *", "month"),
            ("* * * foo *", "month"),
            ("* * * * 7", "day of week"),
            ("5-1 * * * *", "minute"),
            ("*/0 * * * *", "minute"),
            ("+5 * * * *", "minute"),
            ("1,,2 * * * *", "minute"),
            ("-1 * * * *", "minute"),
            ("999 * * * *", "minute"),
            ("ä * * * *", "minute"),
        ] {
            match read(text) {
                Err(NotASchedule::Field { field, .. }) => assert_eq!(field, name, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_day_that_never_comes_is_no_schedule() {
        for text in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            assert_eq!(read(text), Err(NotASchedule::Never), "{text}");
        }
    }

    #[test]
    fn comes_true_when_it_says() {
        let nightly = read("30 3 * * *").unwrap();
        assert!(nightly.at(7, 14, 2, 3, 30) && !nightly.at(7, 14, 2, 3, 31));
        let quarters = read("*/15 * * * *").unwrap();
        assert_eq!((0..60).filter(|m| quarters.at(1, 1, 0, 0, *m)).count(), 4);
        let mondays = read("0 0 * * MON").unwrap();
        assert!(mondays.at(1, 1, 1, 0, 0) && !mondays.at(1, 1, 2, 0, 0));
        // Both said: either suffices.
        let either = read("0 0 13 * 5").unwrap();
        assert!(either.at(1, 13, 0, 0, 0) && either.at(1, 1, 5, 0, 0));
        assert!(!either.at(1, 1, 4, 0, 0));
        assert_eq!(read("@midnight").unwrap(), read("0 0 * * *").unwrap());
    }
}

//! When an EtcdBackup runs, for how long, and what is kept of it.

use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason, violation};
use super::text::{Text, literal};
use crate::defaults::{TIME_ZONE, TIMEOUT_SECONDS};
use crate::schedule::{NotASchedule, Schedule, WORDS};
use crate::v1beta2::{BackupPolicy, EtcdBackupSpec};
use crate::validated::{Recurrence, Retention};

const SCHEDULE: &str = "spec.schedule";
const ZONE: &str = "spec.timeZone";
const TIMEOUT: &str = "spec.backupPolicy.timeoutInSecond";
const INTERVAL: &str = "spec.backupPolicy.backupIntervalInSecond";
const MAX_BACKUPS: &str = "spec.backupPolicy.maxBackups";
const COUNT: &str = "spec.retention.count";
const AGE: &str = "spec.retention.age";

const LONGEST_TIMEOUT: i64 = 604_800;
const SHORTEST_INTERVAL: i64 = 10;
const LONGEST_INTERVAL: i64 = 31_536_000;
const MOST_BACKUPS: i64 = 10_000;
const SHORTEST_AGE: Duration = Duration::from_hours(1);

const SHAPE: Text = Text(
    "must be five fields (minute, hour, day of month, month, day of week) as a CronJob has them, such as `0 3 * * *`, or one of @hourly, @daily, @weekly, @monthly and @yearly",
);
const FIELD: Text = Text("must have a {field} from {least} to {most}, not `{found}`");
const NEVER: Text = Text("must name a day that comes: no month it names has such a day");
const SCHEDULE_TWICE: Text = Text(
    "must not be set together with `backupPolicy.backupIntervalInSecond`: keep `schedule`, or keep the interval",
);
const ZONE_UNKNOWN: Text = Text("must be a time zone of the IANA database, such as Europe/Berlin");
const ZONE_UNUSED: Text = Text("must not be set without `schedule`: an interval has no time zone");
const TIMEOUT_BOUNDS: Text = Text("must be 0 to 604800 seconds; 0 means the default, 3600");
const INTERVAL_BOUNDS: Text = Text("must be 0, which means once, or 10 to 31536000 seconds");
const MAX_BACKUPS_BOUNDS: Text = Text("must be 0 to 10000; 0 keeps all");
const COUNT_BOUNDS: Text = Text("must be 1 to 10000; leave it out to keep all");
const RETENTION_TWICE: Text = Text(
    "must not be set together with `backupPolicy.maxBackups`: keep `retention.count`, or keep the other",
);
const NOT_AN_AGE: Text = Text("must be a duration in hours, such as 720h for 30 days");
const AGE_TOO_SHORT: Text = Text("must be at least 1h, so that a restore finds something");

/// How often, or what is wrong with it.
pub(super) fn read(spec: &EtcdBackupSpec, judgement: &mut Judgement) -> Option<Recurrence> {
    let interval = spec
        .backup_policy
        .as_ref()
        .and_then(|policy| policy.backup_interval_in_second)
        .unwrap_or_default();
    if interval != 0 && !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
        judgement.refuse(INTERVAL, Reason::OutOfBounds, INTERVAL_BOUNDS.0);
        return None;
    }
    let Some(schedule) = &spec.schedule else {
        if spec.time_zone.is_some() {
            judgement.refuse(ZONE, Reason::TimeZoneUnused, ZONE_UNUSED.0);
        }
        if (1..60).contains(&interval) {
            judgement.warn(INTERVAL, "each run is a Pod and a whole snapshot");
        }
        return Some(match u64::try_from(interval) {
            Ok(seconds) if seconds > 0 => Recurrence::Every(Duration::from_secs(seconds)),
            _ => Recurrence::Once,
        });
    };
    if interval != 0 {
        judgement.refuse(SCHEDULE, Reason::ScheduleTwice, SCHEDULE_TWICE.0);
    }
    let time_zone = read_zone(spec.time_zone.as_deref().unwrap_or(TIME_ZONE), judgement);
    let schedule = read_schedule(schedule, judgement);
    Some(Recurrence::Scheduled {
        schedule: schedule?,
        time_zone: time_zone?,
    })
}

fn read_schedule(text: &str, judgement: &mut Judgement) -> Option<Schedule> {
    match text.parse() {
        Ok(schedule) => return Some(schedule),
        Err(NotASchedule::Shape) => {
            judgement.refuse(SCHEDULE, Reason::ScheduleInvalid, SHAPE.0);
        }
        Err(NotASchedule::Field {
            field,
            least,
            most,
            found,
        }) => {
            let message = FIELD.fill(&[
                ("field", &field),
                ("least", &least),
                ("most", &most),
                ("found", &found),
            ]);
            judgement.refuse(SCHEDULE, Reason::ScheduleInvalid, message);
        }
        Err(NotASchedule::Never) => {
            judgement.refuse(SCHEDULE, Reason::ScheduleNever, NEVER.0);
        }
    }
    None
}

fn read_zone(name: &str, judgement: &mut Judgement) -> Option<TimeZone> {
    let zone = TimeZoneDatabase::bundled().get(name).ok();
    if zone.is_none() {
        judgement.refuse(ZONE, Reason::TimeZoneUnknown, ZONE_UNKNOWN.0);
    }
    zone
}

pub(super) fn read_timeout(
    policy: Option<&BackupPolicy>,
    judgement: &mut Judgement,
) -> Option<Duration> {
    let said = policy.and_then(|policy| policy.timeout_in_second);
    match said.unwrap_or_default() {
        0 => u64::try_from(TIMEOUT_SECONDS).ok().map(Duration::from_secs),
        seconds if (1..=LONGEST_TIMEOUT).contains(&seconds) => {
            u64::try_from(seconds).ok().map(Duration::from_secs)
        }
        _ => {
            judgement.refuse(TIMEOUT, Reason::OutOfBounds, TIMEOUT_BOUNDS.0);
            None
        }
    }
}

/// What is kept, or what is wrong with it.
pub(super) fn read_retention(
    spec: &EtcdBackupSpec,
    recurrence: Option<&Recurrence>,
    judgement: &mut Judgement,
) -> Option<Retention> {
    let by_policy = spec
        .backup_policy
        .as_ref()
        .and_then(|policy| policy.max_backups)
        .unwrap_or_default();
    let retention = spec.retention.as_ref();
    let by_field = retention.and_then(|retention| retention.count);
    if !(0..=MOST_BACKUPS).contains(&by_policy) {
        judgement.refuse(MAX_BACKUPS, Reason::OutOfBounds, MAX_BACKUPS_BOUNDS.0);
        return None;
    }
    if by_field.is_some_and(|count| !(1..=MOST_BACKUPS).contains(&count)) {
        judgement.refuse(COUNT, Reason::OutOfBounds, COUNT_BOUNDS.0);
        return None;
    }
    if by_field.is_some() && by_policy != 0 {
        judgement.refuse(COUNT, Reason::RetentionTwice, RETENTION_TWICE.0);
        return None;
    }
    let age = match retention.and_then(|retention| retention.age.as_ref()) {
        Some(text) => Some(
            judgement.keep(
                text.parse()
                    .map_err(|_| violation(AGE, Reason::DurationInvalid, NOT_AN_AGE.0)),
            )?,
        ),
        None => None,
    };
    if age.is_some_and(|age| age < SHORTEST_AGE) {
        judgement.refuse(AGE, Reason::RetentionTooShort, AGE_TOO_SHORT.0);
    }
    let count = by_field.or(Some(by_policy).filter(|count| *count > 0));
    let kept = Retention {
        count: count.and_then(|count| u64::try_from(count).ok()),
        age,
    };
    match recurrence {
        Some(Recurrence::Once) if kept != Retention::default() => {
            judgement.warn("spec.retention", "means nothing to a backup that runs once");
        }
        Some(Recurrence::Every(_) | Recurrence::Scheduled { .. })
            if kept == Retention::default() =>
        {
            judgement.warn("spec.retention", "unset: the store grows without end");
        }
        _ => {}
    }
    Some(kept)
}

pub(super) fn cel() -> Vec<CelRule> {
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    let field = "[-0-9A-Za-z*?/,]+";
    let shape = format!(r"^\s*({}|{field}(\s+{field}){{4}})\s*$", words.join("|"));
    let interval = "has(self.backupPolicy) && has(self.backupPolicy.backupIntervalInSecond) && \
                    self.backupPolicy.backupIntervalInSecond != 0";
    let max_backups = "has(self.backupPolicy) && has(self.backupPolicy.maxBackups) && self.backupPolicy.maxBackups != 0";
    let between = |least: i64, most: i64| format!("self >= {least} && self <= {most}");
    vec![
        rule(
            Reason::ScheduleInvalid,
            SCHEDULE,
            format!("self.matches({})", literal(&shape)),
            SHAPE,
        ),
        rule(
            Reason::ScheduleTwice,
            "spec",
            format!("!has(self.schedule) || !({interval})"),
            SCHEDULE_TWICE,
        )
        .field(".schedule"),
        rule(
            Reason::TimeZoneUnused,
            "spec",
            "!has(self.timeZone) || has(self.schedule)",
            ZONE_UNUSED,
        )
        .field(".timeZone"),
        rule(
            Reason::TimeZoneUnknown,
            ZONE,
            "self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')",
            ZONE_UNKNOWN,
        ),
        rule(
            Reason::OutOfBounds,
            TIMEOUT,
            between(0, LONGEST_TIMEOUT),
            TIMEOUT_BOUNDS,
        ),
        rule(
            Reason::OutOfBounds,
            INTERVAL,
            format!(
                "self == 0 || ({})",
                between(SHORTEST_INTERVAL, LONGEST_INTERVAL)
            ),
            INTERVAL_BOUNDS,
        ),
        rule(
            Reason::OutOfBounds,
            MAX_BACKUPS,
            between(0, MOST_BACKUPS),
            MAX_BACKUPS_BOUNDS,
        ),
        rule(
            Reason::OutOfBounds,
            COUNT,
            between(1, MOST_BACKUPS),
            COUNT_BOUNDS,
        ),
        rule(
            Reason::RetentionTwice,
            "spec",
            format!("!has(self.retention) || !has(self.retention.count) || !({max_backups})"),
            RETENTION_TWICE,
        )
        .field(".retention.count"),
        rule(
            Reason::DurationInvalid,
            AGE,
            super::duration_cel("self"),
            NOT_AN_AGE,
        ),
        rule(
            Reason::RetentionTooShort,
            AGE,
            format!(
                "!{} || duration(self) >= duration('1h')",
                super::duration_cel("self")
            ),
            AGE_TOO_SHORT,
        ),
    ]
}

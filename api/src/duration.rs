//! Durations as people write them: Go's form, `100ms`, `1s`, `1h30m`.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A duration as written. Kept as text, so that what the user wrote is what is stored; `parse` gives it meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct GoDuration(pub String);

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration such as `100ms`, `1s` or `1h30m`")]
pub struct NotADuration {
    text: String,
}

impl GoDuration {
    /// What the text means. Whole numbers with the units `ms`, `s`, `m`, `h`, largest first or in any order, as Go reads
    /// them; fractions and signs are not accepted, because no setting of ours needs them.
    pub fn parse(&self) -> Result<Duration, NotADuration> {
        parse(&self.0).ok_or_else(|| NotADuration {
            text: self.0.clone(),
        })
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The same grammar as a regular expression, for the CRD's schema.
pub const PATTERN: &str = "^([0-9]{1,9}(ms|s|m|h))+$";

fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        // Nine digits keep every product below within range and are what the CRD's pattern allows.
        if digits == 0 || digits > 9 {
            return None;
        }
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (unit, length) = if rest.starts_with("ms") {
            (Duration::from_millis(1), 2)
        } else if rest.starts_with('s') {
            (Duration::from_secs(1), 1)
        } else if rest.starts_with('m') {
            (Duration::from_mins(1), 1)
        } else if rest.starts_with('h') {
            (Duration::from_hours(1), 1)
        } else {
            return None;
        };
        rest = &rest[length..];
        total = total.checked_add(unit.checked_mul(u32::try_from(number).ok()?)?)?;
    }
    Some(total)
}

/// The shortest text for a duration, for messages: whole units only.
pub fn display(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let parts = [
        (millis / 3_600_000, "h"),
        (millis / 60_000 % 60, "m"),
        (millis / 1000 % 60, "s"),
        (millis % 1000, "ms"),
    ];
    let mut text = String::new();
    for (count, unit) in parts.iter().filter(|(count, _)| *count > 0) {
        text.push_str(&count.to_string());
        text.push_str(unit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, millis) in [
            ("100ms", 100),
            ("1s", 1000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1m500ms", 60_500),
            ("90m", 5_400_000),
            ("0s", 0),
        ] {
            let parsed = GoDuration(text.to_owned()).parse();
            assert_eq!(parsed, Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in [
            "",
            "1",
            "s",
            "1d",
            "-1s",
            "1.5h",
            "1 s",
            "1s2",
            "9999999999s",
            "ä",
        ] {
            assert!(GoDuration(text.to_owned()).parse().is_err(), "{text}");
        }
    }

    #[test]
    fn writes_the_shortest_form() {
        assert_eq!(display(Duration::from_mins(90)), "1h30m");
        assert_eq!(display(Duration::from_millis(1500)), "1s500ms");
        assert_eq!(display(Duration::ZERO), "0s");
    }
}

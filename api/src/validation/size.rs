//! `spec.size`: 1, 3, 5 or 7.

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason, Violation, violation};
use super::text::{CelMessage, Text};
use crate::size::{ClusterSize, LARGEST};

const FIELD: &str = "spec.size";

const EVEN: Text = Text(
    "must be odd: {size} members tolerate no more failures than {below}, and one more can fail; use {below} or {above}",
);
const TOO_SMALL: Text = Text("must be at least 1: use 1, 3, 5 or 7");
const TOO_LARGE: Text =
    Text("must be at most 7: more members make every write slower; use 1, 3, 5 or 7");

/// The size, or why it is none.
pub(crate) fn legal(members: i32, field: &str) -> Result<ClusterSize, Violation> {
    if let Some(size) = ClusterSize::new(members) {
        return Ok(size);
    }
    let message = if members < 1 {
        TOO_SMALL.0.to_owned()
    } else if members > LARGEST {
        TOO_LARGE.0.to_owned()
    } else {
        even(members)
    };
    Err(violation(field, Reason::SizeNotAllowed, message))
}

fn even(size: i32) -> String {
    EVEN.fill(&[
        ("size", &size),
        ("below", &(size - 1)),
        ("above", &(size + 1)),
    ])
}

pub(super) fn read(members: Option<i32>, judgement: &mut Judgement) -> Option<ClusterSize> {
    let size = judgement.keep(legal(members.unwrap_or(crate::defaults::SIZE), "spec.size"))?;
    warn_without_tolerance(size, FIELD, judgement);
    Some(size)
}

pub(super) fn warn_without_tolerance(size: ClusterSize, field: &str, judgement: &mut Judgement) {
    if size.tolerates() == 0 {
        judgement.warn(
            field,
            "one member tolerates no failure; use 3 for a cluster that matters",
        );
    }
}

pub(super) fn cel() -> Vec<CelRule> {
    let mut rules = vec![
        rule(Reason::SizeNotAllowed, FIELD, "self >= 1", TOO_SMALL),
        rule(Reason::SizeNotAllowed, FIELD, "self <= 7", TOO_LARGE),
    ];
    // One rule for each, because a number in a message is beyond the API server's cost budget.
    rules.extend(
        (1..LARGEST)
            .filter(|size| size % 2 == 0)
            .map(|size| CelRule {
                message: CelMessage::Fixed(even(size)),
                ..rule(
                    Reason::SizeNotAllowed,
                    FIELD,
                    format!("self != {size}"),
                    EVEN,
                )
            }),
    );
    rules
}

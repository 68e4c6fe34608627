//! `spec.size`: 1, 3, 5 or 7.

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason, Violation, violation};
use super::text::Text;
use crate::size::{ClusterSize, LARGEST};

const EVEN: Text = Text(
    "must be odd: {size} members tolerate no more failures than {below}, and one more can fail; use {below} or {above}",
);
const TOO_SMALL: Text = Text("must be at least 1, not {size}: use 1, 3, 5 or 7");
const TOO_LARGE: Text =
    Text("must be at most 7, not {size}: more members make every write slower; use 1, 3, 5 or 7");

/// The size, or why it is none.
pub(crate) fn legal(members: i32, field: &str) -> Result<ClusterSize, Violation> {
    if let Some(size) = ClusterSize::new(members) {
        return Ok(size);
    }
    let message = if members < 1 {
        TOO_SMALL.fill(&[("size", &members)])
    } else if members > LARGEST {
        TOO_LARGE.fill(&[("size", &members)])
    } else {
        EVEN.fill(&[
            ("size", &members),
            ("below", &(members - 1)),
            ("above", &(members + 1)),
        ])
    };
    Err(violation(field, Reason::SizeNotAllowed, message))
}

pub(super) fn read(members: Option<i32>, judgement: &mut Judgement) -> Option<ClusterSize> {
    let size = judgement.keep(legal(members.unwrap_or(crate::defaults::SIZE), "spec.size"))?;
    warn_without_tolerance(size, "spec.size", judgement);
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
    let size = ("size", "string(self)");
    vec![
        rule(Reason::SizeNotAllowed, "spec.size", "self >= 1", TOO_SMALL).holes(TOO_SMALL, &[size]),
        rule(Reason::SizeNotAllowed, "spec.size", "self <= 7", TOO_LARGE).holes(TOO_LARGE, &[size]),
        // Only within the bounds, so that a refusal says one thing.
        rule(
            Reason::SizeNotAllowed,
            "spec.size",
            "self < 1 || self > 7 || self % 2 == 1",
            EVEN,
        )
        .holes(
            EVEN,
            &[
                size,
                ("below", "string(self - 1)"),
                ("above", "string(self + 1)"),
            ],
        ),
    ]
}

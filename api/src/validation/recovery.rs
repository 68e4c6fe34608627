//! `spec.recovery`: how long a lost member is waited for.

use std::time::Duration;

use super::cel::{CelRule, rule};
use super::duration_field;
use super::finding::{Judgement, Reason};
use super::text::Text;
use crate::v1beta2::RecoverySpec;

const FIELD: &str = "spec.recovery.unreachableAfter";
const OUT_OF_BOUNDS: Text =
    Text("must be between 30s and 24h: a node that reboots is back within minutes");
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_hours(24);

pub(super) fn read(recovery: Option<&RecoverySpec>, judgement: &mut Judgement) -> Option<Duration> {
    let text = recovery?.unreachable_after.as_ref()?;
    let duration = duration_field(text, FIELD, judgement)?;
    if !(SHORTEST..=LONGEST).contains(&duration) {
        judgement.refuse(FIELD, Reason::UnreachableAfterOutOfBounds, OUT_OF_BOUNDS.0);
        return None;
    }
    Some(duration)
}

pub(super) fn cel() -> Vec<CelRule> {
    let well_formed = super::duration_cel("self");
    vec![
        super::duration_rule(FIELD),
        rule(
            Reason::UnreachableAfterOutOfBounds,
            FIELD,
            format!(
                "!{well_formed} || (duration(self) >= duration('30s') && duration(self) <= duration('24h'))"
            ),
            OUT_OF_BOUNDS,
        ),
    ]
}

//! When a certificate is renewed. Pure: by dates and a jitter that is passed in.

use jiff::Timestamp;

use crate::inspect::Validity;

/// A part between 0 and 1, so that replicas started together do not renew together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter(f64);

impl Jitter {
    pub const NONE: Self = Self(0.0);

    /// Anything outside 0 to 1 (NaN too) is brought inside.
    pub fn new(part: f64) -> Self {
        if part.is_nan() {
            Self::NONE
        } else {
            Self(part.clamp(0.0, 1.0))
        }
    }
}

/// Two thirds of the way through its life, or up to a tenth of its life earlier: never later, since the last third is the time
/// there is to repair a renewal that fails.
pub fn renew_at(validity: Validity, jitter: Jitter) -> Timestamp {
    let life = validity.lifetime();
    let after = life.mul_f64(2.0 / 3.0 - 0.1 * jitter.0);
    validity
        .not_before
        .checked_add(after)
        .unwrap_or(validity.not_after)
}

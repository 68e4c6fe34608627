//! Kubernetes quantities as exact numbers.
//!
//! The API server knows them as `resource.Quantity`; here only what is needed to compare them and to hand bytes to etcd.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A quantity in thousandths, exact within what Kubernetes itself keeps (three decimal places, rounded up).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    thousandths: i128,
}

/// Why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a quantity such as `8Gi` or `500M`")]
pub struct NotAQuantity {
    text: String,
}

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

impl Amount {
    pub const ZERO: Self = Self { thousandths: 0 };

    pub const fn from_bytes(bytes: u64) -> Self {
        Self {
            thousandths: bytes as i128 * 1000,
        }
    }

    pub fn parse(quantity: &Quantity) -> Result<Self, NotAQuantity> {
        parse(&quantity.0)
            .map(|thousandths| Self { thousandths })
            .ok_or_else(|| NotAQuantity {
                text: quantity.0.clone(),
            })
    }

    /// Whole bytes, rounded up as Kubernetes does; none where negative or beyond 64 bits.
    pub fn bytes(self) -> Option<u64> {
        u64::try_from((self.thousandths + 999).div_euclid(1000)).ok()
    }
}

/// Bytes as people write them: the largest binary unit that loses nothing.
pub fn display_bytes(bytes: u64) -> String {
    for (unit, suffix) in [
        (1u64 << 40, "Ti"),
        (GIB, "Gi"),
        (MIB, "Mi"),
        (1 << 10, "Ki"),
    ] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{suffix}", bytes / unit);
        }
    }
    bytes.to_string()
}

fn parse(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_length = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_length);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // More digits than any real size has would only serve to overflow.
    if whole.len() + fraction.len() == 0
        || whole.len() > 19
        || fraction.len() > 9
        || fraction.contains('.')
    {
        return None;
    }
    let (binary, exponent) = scale(suffix)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let mut numerator = digits.checked_mul(1000)?.checked_mul(binary)?;
    let mut denominator = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let power = 10i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 {
        numerator = numerator.checked_mul(power)?;
    } else {
        denominator = denominator.checked_mul(power)?;
    }
    let rounded_up = numerator.checked_add(denominator - 1)? / denominator;
    Some(if negative { -rounded_up } else { rounded_up })
}

/// The suffix as (binary factor, decimal exponent).
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-18..=18).contains(&exponent).then_some((1, exponent))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        Amount::parse(&Quantity(text.to_owned())).ok()?.bytes()
    }

    #[test]
    fn reads_what_kubernetes_reads() {
        for (text, expected) in [
            ("8Gi", 8 * GIB),
            ("1.5Gi", 3 * GIB / 2),
            ("2e3", 2000),
            ("1E", 1_000_000_000_000_000_000),
            ("500M", 500_000_000),
            ("100", 100),
            ("1500m", 2),
            (".5Ki", 512),
            ("+1Ki", 1024),
            ("0", 0),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        for text in [
            "", "Gi", "8GB", "8 Gi", "1.2.3", "--1", "1e", "x", "8gi", "-", "1e99", "ä",
        ] {
            assert!(Amount::parse(&Quantity(text.to_owned())).is_err(), "{text}");
        }
    }

    #[test]
    fn compares_across_units_exactly() {
        let amount = |text: &str| Amount::parse(&Quantity(text.to_owned())).unwrap();
        assert_eq!(amount("1Gi"), amount("1024Mi"));
        assert!(amount("1G") < amount("1Gi"));
        assert!(amount("-1") < Amount::ZERO);
        assert!(amount("200m") < amount("1"));
    }

    #[test]
    fn writes_the_largest_exact_unit() {
        assert_eq!(display_bytes(8 * GIB), "8Gi");
        assert_eq!(display_bytes(1536 * MIB), "1536Mi");
        assert_eq!(display_bytes(1000), "1000");
    }
}

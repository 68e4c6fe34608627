//! etcd versions: `X.Y.Z`, and the minor `X.Y` that decides what a member can do.

use std::fmt;
use std::str::FromStr;

/// A released etcd version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

/// A minor release line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor {
    major: u32,
    minor: u32,
}

/// Why a text is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a version of the form X.Y.Z")]
pub struct NotAVersion {
    text: String,
}

impl Version {
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Its release line.
    pub const fn minor(self) -> Minor {
        Minor::new(self.major, self.minor)
    }

    /// Its number within the release line.
    pub const fn patch(self) -> u32 {
        self.patch
    }
}

impl Minor {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// A patch of this line.
    pub const fn patch(self, patch: u32) -> Version {
        Version::new(self.major, self.minor, patch)
    }

    /// The next line up.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.major, self.minor + 1)
    }

    /// The next line down.
    pub const fn previous(self) -> Option<Self> {
        match self.minor.checked_sub(1) {
            Some(minor) => Some(Self::new(self.major, minor)),
            None => None,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = NotAVersion;

    /// `X.Y.Z` or `vX.Y.Z`: plain numbers, no leading zeros, no pre-release or build part, because only etcd's releases
    /// have images.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let refuse = || NotAVersion {
            text: text.to_owned(),
        };
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let mut number = || parts.next().and_then(plain_number).ok_or_else(refuse);
        let version = Self::new(number()?, number()?, number()?);
        match parts.next() {
            None => Ok(version),
            Some(_) => Err(refuse()),
        }
    }
}

fn plain_number(text: &str) -> Option<u32> {
    let plain = !text.is_empty()
        && text.len() <= 4
        && text.bytes().all(|b| b.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_spellings_and_writes_the_plain_one() {
        for text in ["3.6.16", "v3.6.16"] {
            let version: Version = text.parse().unwrap();
            assert_eq!(version, Version::new(3, 6, 16));
            assert_eq!(version.to_string(), "3.6.16");
        }
    }

    #[test]
    fn orders_by_number_and_not_by_letter() {
        assert!(Version::new(3, 5, 9) < Version::new(3, 5, 10));
        assert!(Minor::new(3, 9) < Minor::new(3, 10));
    }

    #[test]
    fn refuses_what_has_no_image() {
        for text in [
            "",
            "3",
            "3.6",
            "3.6.",
            "3.6.16.1",
            "3.6.16-rc.0",
            "3.06.1",
            "latest",
            "V3.6.16",
            "vv3.6.16",
            "3.6.x",
            "+3.6.1",
            "3.6.99999",
            " 3.6.16",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }
}

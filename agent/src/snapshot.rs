//! A snapshot as etcd streams it, a database and the SHA-256 of it: whether a file is one, whole and unharmed.

use std::{fs::File, path::Path};

use etcd_operator_api::orders::FailureReason;
use sha2::{Digest as _, Sha256};

use crate::{
    bolt::{Bolt, Malformed},
    failure::Failure,
    status::Status,
};

/// How much etcd appends to a database.
const TRAILER: usize = 32;

/// Hashes all but the last 32 bytes of what passes by, which are the hash.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    hash: Sha256,
    last: Vec<u8>,
    length: u64,
}

impl Passing {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        // What is kept back of the former bytes goes first.
        let (sure, kept) = bytes.split_at(bytes.len().saturating_sub(TRAILER));
        let surplus = (self.last.len() + kept.len()).saturating_sub(TRAILER);
        if sure.is_empty() {
            let old: Vec<u8> = self.last.drain(..surplus.min(self.last.len())).collect();
            self.hash.update(old);
        } else {
            self.hash.update(&self.last);
            self.last.clear();
            self.hash.update(sure);
        }
        self.last.extend_from_slice(kept);
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn end(self) -> Passed {
        Passed {
            length: self.length,
            sha256: hexadecimal(&self.hash.finalize()),
            trailer: hexadecimal(&self.last),
        }
    }
}

/// What passed by.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub(crate) length: u64,
    /// Of all but the last 32 bytes.
    pub(crate) sha256: String,
    /// The last 32 bytes.
    trailer: String,
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// How far a file is looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Its hash alone: for what was walked before and is the same.
    Hash,
    /// All of it.
    Whole,
}

/// Judges the snapshot in `path`, which passed by as `passed`. `name` is what people know it by.
pub(crate) fn judge(
    name: &str,
    path: &Path,
    passed: &Passed,
    depth: Depth,
) -> Result<Status, Failure> {
    if passed.length == 0 {
        return Err(empty(name));
    }
    let file = File::open(path).map_err(|error| Failure::file("read", path, &error))?;
    let mut bolt = Bolt::open(&file, passed.length).map_err(|error| malformed(name, &error))?;
    let (database, trailer) = (bolt.size(), TRAILER as u64);
    if passed.length == database {
        return Err(Failure::new(
            FailureReason::NotASnapshot,
            format!(
                "{name} is the database of a member, copied without the SHA-256 that `etcdctl snapshot save` appends; take a snapshot with that, or let \
                 the member serve and back it up"
            ),
        ));
    }
    if passed.length < database + trailer {
        return Err(short(name, database + trailer, passed.length));
    }
    if passed.length > database + trailer {
        return Err(corrupt(
            name,
            &format!(
                "{} bytes follow its end",
                passed.length - database - trailer
            ),
        ));
    }
    if passed.sha256 != passed.trailer {
        return Err(corrupt(
            name,
            &format!(
                "the SHA-256 of its data is {}, and it says {}",
                passed.sha256, passed.trailer
            ),
        ));
    }
    match depth {
        Depth::Hash => Ok(Status::default()),
        Depth::Whole => Status::of(&mut bolt).map_err(|error| malformed(name, &error)),
    }
}

pub(crate) fn empty(name: &str) -> Failure {
    Failure::new(
        FailureReason::SnapshotEmpty,
        format!("{name} is empty: 0 bytes"),
    )
}

pub(crate) fn short(name: &str, expected: u64, found: u64) -> Failure {
    Failure::new(
        FailureReason::SnapshotIncomplete,
        format!("{name} is cut off: {found} of {expected} bytes are there"),
    )
}

pub(crate) fn corrupt(name: &str, why: &str) -> Failure {
    Failure::new(
        FailureReason::SnapshotCorrupt,
        format!("{name} is damaged: {why}"),
    )
}

fn malformed(name: &str, error: &Malformed) -> Failure {
    match error {
        Malformed::NotBolt => Failure::new(
            FailureReason::NotASnapshot,
            format!("{name} is not a snapshot of etcd: {error}"),
        ),
        Malformed::Short { expected, found } => short(name, expected + TRAILER as u64, *found),
        Malformed::Io(error) => Failure::internal(format!("{name} cannot be read: {error}")),
        _ => corrupt(name, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn however_it_arrives_all_but_the_last_32_bytes_are_hashed(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8)
        ) {
            let mut passing = Passing::default();
            for piece in &pieces {
                passing.update(piece);
            }
            let all = pieces.concat();
            let (data, last) = all.split_at(all.len().saturating_sub(TRAILER));
            let passed = passing.end();
            prop_assert_eq!(passed.length, all.len() as u64);
            prop_assert_eq!(passed.sha256, hexadecimal(&Sha256::digest(data)));
            prop_assert_eq!(passed.trailer, hexadecimal(last));
        }
    }
}

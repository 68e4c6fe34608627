//! What `etcdutl snapshot status` says of a database, in constant memory.

use crc_fast::{CrcAlgorithm, Digest};

use crate::bolt::{Bolt, Bucket, Malformed, Pages, Span, Visit};

const KEYS: &[u8] = b"key";
const META: &[u8] = b"meta";
const CLUSTER: &[u8] = b"cluster";
const COMPACTED: &[u8] = b"finishedCompactRev";
const CLUSTER_VERSION: &[u8] = b"clusterVersion";

/// What is in a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Over everything, as `etcdutl snapshot status` has it.
    pub hash: u32,
    /// Over all revisions of all keys alone: a restore keeps it.
    pub data: u32,
    /// The newest revision.
    pub revision: i64,
    /// How many keys there are at that revision.
    pub keys: u64,
    /// The version that the cluster had agreed on, such as `3.6.0`.
    pub cluster_version: Option<String>,
}

impl Status {
    /// The hash as `etcdutl` prints it.
    pub fn hash_in_words(&self) -> String {
        format!("{:x}", self.hash)
    }

    pub fn of(bolt: &mut Bolt<'_>) -> Result<Self, Malformed> {
        let buckets = bolt.buckets()?;
        let named = |name: &[u8]| buckets.iter().find(|bucket| bucket.name == name);
        let mut compacted = Wanted::new(COMPACTED);
        if let Some(meta) = named(META) {
            bolt.visit(meta, &mut compacted)?;
        }
        let mut version = Wanted::new(CLUSTER_VERSION);
        if let Some(cluster) = named(CLUSTER) {
            bolt.visit(cluster, &mut version)?;
        }
        let mut reading = Reading {
            all: Digest::new(CrcAlgorithm::Crc32Iscsi),
            data: Digest::new(CrcAlgorithm::Crc32Iscsi),
            compacted: compacted.value.as_deref().and_then(revision).unwrap_or(0),
            revision: 0,
            begun: 0,
            ended: 0,
            in_keys: false,
        };
        for bucket in &buckets {
            reading.begin(bucket);
            bolt.visit(bucket, &mut reading)?;
        }
        Ok(Self {
            hash: crc(&reading.all),
            data: crc(&reading.data),
            revision: reading.revision,
            keys: reading.begun.saturating_sub(reading.ended),
            cluster_version: version
                .value
                .and_then(|version| String::from_utf8(version).ok()),
        })
    }
}

fn crc(digest: &Digest) -> u32 {
    u32::try_from(digest.finalize()).unwrap_or_default()
}

/// The value of one key.
struct Wanted {
    key: &'static [u8],
    value: Option<Vec<u8>>,
}

impl Wanted {
    const fn new(key: &'static [u8]) -> Self {
        Self { key, value: None }
    }
}

impl Visit for Wanted {
    fn entry(
        &mut self,
        pages: &mut Pages<'_>,
        key: &[u8],
        value: Option<Span>,
    ) -> Result<(), Malformed> {
        if let Some(value) = value.filter(|_| key == self.key) {
            self.value = Some(pages.bytes(value)?);
        }
        Ok(())
    }
}

/// Everything, in etcdutl's order.
struct Reading {
    all: Digest,
    data: Digest,
    /// Nothing up to this revision is kept but the last of each key.
    compacted: i64,
    revision: i64,
    /// How many keys came to be, and how many were deleted, in what is kept of the history.
    begun: u64,
    ended: u64,
    in_keys: bool,
}

impl Reading {
    fn begin(&mut self, bucket: &Bucket) {
        self.all.update(&bucket.name);
        self.in_keys = bucket.name == KEYS;
    }

    /// Counts lives: a set of all keys would need as much memory as there are keys.
    fn count(&mut self, pages: &mut Pages<'_>, key: &[u8], value: Span) -> Result<(), Malformed> {
        let revision = revision(key).ok_or(Malformed::Wrong("a key has no revision"))?;
        self.revision = revision;
        let deleted = key.len() == 18 && key.last() == Some(&b't');
        if revision <= self.compacted {
            // Compaction has left one revision of each key that was there, and none of its life before.
            self.begun += u64::from(!deleted);
        } else if deleted {
            self.ended += 1;
        } else if version(pages, value)? == 1 {
            self.begun += 1;
        }
        Ok(())
    }
}

impl Visit for Reading {
    fn entry(
        &mut self,
        pages: &mut Pages<'_>,
        key: &[u8],
        value: Option<Span>,
    ) -> Result<(), Malformed> {
        self.all.update(key);
        let Some(value) = value else {
            return Ok(());
        };
        if !self.in_keys {
            return pages.each(value, |part| self.all.update(part));
        }
        self.count(pages, key, value)?;
        self.data.update(key);
        pages.each(value, |part| {
            self.all.update(part);
            self.data.update(part);
        })
    }
}

/// The main part of `<8 bytes>_<8 bytes>`, which may end in a `t` where a key is deleted.
fn revision(key: &[u8]) -> Option<i64> {
    if !(17..=18).contains(&key.len()) || key.get(8) != Some(&b'_') {
        return None;
    }
    let main = key.get(..8)?.try_into().ok()?;
    Some(i64::from_be_bytes(main))
}

/// The field `version` of a KeyValue: 1 where the key came to be.
fn version(pages: &mut Pages<'_>, value: Span) -> Result<u64, Malformed> {
    let wrong = || Malformed::Wrong("a value is not what etcd stores of a key");
    let part = |pages: &mut Pages<'_>, from: u64, most: u64| {
        let length = value.length.saturating_sub(from).min(most);
        pages.bytes(Span {
            offset: value.offset + from,
            length,
        })
    };
    let mut after_key = 0;
    let start = part(pages, 0, 12)?;
    // Field 1 is the key; an empty one is left out.
    if start.first() == Some(&0x0a) {
        let (length, read) = varint(start.get(1..).unwrap_or_default()).ok_or_else(wrong)?;
        after_key = length
            .checked_add(1 + read as u64)
            .filter(|after| *after <= value.length)
            .ok_or_else(wrong)?;
    }
    let fields = part(pages, after_key, 48)?;
    let mut rest = fields.as_slice();
    // Fields 2, 3 and 4 are create_revision, mod_revision and version.
    while let [tag @ (0x10 | 0x18 | 0x20), more @ ..] = rest {
        let (number, read) = varint(more).ok_or_else(wrong)?;
        if *tag == 0x20 {
            return Ok(number);
        }
        rest = more.get(read..).unwrap_or_default();
    }
    Err(wrong())
}

fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(index).ok()?)?;
        if byte & 0x80 == 0 {
            return Some((number, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_read_from_a_key_and_from_that_of_a_deletion() {
        let mut key = 7_i64.to_be_bytes().to_vec();
        key.push(b'_');
        key.extend(0_i64.to_be_bytes());
        assert_eq!(revision(&key), Some(7));
        key.push(b't');
        assert_eq!(revision(&key), Some(7));
        assert_eq!(revision(b"short"), None);
        key[8] = b'-';
        assert_eq!(revision(&key), None);
    }

    #[test]
    fn a_varint_ends_or_is_refused() {
        assert_eq!(varint(&[0x01]), Some((1, 1)));
        assert_eq!(varint(&[0xac, 0x02, 0xff]), Some((300, 2)));
        assert_eq!(varint(&[0x80; 11]), None);
        assert_eq!(varint(&[]), None);
    }
}

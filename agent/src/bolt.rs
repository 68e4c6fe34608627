//! etcd's database file, read without etcd: bbolt's pages, walked with small reads.
//!
//! Reads one file and changes nothing. Whatever the file holds, a walk ends: with what is in it, or with an error. Memory is
//! bounded by a page's elements and by [`WINDOW`], never by what the file says of itself.

use std::{fs::File, io, os::unix::fs::FileExt as _};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const HEADER: u64 = 16;
const ELEMENT: u64 = 16;
const META: usize = 64;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
/// The flag of a leaf's element whose value is a bucket.
const BUCKET: u32 = 0x01;
/// bbolt itself refuses longer keys.
const LONGEST_KEY: u32 = 32_768;
/// Deeper than any tree of 2⁶⁴ pages with two children each that bbolt would write.
const DEEPEST: usize = 40;
/// etcd has about ten.
const MOST_BUCKETS: usize = 256;
/// How much of the file is held at once.
const WINDOW: u64 = 256 * 1024;

/// Why a file cannot be walked.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    #[error("it does not begin as a database of etcd does")]
    NotBolt,
    #[error("its database is to be {expected} bytes, and there are {found}")]
    Short { expected: u64, found: u64 },
    #[error("page {page}: {what}")]
    Page { page: u64, what: &'static str },
    #[error("{0}")]
    Wrong(&'static str),
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// A place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub offset: u64,
    pub length: u64,
}

/// What is told of each key of a bucket, in order.
pub trait Visit {
    /// `value` is absent for a bucket within the bucket.
    fn entry(
        &mut self,
        pages: &mut Pages<'_>,
        key: &[u8],
        value: Option<Span>,
    ) -> Result<(), Malformed>;
}

/// A bucket of the root.
#[derive(Clone, Debug)]
pub struct Bucket {
    pub name: Vec<u8>,
    root: Root,
}

#[derive(Clone, Copy, Debug)]
enum Root {
    Page(u64),
    /// A small bucket is a page within its parent's value.
    Inline(Span),
}

/// The file, with one window of it in memory.
#[derive(Debug)]
pub struct Pages<'a> {
    file: &'a File,
    length: u64,
    buffer: Vec<u8>,
    start: u64,
}

impl<'a> Pages<'a> {
    fn new(file: &'a File, length: u64) -> Self {
        Self {
            file,
            length,
            buffer: Vec::new(),
            start: 0,
        }
    }

    /// Makes the window begin here, and be this long where the file is.
    fn load(&mut self, offset: u64, length: u64) -> Result<(), Malformed> {
        let available = self.length.saturating_sub(offset);
        let length = length.min(WINDOW).min(available);
        let length = usize::try_from(length).map_err(|_| Malformed::Wrong("too long"))?;
        self.buffer.resize(length, 0);
        self.file.read_exact_at(&mut self.buffer, offset)?;
        self.start = offset;
        Ok(())
    }

    /// The part of the window that begins there, of at most this length and at least one byte.
    fn some(&mut self, span: Span) -> Result<&[u8], Malformed> {
        let end = self.start + self.buffer.len() as u64;
        if span.offset < self.start || span.offset >= end {
            self.load(span.offset, span.length.max(4096))?;
        }
        let from = usize::try_from(span.offset - self.start).unwrap_or(usize::MAX);
        let rest = self.buffer.get(from..).unwrap_or_default();
        let wanted = usize::try_from(span.length).unwrap_or(usize::MAX);
        let part = rest.get(..wanted).unwrap_or(rest);
        if part.is_empty() {
            return Err(Malformed::Wrong("something points beyond its end"));
        }
        Ok(part)
    }

    /// All of these bytes; for what is short.
    pub fn bytes(&mut self, span: Span) -> Result<Vec<u8>, Malformed> {
        if span.length > u64::from(LONGEST_KEY) {
            return Err(Malformed::Wrong("a key is longer than a key can be"));
        }
        let mut all = Vec::with_capacity(usize::try_from(span.length).unwrap_or(0));
        self.each(span, |part| all.extend_from_slice(part))?;
        Ok(all)
    }

    /// These bytes in pieces, however many they are.
    pub fn each(&mut self, span: Span, mut take: impl FnMut(&[u8])) -> Result<(), Malformed> {
        let mut left = span;
        while left.length > 0 {
            let part = self.some(left)?;
            take(part);
            let taken = part.len() as u64;
            left.offset += taken;
            left.length -= taken;
        }
        Ok(())
    }
}

/// An open database.
#[derive(Debug)]
pub struct Bolt<'a> {
    pages: Pages<'a>,
    page_size: u64,
    /// One more than the highest page.
    high_water: u64,
    root: u64,
    /// How many pages may still be walked: in a sound file none is met twice, and only small buckets are walked twice.
    left: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let mut number = [0; 2];
    if let Some(there) = bytes.get(at..at + 2) {
        number.copy_from_slice(there);
    }
    u16::from_le_bytes(number)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    if let Some(there) = bytes.get(at..at + 4) {
        number.copy_from_slice(there);
    }
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    if let Some(there) = bytes.get(at..at + 8) {
        number.copy_from_slice(there);
    }
    u64::from_le_bytes(number)
}

/// FNV-1a, with which bbolt guards a meta page.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What a meta page says.
struct Meta {
    page_size: u64,
    root: u64,
    high_water: u64,
    transaction: u64,
}

fn meta(bytes: &[u8]) -> Result<Meta, Malformed> {
    if bytes.len() < META || u32_at(bytes, 0) != MAGIC {
        return Err(Malformed::NotBolt);
    }
    if u64_at(bytes, 56) != fnv(bytes.get(..56).unwrap_or_default()) {
        return Err(Malformed::Wrong(
            "the checksum of a meta page is not that of its contents",
        ));
    }
    if u32_at(bytes, 4) != VERSION {
        return Err(Malformed::Wrong(
            "its format is not the one that etcd 3 writes",
        ));
    }
    Ok(Meta {
        page_size: u64::from(u32_at(bytes, 8)),
        root: u64_at(bytes, 16),
        high_water: u64_at(bytes, 40),
        transaction: u64_at(bytes, 48),
    })
}

impl<'a> Bolt<'a> {
    /// Reads both meta pages. `length` is where the database ends at the latest: what follows it is not looked at.
    pub fn open(file: &'a File, length: u64) -> Result<Self, Malformed> {
        let mut pages = Pages::new(file, length);
        let at = |pages: &mut Pages<'_>, offset: u64| {
            if length < offset + HEADER + META as u64 {
                return Err(Malformed::NotBolt);
            }
            let span = Span {
                offset: offset + HEADER,
                length: META as u64,
            };
            pages.bytes(span)
        };
        let first = meta(&at(&mut pages, 0)?)?;
        let size = first.page_size;
        if !(1024..=65_536).contains(&size) || !size.is_power_of_two() {
            return Err(Malformed::Wrong("its pages have an impossible size"));
        }
        let expected = |meta: &Meta| {
            meta.high_water
                .checked_mul(size)
                .ok_or(Malformed::Wrong("it has an impossible number of pages"))
        };
        let mut newest = first;
        if length < 2 * size {
            return Err(Malformed::Short {
                expected: expected(&newest)?,
                found: length,
            });
        }
        // A snapshot has two meta pages of one transaction and the one before it; other databases keep the last two.
        let second = meta(&at(&mut pages, size)?).map_err(|error| match error {
            Malformed::NotBolt => Malformed::Wrong("its second meta page is not one"),
            other => other,
        })?;
        if second.transaction > newest.transaction {
            newest = second;
        }
        let expected = expected(&newest)?;
        if length < expected {
            return Err(Malformed::Short {
                expected,
                found: length,
            });
        }
        Ok(Self {
            pages,
            page_size: size,
            high_water: newest.high_water,
            root: newest.root,
            left: newest.high_water.saturating_mul(2),
        })
    }

    /// How many bytes of the file are the database.
    pub fn size(&self) -> u64 {
        self.high_water * self.page_size
    }

    /// The buckets, in order.
    pub fn buckets(&mut self) -> Result<Vec<Bucket>, Malformed> {
        let mut found = Found(Vec::new());
        self.walk(Root::Page(self.root), 0, &mut |pages, entry| {
            found.take(pages, &entry)
        })?;
        self.left = self.high_water.saturating_mul(2);
        Ok(found.0)
    }

    /// Tells of each key of a bucket.
    pub fn visit(&mut self, bucket: &Bucket, visitor: &mut impl Visit) -> Result<(), Malformed> {
        self.walk(bucket.root, 0, &mut |pages, entry| {
            let key = pages.bytes(entry.key)?;
            visitor.entry(pages, &key, (!entry.bucket).then_some(entry.value))
        })
    }

    fn walk(
        &mut self,
        root: Root,
        depth: usize,
        take: &mut dyn FnMut(&mut Pages<'a>, Entry) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if depth > DEEPEST {
            return Err(Malformed::Wrong("its tree is deeper than a tree can be"));
        }
        let (page, number) = match root {
            Root::Page(number) => (self.page(number)?, number),
            Root::Inline(span) => (span, 0),
        };
        let wrong = |what| Malformed::Page { page: number, what };
        let header = self.pages.bytes(Span {
            offset: page.offset,
            length: HEADER.min(page.length),
        })?;
        let (flags, count) = (u16_at(&header, 8), u64::from(u16_at(&header, 10)));
        let table = HEADER + count * ELEMENT;
        if page.length < table {
            return Err(wrong("more elements than it has room for"));
        }
        // The table is copied: the window moves on to the values.
        let mut elements = Vec::with_capacity(usize::try_from(count * ELEMENT).unwrap_or(0));
        let span = Span {
            offset: page.offset + HEADER,
            length: count * ELEMENT,
        };
        self.pages
            .each(span, |part| elements.extend_from_slice(part))?;
        let size = usize::try_from(ELEMENT).unwrap_or(16);
        for (index, element) in elements.chunks_exact(size).enumerate() {
            let at = HEADER + index as u64 * ELEMENT;
            match flags {
                BRANCH => {
                    let child = u64_at(element, 8);
                    self.walk(Root::Page(child), depth + 1, take)?;
                }
                LEAF => {
                    let entry = leaf_entry(element, page, at).ok_or_else(|| {
                        wrong("an element points beyond it, or has a key that is too long")
                    })?;
                    take(&mut self.pages, entry)?;
                }
                _ => return Err(wrong("neither a branch nor a leaf")),
            }
        }
        Ok(())
    }

    /// Where the page and those that continue it are; the window is put on them.
    fn page(&mut self, number: u64) -> Result<Span, Malformed> {
        let wrong = |what| Malformed::Page { page: number, what };
        if number < 2 || number >= self.high_water {
            return Err(wrong("something points at it, and there is no such page"));
        }
        self.left = self.left.checked_sub(1).ok_or(Malformed::Wrong(
            "its pages point at one another in circles",
        ))?;
        let offset = number * self.page_size;
        self.pages.load(offset, self.page_size)?;
        let header = self.pages.bytes(Span {
            offset,
            length: HEADER,
        })?;
        if u64_at(&header, 0) != number {
            return Err(wrong("it says that it is another page"));
        }
        let overflow = u64::from(u32_at(&header, 12));
        if number + overflow >= self.high_water {
            return Err(wrong("it goes on beyond the end"));
        }
        let length = (overflow + 1) * self.page_size;
        if overflow > 0 {
            self.pages.load(offset, length)?;
        }
        Ok(Span { offset, length })
    }
}

/// An element of a leaf.
struct Entry {
    key: Span,
    value: Span,
    bucket: bool,
}

/// `at` is where the element itself is in its page, from where it counts.
fn leaf_entry(element: &[u8], page: Span, at: u64) -> Option<Entry> {
    let (flags, position) = (u32_at(element, 0), u64::from(u32_at(element, 4)));
    let (key, value) = (u32_at(element, 8), u64::from(u32_at(element, 12)));
    if key > LONGEST_KEY {
        return None;
    }
    let start = at + position;
    if start + u64::from(key) + value > page.length {
        return None;
    }
    Some(Entry {
        key: Span {
            offset: page.offset + start,
            length: u64::from(key),
        },
        value: Span {
            offset: page.offset + start + u64::from(key),
            length: value,
        },
        bucket: flags & BUCKET != 0,
    })
}

/// Collects the buckets of the root.
struct Found(Vec<Bucket>);

impl Found {
    fn take(&mut self, pages: &mut Pages<'_>, entry: &Entry) -> Result<(), Malformed> {
        if !entry.bucket {
            return Err(Malformed::Wrong("something in its root is no bucket"));
        }
        if self.0.len() == MOST_BUCKETS {
            return Err(Malformed::Wrong("it has more buckets than etcd makes"));
        }
        if entry.value.length < HEADER {
            return Err(Malformed::Wrong("a bucket is shorter than a bucket can be"));
        }
        let name = pages.bytes(entry.key)?;
        let head = pages.bytes(Span {
            offset: entry.value.offset,
            length: HEADER,
        })?;
        let root = match u64_at(&head, 0) {
            0 if entry.value.length < 2 * HEADER => {
                return Err(Malformed::Wrong("a bucket is shorter than a bucket can be"));
            }
            0 => Root::Inline(Span {
                offset: entry.value.offset + HEADER,
                length: entry.value.length - HEADER,
            }),
            page => Root::Page(page),
        };
        self.0.push(Bucket { name, root });
        Ok(())
    }
}

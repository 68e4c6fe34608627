//! A snapshot on its way back: fetched by ranges, decompressed, hashed and written in one pass, then judged.

use std::{
    fs::File,
    io::{self, Read, Write as _},
    path::{Path, PathBuf},
};

use bytes::{Buf as _, Bytes};
use etcd_operator_api::orders::{Compression, Facts, FailureReason, Manifest, SnapshotRef};
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc;

use crate::{
    disk,
    failure::Failure,
    progress::Progress,
    snapshot::{self, Depth, Passed, Passing},
    status::Status,
    store::{Opened, PART},
};

/// Ranges on their way at once.
const RANGES: usize = 3;
/// What a compressed file may ask of memory to be read: 2²⁵ bytes, more than any but `zstd --long` uses.
const WINDOW: u32 = 25;
/// What is decompressed, hashed and written at a time.
const PIECE: usize = 512 * 1024;
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A snapshot on the disk, and sound.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) facts: Facts,
    /// Empty where it was not walked.
    pub(crate) status: Status,
}

/// Fetches into `file`, which is replaced; `room` more bytes than its own must fit beside it.
pub(crate) async fn fetch(
    store: &Opened,
    wanted: &SnapshotRef,
    file: &Path,
    room: impl Fn(u64) -> u64,
    depth: Depth,
) -> Result<Fetched, Failure> {
    let name = wanted.name.as_str();
    // The manifest first: what is wrong with bucket or credentials is said in words only to a GET.
    let manifest = store.manifest(name).await?;
    let object = store.look(name).await?;
    if object.size == 0 {
        return Err(snapshot::empty(name));
    }
    if let Some(manifest) = &manifest {
        agree_on_size(name, manifest, object.size)?;
    }
    let size = manifest
        .as_ref()
        .map_or(object.size, |manifest| manifest.facts.size);
    disk::remove(file)?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    disk::require_room(folder, room(size))?;
    let progress = Progress::new("fetched", object.size);
    let (pieces, arriving) = mpsc::channel::<Bytes>(1);
    let (unpacked, to_write) = mpsc::channel::<Vec<u8>>(2);
    let unpacking = {
        let (name, manifest) = (name.to_owned(), manifest.clone());
        let arriving = Arriving::new(arriving);
        tokio::task::spawn_blocking(move || unpack(&name, arriving, manifest.as_ref(), &unpacked))
    };
    let writing = {
        let (name, path) = (name.to_owned(), file.to_owned());
        let most = manifest.as_ref().map(|manifest| manifest.facts.size);
        tokio::task::spawn_blocking(move || write_down(&name, &path, to_write, most))
    };
    let part = PART as u64;
    let ranges = (0..object.size.div_ceil(part))
        .map(|number| number * part..((number + 1) * part).min(object.size));
    let fetching = async {
        let mut ranges = std::pin::pin!(
            futures::stream::iter(ranges)
                .map(|range| store.range(&object, range))
                .buffered(RANGES)
        );
        while let Some(piece) = ranges.try_next().await? {
            progress.add(piece.len());
            if pieces.send(piece).await.is_err() {
                // The writer has ended, and says why.
                break;
            }
        }
        drop(pieces);
        Ok::<(), Failure>(())
    };
    let threads = async { (unpacking.await, writing.await) };
    let (fetched, (unpacked, written)) = futures::join!(fetching, threads);
    let abruptly =
        |error| Failure::internal(format!("writing the snapshot ended abruptly: {error}"));
    // Of several failures the one of the store is the cause, then the one of what came from it.
    fetched?;
    unpacked.map_err(abruptly)??;
    let passed = written.map_err(abruptly)??;
    let status = {
        let (name, path, passed) = (name.to_owned(), file.to_owned(), passed.clone());
        tokio::task::spawn_blocking(move || snapshot::judge(&name, &path, &passed, depth))
            .await
            .map_err(|error| Failure::internal(format!("the check ended abruptly: {error}")))??
    };
    let facts = facts(
        name,
        &passed,
        &status,
        manifest.as_ref(),
        object.size,
        depth,
    );
    agree(wanted, &facts, manifest.as_ref(), depth)?;
    Ok(Fetched { facts, status })
}

fn agree_on_size(name: &str, manifest: &Manifest, found: u64) -> Result<(), Failure> {
    let expected = manifest.facts.stored_size;
    if found < expected {
        return Err(snapshot::short(name, expected, found));
    }
    if found > expected {
        return Err(changed(name, "its manifest tells of a smaller one"));
    }
    Ok(())
}

fn changed(name: &str, why: &str) -> Failure {
    Failure::new(
        FailureReason::SnapshotChanged,
        format!("{name} is not the snapshot it was: {why}"),
    )
}

fn facts(
    name: &str,
    passed: &Passed,
    status: &Status,
    manifest: Option<&Manifest>,
    stored_size: u64,
    depth: Depth,
) -> Facts {
    let told = manifest.map(|manifest| &manifest.facts);
    if let (Depth::Hash, Some(told)) = (depth, told) {
        return told.clone();
    }
    Facts {
        snapshot: name.to_owned(),
        sha256: passed.sha256.clone(),
        hash: status.hash_in_words(),
        revision: status.revision,
        keys: status.keys,
        size: passed.length,
        stored_size,
        etcd_version: told
            .and_then(|told| told.etcd_version.clone())
            .or_else(|| status.cluster_version.clone()),
        cluster_id: told.and_then(|told| told.cluster_id.clone()),
        taken: told.and_then(|told| told.taken.clone()),
    }
}

/// Whether it is what its manifest says, and what was inspected before.
fn agree(
    wanted: &SnapshotRef,
    facts: &Facts,
    manifest: Option<&Manifest>,
    depth: Depth,
) -> Result<(), Failure> {
    let name = wanted.name.as_str();
    if let Some(told) = manifest.map(|manifest| &manifest.facts) {
        let same = told.sha256 == facts.sha256
            && told.size == facts.size
            && (depth == Depth::Hash
                || (told.revision == facts.revision && told.hash == facts.hash));
        if !same {
            return Err(changed(name, "its manifest tells of another one"));
        }
    }
    if let Some(sha256) = wanted
        .sha256
        .as_deref()
        .filter(|sha256| *sha256 != facts.sha256)
    {
        return Err(changed(
            name,
            &format!(
                "its data is {}, and {sha256} was looked at before",
                facts.sha256
            ),
        ));
    }
    Ok(())
}

/// Decompresses where it is compressed, on a thread of its own.
fn unpack(
    name: &str,
    mut arriving: Arriving,
    manifest: Option<&Manifest>,
    unpacked: &mpsc::Sender<Vec<u8>>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::internal(format!("zstd: {error}"));
    let begins = arriving.begins_with(&ZSTD);
    let compressed = match manifest.map(|manifest| manifest.compression) {
        Some(Compression::Zstd) if !begins => {
            return Err(snapshot::corrupt(
                name,
                "its manifest says that it is compressed, and it is not",
            ));
        }
        Some(Compression::Zstd) => true,
        Some(Compression::None) => false,
        None => begins,
    };
    let mut from: Box<dyn Read> = if compressed {
        let mut decoder = zstd::Decoder::with_buffer(arriving).map_err(failed)?;
        decoder.window_log_max(WINDOW).map_err(failed)?;
        Box::new(decoder)
    } else {
        Box::new(arriving)
    };
    loop {
        let mut piece = vec![0; PIECE];
        let read = fill(&mut from, &mut piece).map_err(|error| unreadable(name, &error))?;
        piece.truncate(read);
        // Where the writer has ended, it says why.
        if read == 0 || unpacked.blocking_send(piece).is_err() {
            return Ok(());
        }
    }
}

/// Reads until it is full, or at the end.
fn fill(from: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Failure::new(
            FailureReason::SnapshotIncomplete,
            format!("{name} is cut off: it ends in the middle of what is compressed"),
        );
    }
    snapshot::corrupt(name, &format!("it cannot be decompressed: {error}"))
}

/// Hashes and writes, on a thread of its own.
fn write_down(
    name: &str,
    path: &PathBuf,
    mut pieces: mpsc::Receiver<Vec<u8>>,
    most: Option<u64>,
) -> Result<Passed, Failure> {
    let failed = |error: io::Error| Failure::file("write", path, &error);
    let mut file = File::create(path).map_err(failed)?;
    let mut passing = Passing::default();
    while let Some(piece) = pieces.blocking_recv() {
        passing.update(&piece);
        if most.is_some_and(|most| passing.length() > most) {
            return Err(changed(name, "its manifest tells of a smaller one"));
        }
        file.write_all(&piece).map_err(failed)?;
    }
    Ok(passing.end())
}

/// The ranges as one stream, on the thread that writes.
struct Arriving {
    pieces: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Arriving {
    fn new(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self {
            pieces,
            current: Bytes::new(),
        }
    }

    /// Looks at the first piece, which is shorter than a magic number only where the whole is.
    fn begins_with(&mut self, magic: &[u8]) -> bool {
        use io::BufRead as _;
        self.fill_buf().is_ok_and(|piece| piece.starts_with(magic))
    }
}

impl io::BufRead for Arriving {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.current.is_empty()
            && let Some(next) = self.pieces.blocking_recv()
        {
            self.current = next;
        }
        Ok(&self.current)
    }

    fn consume(&mut self, amount: usize) {
        self.current.advance(amount.min(self.current.len()));
    }
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        use io::BufRead as _;
        let available = self.fill_buf()?;
        let amount = available.len().min(into.len());
        into[..amount].copy_from_slice(&available[..amount]);
        self.consume(amount);
        Ok(amount)
    }
}

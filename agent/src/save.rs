//! A backup: etcd's stream is written down, compressed and sent off as it comes; it counts only when all of it was checked.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use etcd_operator_api::orders::{
    Compression, EtcdAccess, Facts, FailureReason, Manifest, Naming, Owner, Report, Retention,
    Store,
};
use jiff::Timestamp;
use object_store::WriteMultipart;
use tokio::sync::mpsc;

use crate::{
    Agent, disk, etcd,
    failure::Failure,
    progress::Progress,
    retention::{self, Held},
    snapshot::{self, Depth, Passed, Passing},
    status::Status,
    store::{Opened, PART},
};

/// Fast, and a third of the size with what people keep in etcd.
const LEVEL: i32 = 1;
/// Parts on their way at once.
const PARTS: usize = 3;
/// Pieces of the stream that are handed on together; etcd's are of 32 KiB, and a thread that is woken for each does little else.
const BATCH: usize = 16;
/// Batches that wait before each of the two threads.
const BATCHES: usize = 4;
/// How long an upload may take to be taken back.
const ABORT: std::time::Duration = std::time::Duration::from_secs(5);

/// Pieces of etcd's stream.
type Batch = Vec<etcd_client::SnapshotResponse>;

/// What `Order::Save` says.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) etcd: EtcdAccess,
    pub(crate) store: Store,
    pub(crate) naming: Naming,
    pub(crate) owner: Owner,
    pub(crate) run: String,
    pub(crate) retention: Retention,
}

pub(crate) async fn save(agent: &Agent, wish: Wish) -> Result<Report, Failure> {
    let store = agent.open(&wish.store)?;
    let source = etcd::choose(&wish.etcd, &agent.places).await?;
    let scratch = agent.places.scratch();
    disk::require_room(&scratch, source.answer.size)?;
    let taken = Timestamp::now();
    let name = name(&store.base, wish.naming, source.answer.revision, taken);
    tracing::info!(
        endpoint = source.endpoint,
        snapshot = name,
        to = store.place(),
        "taking a snapshot"
    );
    let file = scratch.join("snapshot.db");
    disk::remove(&file)?;
    let mut upload = store.upload(&name).await?;
    let sent = tokio::select! {
        sent = stream(&name, &file, source.client, &source.endpoint, source.answer.size, &mut upload, &store) => sent,
        () = agent.stop.asked() => Err(crate::Stop::failure()),
    };
    let (passed, status, stored_size) = match sent {
        Ok(sent) => sent,
        Err(failure) => {
            abort(upload).await;
            disk::remove(&file)?;
            return Err(failure);
        }
    };
    disk::remove(&file)?;
    let manifest = Manifest {
        facts: Facts {
            snapshot: name.clone(),
            sha256: passed.sha256.clone(),
            hash: status.hash_in_words(),
            revision: status.revision,
            keys: status.keys,
            size: passed.length,
            stored_size,
            etcd_version: Some(source.answer.version),
            cluster_id: Some(format!("{:x}", source.answer.cluster_id)),
            taken: Some(taken.to_string()),
        },
        owner: wish.owner,
        run: wish.run,
        compression: Compression::Zstd,
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
    };
    // A former snapshot of that name is without its manifest for a moment: it can be read without one, but not with another's.
    if wish.naming == Naming::Exact
        && let Err(failure) = store.remove_manifest(&name).await
    {
        abort(upload).await;
        return Err(failure);
    }
    let finished = upload.finish().await;
    finished.map_err(|error| store.uploading(&error))?;
    store.put_manifest(&manifest).await?;
    let (kept, removed, prune_failure) =
        prune(&store, &manifest, wish.naming, wish.retention).await;
    Ok(Report::Saved {
        facts: manifest.facts,
        kept,
        removed,
        prune_failure: prune_failure.map(|failure| failure.message),
    })
}

/// Where the snapshot goes. Pure.
fn name(base: &str, naming: Naming, revision: i64, taken: Timestamp) -> String {
    match naming {
        Naming::Exact => base.to_owned(),
        Naming::Repeated => format!("{base}_v{revision}_{}", taken.strftime("%Y-%m-%d-%H:%M:%S")),
    }
}

async fn abort(upload: WriteMultipart) {
    match tokio::time::timeout(ABORT, upload.abort()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the upload could not be taken back"),
        Err(_) => tracing::warn!("the upload could not be taken back in time"),
    }
}

/// From etcd to the disk and to the store at once, then the check. Nothing is visible in the store after this.
async fn stream(
    name: &str,
    file: &Path,
    mut client: etcd_client::Client,
    endpoint: &str,
    size: u64,
    upload: &mut WriteMultipart,
    store: &Opened,
) -> Result<(Passed, Status, u64), Failure> {
    let progress = Progress::new("received", size);
    // Two threads beside the one that receives and sends: each has about a third of the work.
    let (pieces, to_write) = mpsc::channel::<Batch>(BATCHES);
    let (written, to_compress) = mpsc::channel::<Batch>(BATCHES);
    let (parts, mut to_send) = mpsc::channel::<Bytes>(1);
    let path = file.to_owned();
    let writing = tokio::task::spawn_blocking(move || write_down(&path, to_write, &written));
    let compressing = tokio::task::spawn_blocking(move || compress(to_compress, parts));
    let receive = receive(&mut client, endpoint, pieces, &progress);
    let send = async {
        let mut stored = 0;
        while let Some(part) = to_send.recv().await {
            stored += part.len() as u64;
            upload
                .wait_for_capacity(PARTS)
                .await
                .map_err(|error| store.uploading(&error))?;
            upload.put(part);
        }
        Ok::<u64, Failure>(stored)
    };
    let written = ended("writing the snapshot", writing);
    let compressed = ended("compressing the snapshot", compressing);
    let ((), stored, passed, ()) = futures::try_join!(receive, send, written, compressed)?;
    drop(progress);
    let (name, path) = (name.to_owned(), file.to_owned());
    let walked = passed.clone();
    let check =
        tokio::task::spawn_blocking(move || snapshot::judge(&name, &path, &walked, Depth::Whole));
    let check = ended("the check", check);
    // The last parts travel while the file is walked.
    let travel = async {
        upload
            .wait_for_capacity(1)
            .await
            .map_err(|error| store.uploading(&error))
    };
    let (status, ()) = futures::try_join!(check, travel)?;
    Ok((passed, status, stored))
}

/// What a thread of its own came to.
async fn ended<T>(
    what: &str,
    thread: tokio::task::JoinHandle<Result<T, Failure>>,
) -> Result<T, Failure> {
    let abruptly = |error| Failure::internal(format!("{what} ended abruptly: {error}"));
    thread.await.map_err(abruptly)?
}

/// Reads etcd's stream to its end.
async fn receive(
    client: &mut etcd_client::Client,
    endpoint: &str,
    pieces: mpsc::Sender<Batch>,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut stream = etcd::within(endpoint, client.snapshot()).await?;
    let mut batch = Batch::with_capacity(BATCH);
    let silent = |_| {
        Failure::new(
            FailureReason::EtcdUnreachable,
            format!("{endpoint} stopped in the middle of its snapshot"),
        )
    };
    loop {
        let next = tokio::time::timeout(etcd::SILENCE, stream.message()).await;
        let piece = next
            .map_err(silent)?
            .map_err(|error| etcd::explain(endpoint, &error))?;
        let last = piece.is_none();
        if let Some(piece) = piece {
            progress.add(piece.blob().len());
            batch.push(piece);
        }
        if last || batch.len() == BATCH {
            let full = std::mem::replace(&mut batch, Batch::with_capacity(BATCH));
            // Where the writer has ended, it says why.
            if pieces.send(full).await.is_err() || last {
                return Ok(());
            }
        }
    }
}

/// Writes and hashes, on a thread of its own.
fn write_down(
    path: &PathBuf,
    mut pieces: mpsc::Receiver<Batch>,
    written: &mpsc::Sender<Batch>,
) -> Result<Passed, Failure> {
    let failed = |error: io::Error| Failure::file("write", path, &error);
    let mut file = BufWriter::with_capacity(512 * 1024, File::create(path).map_err(failed)?);
    let mut passing = Passing::default();
    while let Some(batch) = pieces.blocking_recv() {
        for piece in &batch {
            passing.update(piece.blob());
            file.write_all(piece.blob()).map_err(failed)?;
        }
        if written.blocking_send(batch).is_err() {
            return Err(gone(&io::ErrorKind::BrokenPipe.into()));
        }
    }
    file.flush().map_err(failed)?;
    Ok(passing.end())
}

/// Compresses, on a thread of its own.
fn compress(mut pieces: mpsc::Receiver<Batch>, parts: mpsc::Sender<Bytes>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::internal(format!("zstd: {error}"));
    let parts = Parts {
        sink: parts,
        part: Vec::new(),
    };
    let mut encoder = zstd::Encoder::new(parts, LEVEL).map_err(failed)?;
    encoder.include_checksum(true).map_err(failed)?;
    while let Some(batch) = pieces.blocking_recv() {
        for piece in &batch {
            let written = encoder.write_all(piece.blob());
            written.map_err(|error| gone(&error))?;
        }
    }
    let mut parts = encoder.finish().map_err(|error| gone(&error))?;
    parts.send().map_err(|error| gone(&error))
}

/// The uploading side has ended, and says why itself.
fn gone(error: &io::Error) -> Failure {
    Failure::new(
        FailureReason::StoreUnreachable,
        format!("the upload ended early: {error}"),
    )
}

/// Collects what is compressed into parts.
struct Parts {
    sink: mpsc::Sender<Bytes>,
    part: Vec<u8>,
}

impl Parts {
    fn send(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = std::mem::take(&mut self.part);
        self.sink
            .blocking_send(part.into())
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.part.capacity() == 0 {
            self.part.reserve_exact(PART);
        }
        let taken = bytes.len().min(PART - self.part.len());
        self.part
            .extend_from_slice(bytes.get(..taken).unwrap_or(bytes));
        if self.part.len() == PART {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Removes what is kept no longer of this owner; how many are kept, how many went, and why it failed if it did.
async fn prune(
    store: &Opened,
    saved: &Manifest,
    naming: Naming,
    retention: Retention,
) -> (u64, u64, Option<Failure>) {
    if naming == Naming::Exact {
        return (1, 0, None);
    }
    let held = match held(store, &saved.owner.uid).await {
        Ok(held) => held,
        Err(failure) => return (1, 0, Some(failure)),
    };
    let mut removed = 0;
    for one in retention::outdated(&held, &saved.facts.snapshot, retention, Timestamp::now()) {
        // The manifest first: a snapshot without one is not offered to anybody.
        let gone = async {
            store.remove_manifest(&one.name).await?;
            store.remove(&one.name).await
        };
        if let Err(failure) = gone.await {
            tracing::warn!(snapshot = one.name, %failure, "could not be removed");
            return (held.len() as u64 - removed, removed, Some(failure));
        }
        tracing::info!(snapshot = one.name, "removed: it is kept no longer");
        removed += 1;
    }
    (held.len() as u64 - removed, removed, None)
}

/// What this owner has in the store, by what the manifests say.
async fn held(store: &Opened, uid: &str) -> Result<Vec<Held>, Failure> {
    use futures::{StreamExt as _, TryStreamExt as _};
    let names = store.snapshots().await?;
    let store = Arc::new(store.clone());
    let manifests = futures::stream::iter(names.into_iter().map(|name| {
        let store = Arc::clone(&store);
        async move { Ok::<_, Failure>((store.manifest(&name).await?, name)) }
    }));
    let read: Vec<_> = manifests.buffer_unordered(8).try_collect().await?;
    Ok(read
        .into_iter()
        .filter_map(|(manifest, name)| {
            let manifest = manifest?;
            // One that was copied says where it was, and is somebody's own.
            let ours = manifest.owner.uid == uid && manifest.facts.snapshot == name;
            let taken = manifest.facts.taken?.parse().ok()?;
            ours.then_some(Held { name, taken })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_repeats_is_named_as_coreos_named_it() {
        let taken: Timestamp = "2026-11-18T03:04:05.6Z".parse().unwrap();
        assert_eq!(
            name("dir/etcd.backup", Naming::Repeated, 12, taken),
            "dir/etcd.backup_v12_2026-11-18-03:04:05"
        );
        assert_eq!(
            name("dir/etcd.backup", Naming::Exact, 12, taken),
            "dir/etcd.backup"
        );
    }
}

//! A member's data directory from a snapshot: there whole, or not at all, however often it is tried and wherever it is cut off.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use etcd_operator_api::orders::{Report, RestoreTool, RestoredMember, SnapshotRef, Store};

use crate::{Agent, disk, failure::Failure, fetch, snapshot::Depth, tool};

/// What etcd writes beside the database: two write-ahead logs of 64 MB, and the rest.
const LOGS: u64 = 160 * 1024 * 1024;

pub(crate) async fn restore(
    agent: &Agent,
    store: &Store,
    snapshot: &SnapshotRef,
    with: RestoreTool,
    member: &RestoredMember,
) -> Result<Report, Failure> {
    let data = agent.places.member(&member.data_dir);
    let beside = Beside::new(&data)?;
    if data.join("member").is_dir() {
        beside.clear()?;
        return Ok(Report::Restored { already: true });
    }
    if fs::read_dir(&data).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::invalid(format!(
            "{} holds something that is no member of etcd; it is not touched",
            data.display()
        )));
    }
    beside.clear()?;
    fs::create_dir_all(&beside.parent)
        .map_err(|error| Failure::file("make", &beside.parent, &error))?;
    let opened = agent.open(store)?;
    // What was inspected before and is the same need not be walked again.
    let depth = if snapshot.sha256.is_some() {
        Depth::Hash
    } else {
        Depth::Whole
    };
    let prepared = async {
        let room = |size: u64| 2 * size + LOGS;
        let fetched = fetch::fetch(&opened, snapshot, &beside.download, room, depth).await?;
        tracing::info!(
            snapshot = fetched.facts.snapshot,
            "fetched and sound; restoring"
        );
        tool::restore(
            &agent.places,
            with,
            &beside.download,
            &beside.restoring,
            member,
        )
        .await
    };
    if let Err(failure) = prepared.await {
        beside.clear()?;
        return Err(failure);
    }
    put_in_place(&beside, &data).map_err(|error| Failure::file("put in place", &data, &error))?;
    beside.clear()?;
    Ok(Report::Restored { already: false })
}

/// First all of it is on the disk, then it has its name.
fn put_in_place(beside: &Beside, data: &Path) -> io::Result<()> {
    disk::sync_tree(&beside.restoring)?;
    fs::rename(&beside.restoring, data)?;
    fs::File::open(&beside.parent)?.sync_all()
}

/// Where work is done: on the same volume, beside the data directory.
struct Beside {
    parent: PathBuf,
    download: PathBuf,
    restoring: PathBuf,
}

impl Beside {
    fn new(data: &Path) -> Result<Self, Failure> {
        let (Some(parent), Some(name)) = (data.parent(), data.file_name()) else {
            return Err(Failure::invalid(format!(
                "{} is no place for a data directory",
                data.display()
            )));
        };
        let name = name.to_string_lossy();
        Ok(Self {
            parent: parent.to_owned(),
            download: parent.join(format!("{name}.download")),
            restoring: parent.join(format!("{name}.restoring")),
        })
    }

    fn clear(&self) -> Result<(), Failure> {
        disk::remove(&self.restoring)?;
        disk::remove(&self.download)
    }
}

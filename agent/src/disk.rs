//! Room on a disk, and writing so that it stays.

use std::{fs, io, path::Path};

use etcd_operator_api::orders::FailureReason;
use nix::sys::statvfs::statvfs;

use crate::failure::Failure;

/// Fails unless this many bytes fit.
pub(crate) fn require_room(folder: &Path, needed: u64) -> Result<(), Failure> {
    let disk = statvfs(folder)
        .map_err(|error| Failure::file("look at", folder, &io::Error::from(error)))?;
    let free = disk.blocks_available() * disk.fragment_size();
    if free < needed {
        return Err(Failure::new(
            FailureReason::DiskFull,
            format!(
                "{} has {} free, and {} are needed",
                folder.display(),
                mebibytes(free),
                mebibytes(needed)
            ),
        ));
    }
    Ok(())
}

pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1024 * 1024))
}

/// Everything below is on the disk when this returns.
pub(crate) fn sync_tree(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            sync_tree(&entry?.path())?;
        }
    }
    fs::File::open(path)?.sync_all()
}

/// Removes a file or a folder, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), Failure> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::file("remove", path, &error))
        }
        _ => Ok(()),
    }
}

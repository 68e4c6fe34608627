//! Where things are kept between runs: outside the checkout, so that a fresh clone finds what another one built.
//!
//! `$ETCD_OPERATOR_CACHE`, else `$XDG_CACHE_HOME/etcd-operator`, else `~/.cache/etcd-operator`. Touches the file system only.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use nix::sys::statvfs::statvfs;

#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// Held while it lives; the kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Cache {
    pub fn open() -> Result<Self> {
        let from_env = |name: &str| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let root = from_env("ETCD_OPERATOR_CACHE")
            .or_else(|| Some(from_env("XDG_CACHE_HOME")?.join("etcd-operator")))
            .or_else(|| Some(env::home_dir()?.join(".cache/etcd-operator")))
            .context("no place for a cache: set ETCD_OPERATOR_CACHE to a folder")?;
        let root = std::path::absolute(&root)?;
        fs::create_dir_all(&root)
            .with_context(|| format!("cannot make the cache {}", root.display()))?;
        // Mount points and process roots are compared with these paths, and the kernel reports them without symbolic links.
        Ok(Self {
            root: fs::canonicalize(root)?,
        })
    }

    #[cfg(test)]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Bytes that may still be written here.
    pub fn room(&self) -> Result<u64> {
        let disk = statvfs(&self.root)?;
        Ok(disk.blocks_available() * disk.fragment_size())
    }

    pub fn binaries(&self) -> PathBuf {
        self.root.join("bin")
    }

    pub fn sources(&self) -> PathBuf {
        self.root.join("src")
    }

    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// Unpacked images, see `local::image_store`.
    pub fn stores(&self) -> PathBuf {
        self.root.join("stores")
    }

    pub fn build_logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn clusters(&self) -> PathBuf {
        self.root.join("clusters")
    }

    /// Waits for whoever holds the lock of that name; `waiting` is called once if there is somebody to wait for.
    pub fn lock(&self, name: &str, waiting: impl FnOnce()) -> Result<Lock> {
        let folder = self.root.join("locks");
        fs::create_dir_all(&folder)?;
        let path = folder.join(name);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open the lock {}", path.display()))?;
        if file.try_lock().is_err() {
            waiting();
            file.lock()
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(Lock { _file: file })
    }
}

/// Makes `path` appear at once and whole: `fill` writes into a neighbour that is then renamed. The caller holds a lock, so a
/// neighbour that is there already is what a run that was ended left behind, and is removed.
pub fn appear_whole(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let parent = path.parent().context("a path with a parent folder")?;
    fs::create_dir_all(parent)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = parent.join(format!(".{name}.partial"));
    remove(&partial)?;
    let filled = fill(&partial);
    if filled.is_err() {
        remove(&partial)?;
    }
    filled?;
    fs::rename(&partial, path)
        .with_context(|| format!("cannot rename {} to {}", partial.display(), path.display()))
}

/// Removes a file or a whole folder; what is not there is removed already.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder =
            env::temp_dir().join(format!("etcd-operator-cache-{name}-{}", std::process::id()));
        remove(&folder).unwrap();
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_failed_fill_leaves_nothing_behind() {
        let folder = scratch("failed");
        let failed = appear_whole(&folder.join("x"), |partial| {
            fs::write(partial, "half")?;
            anyhow::bail!("no")
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        remove(&folder).unwrap();
    }

    #[test]
    fn a_fill_replaces_what_was_there_and_leaves_no_partial_file() {
        let folder = scratch("replaced");
        fs::write(folder.join("x"), "old").unwrap();
        appear_whole(&folder.join("x"), |partial| Ok(fs::write(partial, "new")?)).unwrap();
        assert_eq!(fs::read_to_string(folder.join("x")).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        remove(&folder).unwrap();
    }
}

//! The images that every node starts with, unpacked once per machine: a containerd's root folder in the cache, from which a node's
//! own is made by hard links in a blink, instead of unpacking the same gigabyte on each node of each cluster.
//!
//! What is linked is never written in place: blobs are only read, and layers are the lower folders of overlays. What containerd
//! does write, its databases, is copied. Runs a containerd for as long as unpacking takes; touches the cache.

use std::{
    fs::{self, File},
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sha2::{Digest, Sha256};

use super::{layout::Node, node};
use crate::{
    cache::{self, Cache},
    command,
    images::{self, Image},
    progress,
};

const PATIENCE: Duration = Duration::from_secs(30);
/// Files below these folders of a containerd's root never change once they are there.
const UNCHANGING: [&str; 2] = [
    "io.containerd.content.v1.content/blobs",
    "io.containerd.snapshotter.v1.overlayfs/snapshots",
];

/// The store that holds exactly these images, made first if it is not there.
pub fn ensure(cache: &Cache, images: &[Image]) -> Result<PathBuf> {
    let containerd = command::output(Command::new(node::CONTAINERD).arg("--version"))?;
    let folder = cache.stores().join(key(&containerd, images));
    if folder.exists() {
        return Ok(folder);
    }
    let _lock = cache.lock("image-store", || {
        progress::say("Waiting for another run that unpacks the images …");
    })?;
    if !folder.exists() {
        progress::step(&format!("Unpacking {} images, once", images.len()), || {
            // Nodes have links of their own to what they use of an older store.
            cache::remove(&cache.stores())?;
            cache::appear_whole(&folder, |partial| unpack(partial, images))
        })?;
    }
    Ok(folder)
}

fn key(containerd: &str, images: &[Image]) -> String {
    let parts = images
        .iter()
        .flat_map(|image| [Some(&image.name), Some(&image.digest), image.also.as_ref()])
        .flatten()
        .map(String::as_str);
    let text = std::iter::once(containerd)
        .chain(parts)
        .collect::<Vec<_>>()
        .join("\0");
    format!("{:x}", Sha256::digest(text))
        .chars()
        .take(16)
        .collect()
}

fn unpack(root: &Path, images: &[Image]) -> Result<()> {
    // Sockets need a short path, and only one store is made at a time.
    let run = PathBuf::from("/run/etcd-operator/.image-store");
    cache::remove(&run)?;
    let mount = Node {
        number: 0,
        name: "store".to_owned(),
        state: root.to_owned(),
        run: run.clone(),
    };
    let config = node::write_runtime_config("store", &mount)?;
    let log = root.join("containerd.log");
    let output = File::create(&log)?;
    let mut containerd = Command::new(node::CONTAINERD)
        .arg("--config")
        .arg(config)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("cannot start containerd")?;
    let filled = wait_for(&mount.runtime_socket(), &mut containerd)
        .and_then(|()| images::import(&mount.runtime_socket(), images))
        .with_context(|| format!("containerd said:\n{}", command::tail(&log, 15)));
    let stopped = stop(containerd);
    cache::remove(&run)?;
    filled.and(stopped)
}

/// Waits until a containerd listens.
fn wait_for(socket: &Path, containerd: &mut Child) -> Result<()> {
    let since = Instant::now();
    while UnixStream::connect(socket).is_err() {
        if containerd.try_wait()?.is_some() || since.elapsed() > PATIENCE {
            bail!("containerd does not listen on {}", socket.display());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Asks it to end, so that its databases are whole.
fn stop(mut containerd: Child) -> Result<()> {
    kill(
        Pid::from_raw(i32::try_from(containerd.id())?),
        Signal::SIGTERM,
    )?;
    let since = Instant::now();
    while containerd.try_wait()?.is_none() {
        if since.elapsed() > PATIENCE {
            containerd.kill()?;
            containerd.wait()?;
            bail!("containerd did not end when asked to");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Gives a node its own copy of a store.
pub fn copy_to(store: &Path, node: &Node) -> Result<()> {
    let (from, to) = (node::runtime_root(store), node::runtime_root(&node.state));
    copy(&from, &to, false, &from)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn copy(from: &Path, to: &Path, link: bool, root: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let link = link || UNCHANGING.iter().any(|folder| from == root.join(folder));
        if entry.file_type()?.is_dir() {
            copy(&from, &to, link, root)?;
        } else if !link || fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to)?;
        }
    }
    // Last, because a folder may not be writable.
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn image(name: &str, digest: &str) -> Image {
        Image {
            name: name.to_owned(),
            archive: PathBuf::new(),
            digest: digest.to_owned(),
            also: None,
        }
    }

    #[test]
    fn another_digest_another_name_or_another_containerd_is_another_store() {
        let of =
            |containerd: &str, name: &str, digest: &str| key(containerd, &[image(name, digest)]);
        assert_eq!(of("1.6", "a", "x"), of("1.6", "a", "x"));
        assert_ne!(of("1.6", "a", "x"), of("1.7", "a", "x"));
        assert_ne!(of("1.6", "a", "x"), of("1.6", "b", "x"));
        assert_ne!(of("1.6", "a", "x"), of("1.6", "a", "y"));
    }

    #[test]
    fn layers_are_linked_with_their_modes_and_databases_are_copied() {
        let folder =
            std::env::temp_dir().join(format!("etcd-operator-store-{}", std::process::id()));
        cache::remove(&folder).unwrap();
        let from = folder.join("from");
        let layer = Path::new(UNCHANGING[1]).join("1/fs");
        fs::create_dir_all(from.join(&layer).join("tmp")).unwrap();
        fs::set_permissions(
            from.join(&layer).join("tmp"),
            fs::Permissions::from_mode(0o1777),
        )
        .unwrap();
        fs::write(from.join(&layer).join("etcd"), "program").unwrap();
        fs::write(from.join("meta.db"), "database").unwrap();
        copy(&from, &folder.join("to"), false, &from).unwrap();
        let inode =
            |side: &str, path: &Path| fs::metadata(folder.join(side).join(path)).unwrap().ino();
        assert_eq!(
            inode("from", &layer.join("etcd")),
            inode("to", &layer.join("etcd"))
        );
        assert_ne!(
            inode("from", Path::new("meta.db")),
            inode("to", Path::new("meta.db"))
        );
        let mode = fs::metadata(folder.join("to").join(&layer).join("tmp"))
            .unwrap()
            .mode();
        assert_eq!(mode & 0o7777, 0o1777);
        cache::remove(&folder).unwrap();
    }
}

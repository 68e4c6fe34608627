//! Go itself: the machine's own if it is new enough, else the pinned one, fetched once from Go's module proxy into the cache.
//!
//! Looks at PATH; runs `curl` and `unzip` only where there is no Go to use.

use std::{
    env, fs,
    fs::File,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{
    cache::{self, Cache},
    command, packages, progress,
};

/// Older ones cannot build the pinned modules.
const OLDEST: (u32, u32) = (1, 26);
const PINNED: &str = "1.26.8";
const PROXY: &str = "https://proxy.golang.org/golang.org/toolchain/@v";
/// Per platform: the digest of the archive that Go's own toolchain switching would fetch.
const ARCHIVES: [(&str, &str, &str); 2] = [
    (
        "x86_64",
        "linux-amd64",
        "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7",
    ),
    (
        "aarch64",
        "linux-arm64",
        "02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99",
    ),
];

/// A `go` to run, and what it calls itself.
#[derive(Debug, Clone)]
pub struct Toolchain {
    pub program: PathBuf,
    pub version: String,
}

pub fn ensure(cache: &Cache) -> Result<Toolchain> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/local/go/bin")]);
    let installed = folders
        .map(|folder| folder.join("go"))
        .filter(|file| file.is_file());
    for program in installed {
        if let Ok(version) = version(&program)
            && release(&version).is_some_and(|release| release >= OLDEST)
        {
            return Ok(Toolchain { program, version });
        }
    }
    let folder = cache.toolchains().join(format!("go{PINNED}"));
    let _lock = cache.lock("toolchain", || {
        progress::say("Waiting for another run that fetches Go …");
    })?;
    if !folder.exists() {
        packages::ensure_for_downloading()?;
        let what = format!(
            "Fetching Go {PINNED} (none of {}.{} or newer is installed)",
            OLDEST.0, OLDEST.1
        );
        progress::step(&what, || cache::appear_whole(&folder, fetch))?;
    }
    let program = folder.join("bin/go");
    Ok(Toolchain {
        version: version(&program)?,
        program,
    })
}

fn version(program: &Path) -> Result<String> {
    command::output(
        Command::new(program)
            .args(["env", "GOVERSION"])
            .env("GOTOOLCHAIN", "local"),
    )
}

fn fetch(folder: &Path) -> Result<()> {
    let known = ARCHIVES
        .iter()
        .find(|(architecture, ..)| *architecture == env::consts::ARCH);
    let (_, platform, digest) = known.with_context(|| {
        format!(
            "no Go is pinned for {}: install Go {}.{} or newer from https://go.dev/dl/",
            env::consts::ARCH,
            OLDEST.0,
            OLDEST.1
        )
    })?;
    fs::create_dir_all(folder)?;
    let archive = folder.join("archive.zip");
    let address = format!("{PROXY}/v0.0.1-go{PINNED}.{platform}.zip");
    command::run(
        Command::new("curl")
            .args([
                "--fail",
                "--silent",
                "--show-error",
                "--location",
                "--retry",
                "3",
                "--output",
            ])
            .arg(&archive)
            .arg(&address),
    )?;
    let mut hash = Sha256::new();
    io::copy(&mut File::open(&archive)?, &mut hash)?;
    let found = format!("{:x}", hash.finalize());
    if found != *digest {
        bail!("{address} is not what was pinned: its digest is {found}, not {digest}");
    }
    command::run(
        Command::new("unzip")
            .args(["-q", "-o"])
            .arg(&archive)
            .arg("-d")
            .arg(folder),
    )?;
    fs::remove_file(&archive)?;
    let inner = folder.join(format!("golang.org/toolchain@v0.0.1-go{PINNED}.{platform}"));
    for entry in fs::read_dir(&inner)? {
        let entry = entry?;
        fs::rename(entry.path(), folder.join(entry.file_name()))?;
    }
    cache::remove(&folder.join("golang.org"))?;
    // A module may hold neither another module nor a file one may run: the archive has them renamed, and without that mode.
    for module in ["src", "src/cmd"] {
        fs::rename(
            folder.join(module).join("_go.mod"),
            folder.join(module).join("go.mod"),
        )?;
    }
    ["bin", "pkg/tool"]
        .iter()
        .try_for_each(|programs| make_runnable(&folder.join(programs)))
}

fn make_runnable(path: &Path) -> Result<()> {
    if path.is_dir() {
        return fs::read_dir(path)?.try_for_each(|entry| make_runnable(&entry?.path()));
    }
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// `go1.26.8` → (1, 26)
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix("go")?.split(['.', '-', 'r', 'b', ' ']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_releases_are_compared_as_numbers() {
        assert_eq!(release("go1.26.8"), Some((1, 26)));
        assert_eq!(release("go1.26rc1"), Some((1, 26)));
        assert!(release("go1.9") < Some(OLDEST));
        assert_eq!(release("devel +abc"), None);
    }

    #[test]
    fn the_pinned_go_is_new_enough() {
        assert!(release(&format!("go{PINNED}")) >= Some(OLDEST));
    }
}

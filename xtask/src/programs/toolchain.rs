//! Go itself: the machine's own, if it is new enough. Looks at PATH.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::command;

/// Older ones cannot build the pinned modules.
const OLDEST: (u32, u32) = (1, 26);

/// A `go` to run, and what it calls itself.
#[derive(Debug, Clone)]
pub struct Toolchain {
    pub program: PathBuf,
    pub version: String,
}

pub fn find() -> Result<Toolchain> {
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
    bail!(
        "Go {}.{} or newer is needed to build Kubernetes, and none is on PATH or in /usr/local/go: install it and run this again",
        OLDEST.0,
        OLDEST.1
    );
}

fn version(program: &Path) -> Result<String> {
    command::output(
        Command::new(program)
            .args(["env", "GOVERSION"])
            .env("GOTOOLCHAIN", "local"),
    )
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
}

//! The programs of the local Kubernetes, built from pinned Go modules, once per machine, into the cache.
//!
//! `pins` says what, `build` makes it with the Go that `toolchain` finds. A program's folder in the cache is named by everything that decides its bytes, so a
//! changed pin is a different folder and an unchanged one is found again by any checkout.

pub mod build;
pub mod coreos_era;
pub mod pins;
pub mod toolchain;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use pins::{COREDNS, ETCD, ETCD_OF_THE_CONTROL_PLANE, KUBERNETES, Program, VERSITYGW};

use crate::{cache::Cache, packages, progress};

/// A program whose files are in the cache.
#[derive(Debug, Clone)]
pub struct Built {
    pub program: Program,
    folder: PathBuf,
}

impl Built {
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Stands for its bytes.
    pub fn key(&self) -> String {
        self.folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

/// What `ensure` made or found.
#[derive(Debug, Clone)]
pub struct Programs {
    built: Vec<Built>,
}

impl Programs {
    pub fn get(&self, program: &Program) -> Result<&Built> {
        self.built
            .iter()
            .find(|built| built.program == *program)
            .with_context(|| format!("{program} was not asked for"))
    }

    /// The file of a program that has only one.
    pub fn file(&self, program: &Program) -> Result<PathBuf> {
        Ok(self.get(program)?.file(program.name()))
    }

    pub fn etcd(&self, version: &str) -> Result<&Built> {
        self.get(&Program::Etcd(version.to_owned()))
    }
}

/// Builds what is missing of `wanted`, in that order, and says so.
pub fn ensure(cache: &Cache, wanted: &[Program]) -> Result<Programs> {
    let go = build::Go::new(toolchain::find()?);
    let folder_of = |program: &Program| {
        cache.binaries().join(format!(
            "{}-{}",
            program.folder(),
            program.key(go.version())
        ))
    };
    let missing: Vec<_> = wanted
        .iter()
        .filter(|program| !folder_of(program).exists())
        .collect();
    if !missing.is_empty() {
        progress::say(&format!(
            "{} of {} programs are not in the cache yet ({}): building them, once.",
            missing.len(),
            wanted.len(),
            cache.binaries().display()
        ));
        packages::ensure_for_building()?;
    }
    for (number, program) in missing.iter().enumerate() {
        let label = format!("[{}/{}] {program}", number + 1, missing.len());
        build_once(cache, &go, program, &folder_of(program), &label)?;
    }
    Ok(Programs {
        built: wanted
            .iter()
            .map(|program| Built {
                program: program.clone(),
                folder: folder_of(program),
            })
            .collect(),
    })
}

fn build_once(
    cache: &Cache,
    go: &build::Go,
    program: &Program,
    folder: &Path,
    label: &str,
) -> Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let _lock = cache.lock(&format!("build-{name}"), || {
        progress::say(&format!("{label}: waiting for another run that builds it"));
    })?;
    if folder.exists() {
        return Ok(());
    }
    progress::step(label, || go.build(cache, program, folder))
}

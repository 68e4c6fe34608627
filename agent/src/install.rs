//! The agent copies itself, to be run where etcd's tools are.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use etcd_operator_api::orders::Report;

use crate::{disk, failure::Failure};

/// Copies this program to `to`, which appears whole or not at all.
pub(crate) fn install(to: &Path) -> Result<Report, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::file("find", Path::new("this program"), &error))?;
    let mut partial = PathBuf::from(to).into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let copied = || -> io::Result<()> {
        fs::copy(&own, &partial)?;
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o755))?;
        fs::File::open(&partial)?.sync_all()?;
        fs::rename(&partial, to)
    };
    copied().map_err(|error| {
        let _ = disk::remove(&partial);
        Failure::file("copy this program to", to, &error)
    })?;
    Ok(Report::Installed)
}

//! Which real etcd programs there are.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

use etcd_operator_api::Version;

/// `3.5.35=/folder/etcd,3.6.16=/folder/etcd`.
pub(super) const VARIABLE: &str = "ETCD_PROGRAMS";

pub(super) struct Programs(BTreeMap<String, PathBuf>);

impl Programs {
    pub(super) fn given() -> Option<Self> {
        let said = env::var(VARIABLE).ok().filter(|said| !said.is_empty())?;
        let pairs = said.split(',').map(|pair| {
            let (version, file) = pair.split_once('=').unwrap();
            (version.to_owned(), PathBuf::from(file))
        });
        Some(Self(pairs.collect()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.0
            .iter()
            .map(|(version, file)| (version.as_str(), file.as_path()))
    }

    pub(super) fn versions(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

/// Releases that add nobody while anybody is down.
pub(super) fn is_strict(version: &str) -> bool {
    let version: Version = version.parse().unwrap();
    let counts = |from: &str| {
        let from: Version = from.parse().unwrap();
        from.minor() == version.minor() && version >= from
    };
    !["3.5.30", "3.6.11", "3.7.0"].into_iter().any(counts)
}

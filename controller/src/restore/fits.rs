//! Whether a snapshot fits the cluster it is meant for. Asked before anything is touched. Pure.

use etcd_operator_api::{
    ValidatedCluster, Version, quantity::display_bytes, validated::Storage, versions,
};

/// Why it does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(
        "the snapshot was taken from etcd {snapshot}, and the cluster is to run {cluster}: etcd reads its own minor's data and those of \
         the minor before; let `version` be of {minor} or the next"
    )]
    Version {
        snapshot: Version,
        cluster: Version,
        minor: versions::Minor,
    },
    #[error(
        "the snapshot has {} and the quota is {}: etcd would refuse every write; let `options.quotaBackend` be larger",
        display_bytes(*.size),
        display_bytes(*.quota)
    )]
    Quota { size: u64, quota: u64 },
    #[error(
        "the snapshot has {}, each volume {}, and to restore it takes {}: let `storage.size` be larger",
        display_bytes(*.size),
        display_bytes(*.volume),
        display_bytes(room(*.size))
    )]
    Volume { size: u64, volume: u64 },
}

impl Unfit {
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Version { .. } => "VersionDoesNotFit",
            Self::Quota { .. } => "LargerThanQuota",
            Self::Volume { .. } => "LargerThanVolume",
        }
    }
}

/// What a member's volume must hold for a while: the snapshot, the database made of it, and etcd's logs.
const fn room(size: u64) -> u64 {
    const LOGS: u64 = 160 << 20;
    size.saturating_mul(2).saturating_add(LOGS)
}

/// A plain snapshot does not say which etcd it was taken from: then any that this operator knows is tried.
pub(crate) fn fits(
    cluster: &ValidatedCluster,
    taken_from: Option<Version>,
    size: u64,
) -> Result<(), Unfit> {
    if let Some(snapshot) = taken_from {
        let (from, to) = (snapshot.minor(), cluster.version.minor());
        if to != from && to != from.next() {
            return Err(Unfit::Version {
                snapshot,
                cluster: cluster.version,
                minor: from,
            });
        }
    }
    let quota = cluster.options.quota_bytes;
    if size > quota {
        return Err(Unfit::Quota { size, quota });
    }
    match &cluster.storage {
        Storage::Claim(settings) if room(size) > settings.size_bytes => Err(Unfit::Volume {
            size,
            volume: settings.size_bytes,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::fixtures::cluster;

    const GIB: u64 = 1 << 30;

    #[test]
    fn accepts_the_same_minor_the_next_and_what_says_nothing() {
        let target = cluster(json!({"version": "3.6.16"}));
        for taken_from in [None, Some("3.5.35"), Some("3.6.0"), Some("3.6.20")] {
            let taken_from = taken_from.map(|text| text.parse().unwrap());
            assert_eq!(fits(&target, taken_from, GIB), Ok(()));
        }
    }

    #[test]
    fn rejects_what_etcd_could_not_read_or_hold() {
        let target = cluster(json!({"version": "3.6.16"}));
        for taken_from in ["3.7.3", "3.4.45"] {
            let unfit = fits(&target, Some(taken_from.parse().unwrap()), GIB).unwrap_err();
            assert_eq!(unfit.reason(), "VersionDoesNotFit");
        }
        let unfit = fits(&target, None, 3 * GIB).unwrap_err();
        assert_eq!(unfit.reason(), "LargerThanQuota");
        assert!(unfit.to_string().contains("3Gi"), "{unfit}");
        // It is there twice for a moment: to learn that after the old members have stopped would be late.
        let small = cluster(json!({"version": "3.6.16", "storage": {"size": "2Gi"}}));
        assert_eq!(fits(&small, None, GIB / 2), Ok(()));
        let unfit = fits(&small, None, GIB).unwrap_err();
        assert_eq!(unfit.reason(), "LargerThanVolume");
    }
}

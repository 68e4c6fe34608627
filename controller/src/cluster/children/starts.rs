//! How each member's etcd is told to start: one ConfigMap, read by the kubelet at every start of a container.
//!
//! Not in the pod itself, because a pod cannot be changed and what is right at a member's first start is wrong ever after:
//! a member that has served once must never again start on an empty data directory.

use std::collections::BTreeMap;

use etcd_operator_api::ValidatedCluster;
use k8s_openapi::api::core::v1::ConfigMap;

use super::labels;
use crate::cluster::{
    names,
    observed::{Observed, Start},
};

/// The key that holds a member's `initial-cluster`.
pub(crate) fn cluster_key(member: &str) -> String {
    member.to_owned()
}

/// The key that holds a member's `initial-cluster-state`.
pub(crate) fn state_key(member: &str) -> String {
    format!("{member}.state")
}

/// What each member should be told, from what is known now.
pub(crate) fn desired(cluster: &ValidatedCluster, seen: &Observed) -> BTreeMap<String, Start> {
    let founders: Vec<String> = seen
        .bootstrap
        .iter()
        .flat_map(|record| &record.members)
        .map(|founder| founder.name.clone())
        .collect();
    let seeded = seen
        .bootstrap
        .as_ref()
        .is_some_and(|record| record.seed.is_some());
    let resume = |name: &String| Start::Resume {
        initial_cluster: names::initial_cluster(cluster, [name]),
    };
    // A founder that starts from a snapshot must find it: an empty one would be taken for a restored one by the others.
    let founding = |name: &String| {
        if seeded {
            return resume(name);
        }
        Start::Bootstrap {
            initial_cluster: names::initial_cluster(cluster, &founders),
        }
    };
    if seen.quorum.is_none() {
        // Nobody can say who has started: what is written stays as it is. Before the first quorum, founders found.
        let mut starts = seen.starts.clone();
        if seen.cluster_id.is_some() {
            // An entry that was lost: on its own data a member needs none of it, and without data it must not start.
            for name in seen
                .members
                .iter()
                .filter(|(_, member)| member.claim.is_some())
                .map(|(name, _)| name)
            {
                starts.entry(name.clone()).or_insert_with(|| resume(name));
            }
        } else {
            for founder in &founders {
                let start = founding(founder);
                starts.entry(founder.clone()).or_insert(start);
            }
        }
        return starts;
    }
    let listed: Vec<&String> = seen
        .members
        .iter()
        .filter(|(_, member)| member.listed.is_some())
        .map(|(name, _)| name)
        .collect();
    let unchanged =
        listed.len() == founders.len() && listed.iter().all(|name| founders.contains(name));
    seen.members
        .iter()
        .filter_map(|(name, member)| {
            let start = if member.listed.as_ref()?.started {
                resume(name)
            } else if unchanged {
                founding(name)
            } else {
                Start::Join {
                    initial_cluster: names::initial_cluster(cluster, listed.iter().copied()),
                }
            };
            Some((name.clone(), start))
        })
        .collect()
}

pub(crate) fn config_map(
    cluster: &ValidatedCluster,
    starts: &BTreeMap<String, Start>,
) -> ConfigMap {
    let data = starts
        .iter()
        .flat_map(|(member, start)| {
            [
                (cluster_key(member), start.initial_cluster().to_owned()),
                (state_key(member), start.state().to_owned()),
            ]
        })
        .collect();
    ConfigMap {
        metadata: labels::metadata(cluster, &cluster.name, labels::of_cluster(cluster)),
        data: Some(data),
        ..ConfigMap::default()
    }
}

/// Reads back what `config_map` wrote.
pub(crate) fn read(config_map: &ConfigMap) -> BTreeMap<String, Start> {
    let data = config_map.data.iter().flatten();
    data.filter_map(|(key, state)| {
        let member = key.strip_suffix(".state")?;
        let initial_cluster = config_map.data.as_ref()?.get(&cluster_key(member))?.clone();
        let start = match state.as_str() {
            "new" => Start::Bootstrap { initial_cluster },
            _ if initial_cluster.contains(',') => Start::Join { initial_cluster },
            _ => Start::Resume { initial_cluster },
        };
        Some((member.to_owned(), start))
    })
    .collect()
}

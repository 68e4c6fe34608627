//! etcd's command line for one member, as its own minor understands it.

use std::collections::BTreeMap;

use etcd_operator_api::{ValidatedCluster, validated::AutoCompaction, versions::CorruptionCheck};

use super::{
    services::{CLIENT_PORT, METRICS_PORT, PEER_PORT},
    tls,
};
use crate::cluster::names;

pub(crate) const DATA_DIR: &str = "/var/etcd/data";

/// The whole command line. Flags the user's spec decides come from `from_options`; the rest is ours.
/// `initial-cluster` and its state come by environment, from the cluster's ConfigMap.
pub(crate) fn arguments(cluster: &ValidatedCluster, member: &str) -> Vec<String> {
    let mut flags = from_options(cluster);
    let mut set = |flag: &str, value: String| {
        flags.insert(flag.to_owned(), value);
    };
    let (peer_scheme, client_scheme) = (cluster.peer_tls.scheme(), cluster.client_tls.scheme());
    set("name", member.to_owned());
    set("data-dir", DATA_DIR.to_owned());
    set("initial-cluster-token", names::token(cluster));
    set(
        "initial-advertise-peer-urls",
        names::peer_url(cluster, member),
    );
    set(
        "listen-peer-urls",
        format!("{peer_scheme}://0.0.0.0:{PEER_PORT}"),
    );
    set("advertise-client-urls", names::client_url(cluster, member));
    set(
        "listen-client-urls",
        format!("{client_scheme}://0.0.0.0:{CLIENT_PORT}"),
    );
    let abilities = cluster.version.abilities();
    if abilities.listen_metrics_urls {
        // Plain HTTP, so that probes and Prometheus need no client certificate.
        set(
            "listen-metrics-urls",
            format!("http://0.0.0.0:{METRICS_PORT}"),
        );
    }
    match abilities.corruption_check {
        CorruptionCheck::None => {}
        CorruptionCheck::InitialFlag => {
            set("experimental-initial-corrupt-check", "true".to_owned());
        }
        CorruptionCheck::InitialAndCompactHashFlags => {
            set("experimental-initial-corrupt-check", "true".to_owned());
            set("experimental-compact-hash-check-enabled", "true".to_owned());
        }
        CorruptionCheck::FeatureGates => {
            let mut gates: BTreeMap<String, bool> = cluster.feature_gates.clone();
            for gate in ["InitialCorruptCheck", "CompactHashCheck"] {
                gates.entry(gate.to_owned()).or_insert(true);
            }
            let gates: Vec<String> = gates
                .iter()
                .map(|(gate, on)| format!("{gate}={on}"))
                .collect();
            set("feature-gates", gates.join(","));
        }
    }
    if let Some(mounted) = tls::peer(cluster, member) {
        set("peer-cert-file", mounted.certificate_file());
        set("peer-key-file", mounted.key_file());
        set("peer-trusted-ca-file", mounted.authority_file());
        set("peer-client-cert-auth", "true".to_owned());
    }
    if let Some(mounted) = tls::server(cluster, member) {
        set("cert-file", mounted.certificate_file());
        set("key-file", mounted.key_file());
        set("trusted-ca-file", mounted.authority_file());
        if cluster.client_tls.client_auth() {
            set("client-cert-auth", "true".to_owned());
        }
    }
    flags
        .into_iter()
        .map(|(flag, value)| format!("--{flag}={value}"))
        .collect()
}

/// What the spec's `options` say, as flags.
pub(crate) fn from_options(cluster: &ValidatedCluster) -> BTreeMap<String, String> {
    let options = &cluster.options;
    let mut flags = BTreeMap::new();
    let mut set = |flag: &str, value: String| {
        flags.insert(flag.to_owned(), value);
    };
    set("quota-backend-bytes", options.quota_bytes.to_string());
    set("heartbeat-interval", options.heartbeat_ms.to_string());
    set("election-timeout", options.election_ms.to_string());
    let with_mode = cluster.version.abilities().auto_compaction_mode;
    match &options.auto_compaction {
        AutoCompaction::Off => {}
        AutoCompaction::Periodic(retention) if with_mode => {
            set("auto-compaction-mode", "periodic".to_owned());
            set(
                "auto-compaction-retention",
                format!("{}s", retention.as_secs().max(1)),
            );
        }
        // Before it had modes, etcd counted whole hours.
        AutoCompaction::Periodic(retention) => {
            set(
                "auto-compaction-retention",
                (retention.as_secs() / 3600).max(1).to_string(),
            );
        }
        AutoCompaction::Revision(revisions) => {
            set("auto-compaction-mode", "revision".to_owned());
            set("auto-compaction-retention", revisions.to_string());
        }
    }
    let numbers = [
        ("snapshot-count", options.snapshot_count),
        ("max-request-bytes", options.max_request_bytes),
        ("max-txn-ops", options.max_txn_ops),
    ];
    for (flag, number) in numbers {
        if let Some(number) = number {
            set(flag, number.to_string());
        }
    }
    if let Some(level) = options.log_level {
        set("log-level", level.as_str().to_owned());
    }
    if let Some(metrics) = options.metrics {
        set("metrics", metrics.as_str().to_owned());
    }
    flags.extend(cluster.extra_args.clone());
    flags
}

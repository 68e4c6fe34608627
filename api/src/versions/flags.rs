//! Which command-line flags each etcd minor has.
//!
//! Taken from etcd's own sources (`etcdmain/config.go`, `embed/config.go` of 3.1.10, 3.2.13, 3.3.27, 3.4.31, 3.5.35, 3.6.16
//! and 3.7.3). etcd does not start with a flag it does not know, so this table decides before a member is asked to.

use super::Minor;

struct Flag {
    name: &'static str,
    first: Minor,
    last: Option<Minor>,
}

const fn flag(name: &'static str, first: u32, last: Option<u32>) -> Flag {
    Flag {
        name,
        first: Minor::new(3, first),
        last: match last {
            Some(last) => Some(Minor::new(3, last)),
            None => None,
        },
    }
}

/// Name, the minor (of 3) that first has it, and the last one where it was removed since. Sorted by name.
const FLAGS: &[Flag] = &[
    flag("advertise-client-urls", 1, None),
    flag("auth-token", 2, None),
    flag("auth-token-ttl", 3, None),
    flag("auto-compaction-mode", 3, None),
    flag("auto-compaction-retention", 1, None),
    flag("auto-tls", 1, None),
    flag("backend-batch-interval", 4, None),
    flag("backend-batch-limit", 4, None),
    flag("backend-bbolt-freelist-type", 5, None),
    flag("bcrypt-cost", 4, None),
    flag("bootstrap-defrag-threshold-megabytes", 6, None),
    flag("ca-file", 1, Some(3)),
    flag("cert-file", 1, None),
    flag("cipher-suites", 3, None),
    flag("client-cert-allowed-hostname", 4, None),
    flag("client-cert-auth", 1, None),
    flag("client-cert-file", 5, None),
    flag("client-crl-file", 3, None),
    flag("client-key-file", 5, None),
    flag("compact-hash-check-time", 6, None),
    flag("compaction-batch-limit", 6, None),
    flag("compaction-sleep-interval", 6, None),
    flag("config-file", 1, None),
    flag("corrupt-check-time", 6, None),
    flag("cors", 1, None),
    flag("data-dir", 1, None),
    flag("debug", 1, Some(4)),
    flag("discovery", 1, Some(6)),
    flag("discovery-cacert", 6, None),
    flag("discovery-cert", 6, None),
    flag("discovery-dial-timeout", 6, None),
    flag("discovery-endpoints", 6, None),
    flag("discovery-fallback", 1, None),
    flag("discovery-insecure-skip-tls-verify", 6, None),
    flag("discovery-insecure-transport", 6, None),
    flag("discovery-keepalive-time", 6, None),
    flag("discovery-keepalive-timeout", 6, None),
    flag("discovery-key", 6, None),
    flag("discovery-password", 6, None),
    flag("discovery-proxy", 1, Some(6)),
    flag("discovery-request-timeout", 6, None),
    flag("discovery-srv", 1, None),
    flag("discovery-srv-name", 4, None),
    flag("discovery-token", 6, None),
    flag("discovery-user", 6, None),
    flag("distributed-tracing-address", 6, None),
    flag("distributed-tracing-instance-id", 6, None),
    flag("distributed-tracing-sampling-rate", 6, None),
    flag("distributed-tracing-service-name", 6, None),
    flag("downgrade-check-time", 6, None),
    flag("election-timeout", 1, None),
    flag("enable-distributed-tracing", 6, None),
    flag("enable-grpc-gateway", 4, None),
    flag("enable-log-rotation", 5, None),
    flag("enable-pprof", 1, None),
    flag("enable-v2", 2, Some(5)),
    flag("experimental-backend-bbolt-freelist-type", 4, Some(4)),
    flag(
        "experimental-bootstrap-defrag-threshold-megabytes",
        5,
        Some(6),
    ),
    flag("experimental-compact-hash-check-enabled", 5, Some(6)),
    flag("experimental-compact-hash-check-time", 5, Some(6)),
    flag("experimental-compaction-batch-limit", 4, Some(6)),
    flag("experimental-compaction-sleep-interval", 5, Some(6)),
    flag("experimental-corrupt-check-time", 3, Some(6)),
    flag("experimental-distributed-tracing-address", 5, Some(6)),
    flag("experimental-distributed-tracing-instance-id", 5, Some(6)),
    flag("experimental-distributed-tracing-sampling-rate", 5, Some(6)),
    flag("experimental-distributed-tracing-service-name", 5, Some(6)),
    flag("experimental-downgrade-check-time", 5, Some(6)),
    flag("experimental-enable-distributed-tracing", 5, Some(6)),
    flag("experimental-enable-lease-checkpoint", 4, Some(6)),
    flag("experimental-enable-lease-checkpoint-persist", 4, Some(6)),
    flag("experimental-enable-v2v3", 3, Some(5)),
    flag("experimental-initial-corrupt-check", 3, Some(6)),
    flag("experimental-memory-mlock", 5, Some(6)),
    flag("experimental-peer-skip-client-san-verification", 3, Some(6)),
    flag("experimental-snapshot-catchup-entries", 5, Some(6)),
    flag("experimental-stop-grpc-service-on-defrag", 5, Some(6)),
    flag("experimental-txn-mode-write-with-shared-buffer", 5, Some(6)),
    flag("experimental-warning-apply-duration", 4, Some(6)),
    flag("experimental-warning-unary-request-duration", 6, Some(6)),
    flag("experimental-watch-progress-notify-interval", 4, Some(6)),
    flag("feature-gates", 6, None),
    flag("force-new-cluster", 1, None),
    flag("grpc-keepalive-interval", 2, None),
    flag("grpc-keepalive-min-time", 2, None),
    flag("grpc-keepalive-timeout", 2, None),
    flag("heartbeat-interval", 1, None),
    flag("host-whitelist", 4, None),
    flag("initial-advertise-peer-urls", 1, None),
    flag("initial-cluster", 1, None),
    flag("initial-cluster-state", 1, None),
    flag("initial-cluster-token", 1, None),
    flag("initial-election-tick-advance", 3, None),
    flag("key-file", 1, None),
    flag("listen-client-http-urls", 4, None),
    flag("listen-client-urls", 1, None),
    flag("listen-metrics-urls", 3, None),
    flag("listen-peer-urls", 1, None),
    flag("log-format", 6, None),
    flag("log-level", 4, None),
    flag("log-output", 1, Some(4)),
    flag("log-outputs", 4, None),
    flag("log-package-levels", 1, Some(4)),
    flag("log-rotation-config-json", 5, None),
    flag("logger", 4, None),
    flag("max-concurrent-streams", 4, None),
    flag("max-learners", 6, None),
    flag("max-request-bytes", 2, None),
    flag("max-snapshots", 1, None),
    flag("max-txn-ops", 3, None),
    flag("max-wals", 1, None),
    flag("memory-mlock", 6, None),
    flag("metrics", 1, None),
    flag("name", 1, None),
    flag("next-cluster-version-compatible", 4, Some(4)),
    flag("peer-auto-tls", 1, None),
    flag("peer-ca-file", 1, Some(3)),
    flag("peer-cert-allowed-cn", 3, None),
    flag("peer-cert-allowed-hostname", 4, None),
    flag("peer-cert-file", 1, None),
    flag("peer-client-cert-auth", 1, None),
    flag("peer-client-cert-file", 5, None),
    flag("peer-client-key-file", 5, None),
    flag("peer-crl-file", 3, None),
    flag("peer-key-file", 1, None),
    flag("peer-skip-client-san-verification", 6, None),
    flag("peer-trusted-ca-file", 1, None),
    flag("pre-vote", 4, None),
    flag("proxy", 1, Some(5)),
    flag("proxy-dial-timeout", 1, Some(5)),
    flag("proxy-failure-wait", 1, Some(5)),
    flag("proxy-read-timeout", 1, Some(5)),
    flag("proxy-refresh-interval", 1, Some(5)),
    flag("proxy-write-timeout", 1, Some(5)),
    flag("quota-backend-bytes", 1, None),
    flag("raft-read-timeout", 5, None),
    flag("raft-write-timeout", 5, None),
    flag("self-signed-cert-validity", 5, None),
    flag("snapshot-catchup-entries", 6, None),
    flag("snapshot-count", 1, None),
    flag("socket-reuse-address", 5, None),
    flag("socket-reuse-port", 5, None),
    flag("strict-reconfig-check", 1, None),
    flag("tls-max-version", 4, None),
    flag("tls-min-version", 4, None),
    flag("trusted-ca-file", 1, None),
    flag("unsafe-no-fsync", 4, None),
    flag("v2-deprecation", 5, None),
    flag("version", 1, None),
    flag("wal-dir", 1, None),
    flag("warning-apply-duration", 6, None),
    flag("warning-unary-request-duration", 6, None),
    flag("watch-progress-notify-interval", 6, None),
];

/// Where a flag stands in a minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagPresence {
    /// This minor has it.
    Present,
    /// It came later.
    NotYet { first: Minor },
    /// It was removed.
    NoLonger { last: Minor },
    /// No etcd this operator knows has it.
    Unknown,
}

/// Where `name` (without dashes) stands in `minor`.
pub fn presence(name: &str, minor: Minor) -> FlagPresence {
    let Ok(found) = FLAGS.binary_search_by(|flag| flag.name.cmp(name)) else {
        return FlagPresence::Unknown;
    };
    let flag = &FLAGS[found];
    match flag.last {
        Some(last) if minor > last => FlagPresence::NoLonger { last },
        _ if minor < flag.first => FlagPresence::NotYet { first: flag.first },
        _ => FlagPresence::Present,
    }
}

/// Every flag that `minor` has.
pub fn names(minor: Minor) -> impl Iterator<Item = &'static str> {
    FLAGS
        .iter()
        .filter(move |flag| minor >= flag.first && flag.last.is_none_or(|last| minor <= last))
        .map(|flag| flag.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn m(minor: u32) -> Minor {
        Minor::new(3, minor)
    }

    #[test]
    fn the_table_is_sorted_so_that_lookups_find() {
        assert!(FLAGS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn each_minor_has_as_many_flags_as_its_source_defines() {
        for (minor, count) in [
            (1, 49),
            (2, 55),
            (3, 68),
            (4, 90),
            (5, 112),
            (6, 138),
            (7, 113),
        ] {
            assert_eq!(names(m(minor)).count(), count, "3.{minor}");
        }
    }

    #[test]
    fn removed_flags_name_the_last_minor_that_had_them() {
        assert_eq!(
            presence("enable-v2", m(6)),
            FlagPresence::NoLonger { last: m(5) }
        );
        assert_eq!(presence("enable-v2", m(5)), FlagPresence::Present);
        assert_eq!(
            presence("experimental-initial-corrupt-check", m(7)),
            FlagPresence::NoLonger { last: m(6) }
        );
        assert_eq!(
            presence("discovery", m(7)),
            FlagPresence::NoLonger { last: m(6) }
        );
    }

    #[test]
    fn later_flags_name_the_first_minor_that_has_them() {
        assert_eq!(
            presence("max-learners", m(5)),
            FlagPresence::NotYet { first: m(6) }
        );
        assert_eq!(
            presence("listen-metrics-urls", m(2)),
            FlagPresence::NotYet { first: m(3) }
        );
        assert_eq!(presence("feature-gates", m(6)), FlagPresence::Present);
    }

    #[test]
    fn what_etcd_never_had_is_unknown() {
        assert_eq!(presence("snapshot-cuont", m(6)), FlagPresence::Unknown);
    }
}

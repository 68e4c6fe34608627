//! For every rule an object that breaks it, alone.
//!
//! Public, because the same list is walked three times: by the tests here, through a real API server with and without the
//! webhook, and by the documentation that shows each refusal.

mod backups;
mod pods;

use serde_json::{Value, json};

use crate::policy::Policy;
use crate::validation::{Judgement, Reason, judge, judge_backup, judge_restore};

pub use backups::{backup, restore};

/// An object that breaks one rule.
#[derive(Clone, Debug)]
pub struct Example {
    /// The rule.
    pub reason: Reason,
    /// What is wrong with it, in a few words.
    pub what: &'static str,
    /// For rules about changes: what is stored before. Its status is what runs.
    pub old: Option<Value>,
    /// What is asked for.
    pub new: Value,
    /// Whether the API server refuses it by itself, by CEL or by its schema.
    pub by_api_server: bool,
}

/// A cluster with this spec.
pub fn cluster(spec: Value) -> Value {
    let mut cluster = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "example", "namespace": "default"},
    });
    cluster["spec"] = spec;
    cluster
}

/// The same, running this version on these members.
fn running(spec: Value, versions: &[&str]) -> Value {
    let mut cluster = cluster(spec);
    let members: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(index, version)| json!({"name": format!("example-{index}"), "version": version, "healthy": true}))
        .collect();
    cluster["status"] = json!({
        "currentVersion": versions.first(),
        "memberStatus": members,
        "bootstrap": {"token": "example"},
    });
    cluster
}

fn made(reason: Reason, what: &'static str, spec: Value) -> Example {
    Example {
        reason,
        what,
        old: None,
        new: cluster(spec),
        by_api_server: true,
    }
}

fn changed(reason: Reason, what: &'static str, old: Value, new: Value) -> Example {
    Example {
        reason,
        what,
        old: Some(cluster(old)),
        new: cluster(new),
        by_api_server: true,
    }
}

fn moved(reason: Reason, what: &'static str, runs: &[&str], to: &str) -> Example {
    let old = running(json!({"version": runs.first()}), runs);
    let mut new = old.clone();
    new["spec"]["version"] = json!(to);
    Example {
        reason,
        what,
        old: Some(old),
        new,
        by_api_server: false,
    }
}

impl Example {
    /// `EtcdCluster`, `EtcdBackup` or `EtcdRestore`.
    pub fn kind(&self) -> &str {
        self.new["kind"].as_str().unwrap_or_default()
    }

    /// What admission says of it.
    pub fn judge(&self, policy: &Policy) -> serde_json::Result<Judgement> {
        fn both<T: serde::de::DeserializeOwned>(
            example: &Example,
        ) -> serde_json::Result<(T, Option<T>)> {
            let old = example
                .old
                .clone()
                .map(serde_json::from_value)
                .transpose()?;
            Ok((serde_json::from_value(example.new.clone())?, old))
        }
        Ok(match self.kind() {
            "EtcdBackup" => {
                let (new, old) = both(self)?;
                judge_backup(&new, old.as_ref(), policy)
            }
            "EtcdRestore" => {
                let (new, old) = both(self)?;
                judge_restore(&new, old.as_ref(), policy)
            }
            _ => {
                let (new, old) = both(self)?;
                judge(&new, old.as_ref(), policy)
            }
        })
    }

    /// The same example with what stood before as the object that is made.
    pub fn before(&self) -> Option<Self> {
        Some(Self {
            new: self.old.clone()?,
            old: None,
            ..self.clone()
        })
    }

    /// Only the webhook and the controller can tell.
    fn webhook_only(mut self) -> Self {
        self.by_api_server = false;
        self
    }
}

fn named(reason: Reason, what: &'static str, name: &str) -> Example {
    let mut example = made(reason, what, json!({}));
    example.new["metadata"]["name"] = json!(name);
    example
}

fn seeded(text: &str) -> Example {
    let what = "a seed that names no snapshot";
    let mut example = made(Reason::SeedInvalid, what, json!({})).webhook_only();
    let seed = json!({(crate::v1beta2::SEED): text});
    example.new["metadata"]["annotations"] = seed;
    example
}

/// One example or more for every rule that an object alone, or a change of it, can break.
pub fn breaking() -> Vec<Example> {
    [
        basics(),
        vec![seeded("{}")],
        versions(),
        storage(),
        options(),
        flags(),
        tls(),
        pods::of_pods(),
        backups::of_subjects(),
        backups::of_stores(),
        backups::of_times(),
        backups::of_restores(),
    ]
    .concat()
}

fn basics() -> Vec<Example> {
    use Reason::{
        BackupNameMissing, MaxAgeOutOfBounds, NameNotALabel, NameTooLong, RepositoryInvalid,
        SizeNotAllowed, UnreachableAfterOutOfBounds,
    };
    vec![
        named(NameTooLong, "a name of 41 characters", &"a".repeat(41)),
        named(
            NameNotALabel,
            "a name that no Service can carry",
            "3.example",
        ),
        made(SizeNotAllowed, "an even size", json!({"size": 4})),
        made(SizeNotAllowed, "no member", json!({"size": 0})),
        made(SizeNotAllowed, "too many members", json!({"size": 9})),
        made(
            RepositoryInvalid,
            "a repository with a tag",
            json!({"repository": "quay.io/coreos/etcd:v3.5.21"}),
        ),
        made(
            UnreachableAfterOutOfBounds,
            "no patience",
            json!({"recovery": {"unreachableAfter": "1s"}}),
        ),
        made(
            BackupNameMissing,
            "backups of which nobody says whose",
            json!({"backup": {"maxAge": "26h"}}),
        ),
        made(
            MaxAgeOutOfBounds,
            "a backup that is too old at once",
            json!({"backup": {"backupName": "nightly", "maxAge": "1m"}}),
        ),
    ]
}

fn versions() -> Vec<Example> {
    use Reason::{
        VersionBelowFloor, VersionCannotGoDown, VersionKnownBad, VersionSkipsMinor, VersionSyntax,
        VersionUnknown, VersionWhileMixed,
    };
    vec![
        made(VersionSyntax, "no version", json!({"version": "latest"})),
        made(
            VersionUnknown,
            "a minor this operator does not know",
            json!({"version": "3.99.0"}),
        ),
        made(
            VersionKnownBad,
            "a patch that loses data",
            json!({"version": "3.5.1"}),
        ),
        moved(VersionSkipsMinor, "two minors up", &["3.5.35"], "3.7.3"),
        moved(
            VersionBelowFloor,
            "a minor up from an old patch",
            &["3.5.21"],
            "3.6.16",
        ),
        moved(
            VersionCannotGoDown,
            "a minor down before 3.6",
            &["3.5.35"],
            "3.4.31",
        ),
        moved(VersionCannotGoDown, "two minors down", &["3.7.3"], "3.5.35"),
        moved(
            VersionWhileMixed,
            "a third minor while members differ",
            &["3.6.16", "3.7.3"],
            "3.5.35",
        ),
    ]
}

fn storage() -> Vec<Example> {
    use Reason::{
        ClaimImmutable, ClaimInvalid, QuantityInvalid, QuantityNotPositive,
        StorageEphemeralConflict, StorageImmutable, StorageNotLargerThanQuota, StorageShrinks,
        StorageTwice,
    };
    let claim = |size: &str| json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
    let of_claim = |claim: Value| json!({"pod": {"persistentVolumeClaimSpec": claim}});
    let with = |field: &str, value: Value| {
        let mut claim = claim("8Gi");
        claim[field] = value;
        of_claim(claim)
    };
    vec![
        made(
            QuantityInvalid,
            "no quantity",
            json!({"storage": {"size": "large"}}),
        ),
        made(
            QuantityNotPositive,
            "no storage",
            json!({"storage": {"size": "0"}}),
        ),
        made(
            StorageTwice,
            "two ways at once",
            json!({"storage": {"size": "8Gi"}, "pod": {"persistentVolumeClaimSpec": claim("8Gi")}}),
        ),
        made(
            StorageEphemeralConflict,
            "a class without volumes",
            json!({"storage": {"ephemeral": true, "className": "fast"}}),
        ),
        made(
            StorageEphemeralConflict,
            "volumes kept that are not there",
            json!({"storage": {"ephemeral": true, "reclaim": "Retain"}}),
        ),
        made(
            StorageNotLargerThanQuota,
            "no room for the log",
            json!({"storage": {"size": "4Gi"}, "options": {"quotaBackend": "4Gi"}}),
        ),
        made(
            StorageNotLargerThanQuota,
            "a quota above the default volume",
            json!({"options": {"quotaBackend": "8Gi"}}),
        ),
        changed(
            StorageShrinks,
            "a smaller volume",
            json!({"storage": {"size": "10Gi"}}),
            json!({"storage": {"size": "9Gi"}}),
        ),
        changed(
            StorageShrinks,
            "a size dropped",
            json!({"storage": {"size": "10Gi"}}),
            json!({}),
        ),
        changed(
            StorageImmutable,
            "another class",
            json!({"storage": {"className": "a"}}),
            json!({"storage": {"className": "b"}}),
        ),
        changed(
            StorageImmutable,
            "a class added",
            json!({}),
            json!({"storage": {"className": "b"}}),
        ),
        changed(
            StorageImmutable,
            "volumes given up",
            json!({}),
            json!({"storage": {"ephemeral": true}}),
        ),
        changed(
            StorageImmutable,
            "volumes where there were none",
            json!({"storage": {"ephemeral": true}}),
            json!({}),
        ),
        made(
            ClaimInvalid,
            "a claim without size",
            json!({"pod": {"persistentVolumeClaimSpec": {"accessModes": ["ReadWriteOnce"]}}}),
        ),
        made(
            ClaimInvalid,
            "a claim nobody can write",
            with("accessModes", json!(["ReadOnlyMany"])),
        ),
        made(
            ClaimInvalid,
            "a block device",
            with("volumeMode", json!("Block")),
        ),
        made(
            ClaimInvalid,
            "one volume for all",
            with("volumeName", json!("pv-1")),
        ),
        made(
            ClaimInvalid,
            "a volume with data in it",
            with("dataSource", json!({"kind": "VolumeSnapshot", "name": "s"})),
        ),
        changed(
            ClaimImmutable,
            "another class in the claim",
            with("storageClassName", json!("a")),
            with("storageClassName", json!("b")),
        ),
        changed(
            ClaimImmutable,
            "a claim given up",
            of_claim(claim("8Gi")),
            json!({}),
        ),
        changed(
            ClaimImmutable,
            "a claim in place of storage",
            json!({"storage": {"size": "8Gi"}}),
            of_claim(claim("8Gi")),
        ),
        changed(
            StorageShrinks,
            "a smaller claim",
            of_claim(claim("8Gi")),
            of_claim(claim("7Gi")),
        ),
    ]
}

fn options() -> Vec<Example> {
    use Reason::{
        CompactionInvalid, CompactionNeedsNewerEtcd, DurationInvalid, ElectionOutOfBounds,
        ElectionTooShort, HeartbeatOutOfBounds, OptionNeedsNewerEtcd, OutOfBounds,
    };
    let options = |options: Value| json!({"options": options});
    let compaction = |spec: Value| json!({"options": {"autoCompaction": spec}});
    vec![
        made(DurationInvalid, "no duration", options(json!({"heartbeatInterval": "fast"}))),
        made(HeartbeatOutOfBounds, "too fast a heartbeat", options(json!({"heartbeatInterval": "1ms"}))),
        made(ElectionOutOfBounds, "too slow an election", options(json!({"electionTimeout": "51s"}))),
        made(ElectionTooShort, "an election within four heartbeats", options(json!({"heartbeatInterval": "250ms", "electionTimeout": "1s"}))),
        made(OutOfBounds, "too few transactions between snapshots", options(json!({"snapshotCount": 1}))),
        made(OutOfBounds, "too large requests", options(json!({"maxRequestBytes": 1_000_000_000}))),
        made(OutOfBounds, "no operation in a transaction", options(json!({"maxTxnOps": 0}))),
        made(CompactionInvalid, "a number for a period", compaction(json!({"mode": "Periodic", "retention": 1000}))),
        made(CompactionInvalid, "a period for a number", compaction(json!({"mode": "Revision", "retention": "1h"}))),
        made(CompactionInvalid, "no number of revisions", compaction(json!({"mode": "Revision"}))),
        made(CompactionInvalid, "a retention without compaction", compaction(json!({"mode": "Off", "retention": "1h"}))),
        made(
            CompactionNeedsNewerEtcd,
            "compaction by revision before 3.3",
            json!({"version": "3.2.32", "options": {"autoCompaction": {"mode": "Revision", "retention": 1000}}}),
        )
        .webhook_only(),
        made(OptionNeedsNewerEtcd, "a log level before 3.4", json!({"version": "3.3.27", "options": {"logLevel": "debug"}}))
            .webhook_only(),
    ]
}

fn flags() -> Vec<Example> {
    use Reason::{
        FlagHasField, FlagMalformed, FlagNotInMinor, FlagOwned, FlagUnknown, OptionInvalid,
        OptionTwice, VariableInvalid,
    };
    let args = |flag: &str, value: &str| json!({"version": "3.6.16", "options": {"extraArgs": {flag: value}}});
    let env =
        |name: &str, value: &str| json!({"pod": {"etcdEnv": [{"name": name, "value": value}]}});
    vec![
        made(FlagMalformed, "dashes in front", args("--max-wals", "5")),
        made(FlagOwned, "a flag of the operator's", args("initial-cluster-state", "new")),
        made(FlagOwned, "a variable of the operator's", env("ETCD_NAME", "me")),
        made(FlagHasField, "a flag that has a field", args("snapshot-count", "5000")),
        made(FlagUnknown, "a misspelt flag", args("max-wal", "5")).webhook_only(),
        made(FlagNotInMinor, "a flag that was removed", args("enable-v2", "true")).webhook_only(),
        made(OptionInvalid, "a quota that is no number", env("ETCD_QUOTA_BACKEND_BYTES", "2Gi")).webhook_only(),
        made(
            OptionTwice,
            "a field and a variable",
            json!({"options": {"snapshotCount": 5000}, "pod": {"etcdEnv": [{"name": "ETCD_SNAPSHOT_COUNT", "value": "5000"}]}}),
        )
        .webhook_only(),
        made(VariableInvalid, "a variable that begins with a digit", env("1X", "y")),
    ]
}

fn tls() -> Vec<Example> {
    use Reason::{
        TlsClientAuthUnused, TlsImmutable, TlsSecretMissing, TlsSecretUnused, TlsStaticIncomplete,
        TlsTwice,
    };
    let peer = |peer: Value| json!({"security": {"peerTLS": peer}});
    let client = |client: Value| json!({"security": {"clientTLS": client}});
    let while_running = |what, old: Value, new: Value| Example {
        reason: TlsImmutable,
        what,
        old: Some(running(old, &["3.7.3"])),
        new: running(new, &["3.7.3"]),
        by_api_server: true,
    };
    vec![
        made(
            TlsTwice,
            "two ways at once",
            json!({"TLS": {"static": {"member": {"peerSecret": "p"}}}, "security": {"peerTLS": {"mode": "Auto"}}}),
        ),
        made(
            TlsSecretMissing,
            "no Secret for the members",
            peer(json!({"mode": "Secret"})),
        ),
        made(
            TlsSecretMissing,
            "no Secret for clients",
            client(json!({"mode": "Secret"})),
        ),
        made(
            TlsSecretUnused,
            "a Secret nobody reads",
            peer(json!({"mode": "Auto", "secretName": "p"})),
        ),
        made(
            TlsClientAuthUnused,
            "client certificates in plain text",
            client(json!({"mode": "Off", "clientAuth": true})),
        ),
        made(
            TlsStaticIncomplete,
            "a server the operator cannot reach",
            json!({"TLS": {"static": {"member": {"serverSecret": "s"}}}}),
        ),
        while_running(
            "plain text on a running cluster",
            peer(json!({"mode": "Auto"})),
            peer(json!({"mode": "Off"})),
        ),
        while_running(
            "certificates for clients that have none",
            client(json!({"mode": "Off"})),
            client(json!({"mode": "Auto"})),
        ),
    ]
}

//! Defaults: what is unset is filled in once, at creation, and shows in the stored object. What the user wrote is never
//! rewritten.

mod backup;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::duration::{self, GoDuration};
use crate::environment;
use crate::policy::Policy;
use crate::quantity::{Amount, GIB, MIB, display_bytes};
use crate::v1beta2::{
    AutoCompactionMode, AutoCompactionSpec, BeforeRisk, Defragment, EtcdCluster, EtcdClusterSpec,
    EtcdClusterStatus, MaintenanceSpec, OnNoSpace, OptionsSpec, PeerTlsSpec, Reclaim, SecuritySpec,
    StorageSpec, TlsMode,
};
use crate::versions::Version;

pub use backup::{TIME_ZONE, TIMEOUT_SECONDS, default_backup, default_restore};

pub const SIZE: i32 = 3;
pub const STORAGE_SIZE: &str = "8Gi";
pub const QUOTA_BYTES: u64 = 2 * GIB;
pub const HEARTBEAT: &str = "100ms";
pub const ELECTION_MS: u64 = 1000;
pub const LARGEST_ELECTION_MS: u64 = 50_000;
pub const COMPACTION_RETENTION: &str = "1h";
pub const UNREACHABLE_AFTER: &str = "5m";
/// A nightly backup may take two hours longer than the one of the night before.
pub const MAX_AGE: &str = "26h";

/// Fills what is unset. Idempotent.
pub fn default_cluster(cluster: &mut EtcdCluster, policy: &Policy) {
    let running = cluster
        .status
        .as_ref()
        .and_then(|status| status.current_version.as_deref())
        .and_then(|version| version.parse().ok());
    let status = cluster.status.as_ref();
    let of_coreos = status.is_some_and(EtcdClusterStatus::is_of_coreos);
    let spec = &mut cluster.spec;
    spec.size.get_or_insert(SIZE);
    // CoreOS wrote an empty string where it meant "not set".
    if spec.version.as_deref().is_none_or(str::is_empty) {
        // A cluster that runs keeps its version, whatever the operator's default has become.
        spec.version = Some(running.unwrap_or(policy.default_version).to_string());
    }
    if spec.repository.as_deref().is_none_or(str::is_empty)
        && let Some(Ok(version)) = spec.version.as_deref().map(str::parse::<Version>)
    {
        spec.repository = Some(version.default_repository().to_owned());
    }
    if of_coreos {
        default_as_coreos(spec);
    }
    default_storage(spec);
    default_security(spec);
    default_options(spec);
    spec.recovery
        .get_or_insert_default()
        .unreachable_after
        .get_or_insert_with(|| GoDuration(UNREACHABLE_AFTER.to_owned()));
    default_maintenance(spec);
    if let Some(backup) = &mut spec.backup {
        backup.before_risk.get_or_insert(BeforeRisk::Always);
        backup
            .max_age
            .get_or_insert_with(|| GoDuration(MAX_AGE.to_owned()));
    }
}

/// Fills what is unset in an update: a version that was dropped from the manifest is the version that was stored, never a
/// step to the operator's default of today.
pub fn default_update(cluster: &mut EtcdCluster, old: &EtcdCluster, policy: &Policy) {
    if cluster.spec.version.as_deref().is_none_or(str::is_empty) {
        cluster.spec.version.clone_from(&old.spec.version);
    }
    default_cluster(cluster, policy);
}

/// What was unset had another meaning where CoreOS's operator made the cluster, and its members run by that: plain text, and data in
/// the pods' scratch space.
fn default_as_coreos(spec: &mut EtcdClusterSpec) {
    if spec.storage.is_none() && claim_spec(spec).is_none() {
        spec.storage = Some(StorageSpec {
            ephemeral: Some(true),
            ..StorageSpec::default()
        });
    }
    if spec.tls.is_none() {
        let security = spec.security.get_or_insert_default();
        let peer = security.peer_tls.get_or_insert_default();
        if peer.secret_name.is_none() {
            peer.mode.get_or_insert(TlsMode::Off);
        }
    }
}

fn default_storage(spec: &mut EtcdClusterSpec) {
    if claim_spec(spec).is_some() {
        return;
    }
    let storage = spec.storage.get_or_insert_default();
    if storage.ephemeral == Some(true) {
        return;
    }
    storage
        .size
        .get_or_insert_with(|| Quantity(STORAGE_SIZE.to_owned()));
    storage.reclaim.get_or_insert(Reclaim::Delete);
}

fn default_security(spec: &mut EtcdClusterSpec) {
    // `TLS` says all there is to say: adding `security` would contradict it.
    if spec.tls.is_some() {
        return;
    }
    let SecuritySpec {
        peer_tls,
        client_tls,
    } = spec.security.get_or_insert_default();
    let PeerTlsSpec { mode, secret_name } = peer_tls.get_or_insert_default();
    mode.get_or_insert(if secret_name.is_some() {
        TlsMode::Secret
    } else {
        TlsMode::Auto
    });
    let client = client_tls.get_or_insert_default();
    client.mode.get_or_insert(if client.secret_name.is_some() {
        TlsMode::Secret
    } else {
        TlsMode::Off
    });
}

fn default_options(spec: &mut EtcdClusterSpec) {
    let quota = default_quota(spec);
    // What CoreOS's `etcdEnv` already sets keeps its meaning: a field beside it would be a contradiction.
    let said = |flag| environment::sets(spec.pod.as_ref(), flag);
    let (said_quota, said_heartbeat, said_election) = (
        said("quota-backend-bytes"),
        said("heartbeat-interval"),
        said("election-timeout"),
    );
    let heartbeat_by_environment = environment::entry(spec.pod.as_ref(), "heartbeat-interval")
        .and_then(|(_, env)| env.value.as_deref()?.parse().ok())
        .map(Duration::from_millis);
    let said_compaction = said("auto-compaction-mode") || said("auto-compaction-retention");
    let options = spec.options.get_or_insert_default();
    if !said_quota {
        options
            .quota_backend
            .get_or_insert_with(|| Quantity(display_bytes(quota)));
    }
    if !said_heartbeat {
        options
            .heartbeat_interval
            .get_or_insert_with(|| GoDuration(HEARTBEAT.to_owned()));
    }
    if !said_election && options.election_timeout.is_none() {
        options.election_timeout = Some(default_election(heartbeat_by_environment, options));
    }
    if !said_compaction {
        default_compaction(options);
    }
    // An environment that says everything leaves nothing to write.
    if *options == OptionsSpec::default() {
        spec.options = None;
    }
}

/// Ten heartbeats, as etcd recommends, and never less than etcd's own default.
fn default_election(by_environment: Option<Duration>, options: &OptionsSpec) -> GoDuration {
    let by_field = options.heartbeat_interval.as_ref();
    let heartbeat = by_field
        .and_then(|text| text.parse().ok())
        .or(by_environment)
        .unwrap_or_default();
    let election = Duration::from_millis(ELECTION_MS).max(heartbeat.saturating_mul(10));
    GoDuration(duration::display(
        election.min(Duration::from_millis(LARGEST_ELECTION_MS)),
    ))
}

fn default_compaction(options: &mut OptionsSpec) {
    let AutoCompactionSpec { mode, retention } = options.auto_compaction.get_or_insert_default();
    let mode = mode.get_or_insert(AutoCompactionMode::Periodic);
    if *mode == AutoCompactionMode::Periodic {
        retention.get_or_insert_with(|| IntOrString::String(COMPACTION_RETENTION.to_owned()));
    }
}

/// Whoever turns compaction off means to keep old revisions: there the operator drops none by itself.
fn default_maintenance(spec: &mut EtcdClusterSpec) {
    let compaction = spec.options.as_ref().and_then(|options| {
        let compaction = options.auto_compaction.as_ref()?;
        compaction.mode
    });
    let MaintenanceSpec {
        defragment,
        on_no_space,
    } = spec.maintenance.get_or_insert_default();
    defragment.get_or_insert(Defragment::Auto);
    on_no_space.get_or_insert(if compaction == Some(AutoCompactionMode::Off) {
        OnNoSpace::Report
    } else {
        OnNoSpace::Heal
    });
}

/// etcd's own 2 GiB, or half of a volume that is not larger than that: CoreOS's manifests ask for claims of 1Gi.
fn default_quota(spec: &EtcdClusterSpec) -> u64 {
    let volume = volume_size(spec)
        .and_then(|size| Amount::parse(size).ok())
        .and_then(Amount::bytes);
    match volume {
        Some(bytes) if bytes <= QUOTA_BYTES => (bytes / 2 / MIB * MIB).max(MIB),
        _ => QUOTA_BYTES,
    }
}

/// What the spec says about the size of a member's volume.
pub(crate) fn volume_size(spec: &EtcdClusterSpec) -> Option<&Quantity> {
    match claim_spec(spec) {
        Some(claim) => claim.resources.as_ref()?.requests.as_ref()?.get("storage"),
        None => spec.storage.as_ref()?.size.as_ref(),
    }
}

pub(crate) fn claim_spec(
    spec: &EtcdClusterSpec,
) -> Option<&k8s_openapi::api::core::v1::PersistentVolumeClaimSpec> {
    spec.pod.as_ref()?.persistent_volume_claim_spec.as_ref()
}

#[cfg(test)]
mod tests;

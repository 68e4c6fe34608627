//! Every rule an EtcdCluster, EtcdBackup or EtcdRestore must hold: one file per topic, all violations at once.
//!
//! `judge` is what admission asks; `ValidatedCluster::new` is what the controller asks. Both go through `examine`, which
//! reads the object into typed settings and notes what is wrong on the way: what is read is what was judged.

mod backup;
mod cel;
mod change;
mod claim;
mod compaction;
mod finding;
mod flags;
mod image;
mod labels;
mod name;
mod names;
mod nearest;
mod options;
mod pod;
mod recovery;
mod reliance;
mod requests;
mod restore;
mod schedule;
mod service;
mod size;
mod storage;
mod store;
mod text;
mod tls;
mod unknown;
mod version;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::defaults::{default_cluster, default_update};
use crate::duration::{self, GoDuration};
use crate::policy::Policy;
use crate::quantity::Amount;
use crate::v1beta2::{Defragment, EtcdCluster, EtcdClusterSpec, OnNoSpace};
use crate::validated::{Maintenance, ValidatedCluster};
use cel::rule;
use finding::violation;
use text::{Text, literal};

pub use backup::judge as judge_backup;
pub(crate) use backup::{cel as backup_cel_rules, read as read_backup};
pub(crate) use cel::{CelRule, alpha as alpha_cel_rules, cluster as cluster_cel_rules};
pub use finding::{Judgement, LONGEST_WARNING, Reason, Violation, Warning};
pub use name::LONGEST as LONGEST_NAME;
pub use requests::{Recovery, recovery_refused, same_requests};
pub use restore::judge as judge_restore;
pub(crate) use restore::{cel as restore_cel_rules, read as read_restore};
pub(crate) use text::CelMessage;
pub use unknown::{AS_WRITTEN, judge_unknown};

/// Judges an object that is created (`old` is None) or updated.
///
/// Guarantees: an unchanged spec is never refused (an annotation that asks for what costs data may be), nor an object that is being deleted; what was wrong before and was not
/// touched is not refused either, so that an older object can be mended step by step. A change of version is judged against
/// what runs, and going back to what was last acted on is never refused.
pub fn judge(new: &EtcdCluster, old: Option<&EtcdCluster>, policy: &Policy) -> Judgement {
    let mut judgement = Judgement::default();
    if new.metadata.deletion_timestamp.is_some() {
        return judgement;
    }
    let mut defaulted = new.clone();
    let Some(old) = old else {
        default_cluster(&mut defaulted, policy);
        examine(&defaulted, policy, &mut judgement);
        requests::check_recovery(new, None, &mut judgement);
        return judgement;
    };
    // The status of an update is the stored one: what a client sends there is not what runs.
    defaulted.status.clone_from(&old.status);
    default_update(&mut defaulted, old, policy);
    examine(&defaulted, policy, &mut judgement);
    if new.spec == old.spec {
        judgement.violations.clear();
        requests::check_recovery(new, Some(old), &mut judgement);
        return judgement;
    }
    let mut before = old.clone();
    default_cluster(&mut before, policy);
    if !judgement.allowed() {
        let mut wrong_before = Judgement::default();
        examine(&before, policy, &mut wrong_before);
        judgement.forgive(&wrong_before);
    }
    change::judge(&defaulted, &before, &mut judgement);
    requests::check_recovery(new, Some(old), &mut judgement);
    judgement
}

/// Judges a deletion.
pub fn judge_delete(cluster: &EtcdCluster) -> Judgement {
    let mut judgement = Judgement::default();
    if cluster.spec.deletion_protection == Some(true) {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
        judgement.refuse(
            "spec.deletionProtection",
            Reason::DeletionProtected,
            format!(
                "must not be true when the cluster is deleted; lift it with: kubectl -n {namespace} patch etcdcluster {name} \
                 --type=merge -p '{{\"spec\":{{\"deletionProtection\":false}}}}'"
            ),
        );
    }
    judgement
}

/// Judges a write to the scale subresource, in the same words.
pub fn judge_scale(replicas: i32) -> Judgement {
    let mut judgement = Judgement::default();
    if let Some(size) = judgement.keep(size::legal(replicas, "spec.replicas")) {
        size::warn_without_tolerance(size, "spec.replicas", &mut judgement);
    }
    judgement
}

/// Reads an object that has its defaults; the controller's way in.
pub(crate) fn read_cluster(
    cluster: &EtcdCluster,
    policy: &Policy,
) -> Result<ValidatedCluster, Vec<Violation>> {
    let mut judgement = Judgement::default();
    check_stored(&cluster.metadata, &mut judgement);
    let validated = examine(cluster, policy, &mut judgement);
    change::judge_since_accepted(cluster, &mut judgement);
    match validated {
        Some(validated) if judgement.allowed() => Ok(validated),
        _ => Err(judgement.violations),
    }
}

/// What the API server gives every object.
fn check_stored(metadata: &ObjectMeta, judgement: &mut Judgement) {
    for (value, field) in [
        (&metadata.name, "metadata.name"),
        (&metadata.namespace, "metadata.namespace"),
        (&metadata.uid, "metadata.uid"),
    ] {
        if value.as_deref().is_none_or(str::is_empty) {
            judgement.refuse(
                field,
                Reason::MetadataIncomplete,
                "must be set, as it is in every stored object",
            );
        }
    }
}

/// Reads an object that has its defaults, and notes what is wrong and what is risky. Some settings missing means that a
/// violation was noted for each.
fn examine(
    cluster: &EtcdCluster,
    policy: &Policy,
    judgement: &mut Judgement,
) -> Option<ValidatedCluster> {
    let EtcdCluster {
        metadata,
        spec,
        status,
    } = cluster;
    name::check(metadata, judgement);
    requests::check_seed(cluster, judgement);
    let size = size::read(spec.size, judgement);
    let version = version::read(
        spec.version.as_deref().unwrap_or_default(),
        status.as_ref(),
        policy,
        judgement,
    );
    let repository = image::read(spec.repository.as_deref(), judgement);
    let storage = storage::read(spec, judgement);
    let tls = tls::read(spec, judgement);
    // Options that depend on a version cannot be judged without one; the default's rules are the mildest guess.
    let options = options::read(spec, version.unwrap_or(policy.default_version), judgement);
    let quota = options.map(|options| options.quota_bytes);
    judgement
        .violations
        .extend(quota.and_then(|quota| storage::larger_than_quota(spec, quota)));
    let additions = flags::read(spec, version, judgement);
    let pod = pod::read(spec.pod.as_ref(), quota, judgement);
    let client_service = service::read(spec, tls.as_ref().map(|(_, client)| client), judgement);
    let unreachable_after = recovery::read(spec.recovery.as_ref(), judgement);
    let backup = reliance::read(spec.backup.as_ref(), judgement);
    let (peer_tls, client_tls) = tls?;
    let (version, repository) = (version?, repository?);
    Some(ValidatedCluster {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        size: size?,
        version,
        image: format!("{repository}:v{version}"),
        repository,
        paused: spec.paused.unwrap_or_default(),
        storage: storage?,
        peer_tls,
        client_tls,
        options: options?,
        extra_args: additions.extra_args,
        feature_gates: additions.feature_gates,
        pod: crate::validated::PodSettings {
            environment: additions.environment,
            ..pod
        },
        client_service,
        unreachable_after: unreachable_after?,
        maintenance: maintenance(spec),
        backup,
        cluster_domain: spec
            .pod
            .as_ref()
            .and_then(|pod| pod.cluster_domain.clone())
            .filter(|domain| !domain.is_empty()),
        deletion_protection: spec.deletion_protection.unwrap_or_default(),
        accepted: change::facts(spec),
    })
}

/// Nothing here can be wrong: the schema knows the words.
fn maintenance(spec: &EtcdClusterSpec) -> Maintenance {
    let said = spec.maintenance.clone().unwrap_or_default();
    Maintenance {
        defragment: said.defragment != Some(Defragment::Off),
        heal_no_space: said.on_no_space != Some(OnNoSpace::Report),
    }
}

const NOT_A_QUANTITY: Text = Text("must be a quantity such as 8Gi");
const NOT_POSITIVE: Text = Text("must be more than zero");
const NOT_A_DURATION: Text = Text("must be a duration such as 100ms, 1s or 1h30m");

/// Bytes, or why not.
fn positive_quantity(quantity: &Quantity, field: &str) -> Result<u64, Violation> {
    let amount = Amount::parse(quantity)
        .map_err(|_| violation(field, Reason::QuantityInvalid, NOT_A_QUANTITY.0))?;
    match amount.bytes() {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(violation(
            field,
            Reason::QuantityNotPositive,
            NOT_POSITIVE.0,
        )),
    }
}

fn quantity_rules(at: &'static str) -> Vec<CelRule> {
    vec![
        rule(
            Reason::QuantityInvalid,
            at,
            "isQuantity(string(self))",
            NOT_A_QUANTITY,
        ),
        rule(
            Reason::QuantityNotPositive,
            at,
            "!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",
            NOT_POSITIVE,
        ),
    ]
}

fn duration_field(text: &GoDuration, field: &str, judgement: &mut Judgement) -> Option<Duration> {
    judgement.keep(
        text.parse()
            .map_err(|_| violation(field, Reason::DurationInvalid, NOT_A_DURATION.0)),
    )
}

/// Whether a text is a duration, in CEL.
fn duration_cel(text: &str) -> String {
    format!("{text}.matches({})", literal(duration::PATTERN))
}

fn duration_rule(at: &'static str) -> CelRule {
    rule(
        Reason::DurationInvalid,
        at,
        duration_cel("self"),
        NOT_A_DURATION,
    )
}

#[cfg(test)]
mod tests;

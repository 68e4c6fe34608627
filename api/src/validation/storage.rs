//! `spec.storage`: positive, larger than the quota, growing only; class and ephemeral for ever.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::cel::{CelRule, rule};
use super::change::{ACCEPTED, accepts, or_unset, storage_is_open};
use super::finding::{Judgement, Reason, Violation, violation};
use super::text::Text;
use super::{claim, names, positive_quantity, quantity_rules};
use crate::defaults::{STORAGE_SIZE, claim_spec, volume_size};
use crate::quantity::{Amount, display_bytes};
use crate::v1beta2::{Accepted, EtcdClusterSpec, Reclaim, StorageSpec};
use crate::validated::{ClaimSettings, Storage};

const SIZE: &str = "spec.storage.size";
const CLASS: &str = "spec.storage.className";
const EPHEMERAL: &str = "spec.storage.ephemeral";

const TWICE: Text = Text(
    "must not be set together with `pod.persistentVolumeClaimSpec`: keep `storage`, or keep the claim spec alone",
);
const WITH_EPHEMERAL: Text = Text(
    "must not be set where `ephemeral` is true: there are no volumes; remove it, or `ephemeral`",
);
pub(super) const SHRINKS: Text =
    Text("must not shrink from {old} to {new}: volumes can only grow; use {old} or more");
const CLASS_IMMUTABLE: Text = Text(
    "must not change from {old}: existing volumes keep their class; put it back, or make a new cluster and restore a backup",
);
const EPHEMERAL_IMMUTABLE: Text = Text(
    "must not change from {old}: data do not move by themselves; put it back, or make a new cluster and restore a backup",
);
const NOT_LARGER: Text = Text(
    "must be larger than `options.quotaBackend`, which is {quota}, not {size}: the volume holds the database and its log",
);

/// Where the data go, or what is wrong with it.
pub(super) fn read(spec: &EtcdClusterSpec, judgement: &mut Judgement) -> Option<Storage> {
    if let Some(claim) = claim_spec(spec) {
        if spec.storage.is_some() {
            judgement.refuse("spec.storage", Reason::StorageTwice, TWICE.0);
        }
        return claim::read(claim, judgement);
    }
    let storage = spec.storage.as_ref()?;
    let size = storage.size.as_ref().map(|size| {
        judgement
            .keep(positive_quantity(size, SIZE))
            .map(|bytes| (size.clone(), bytes))
    });
    if storage.ephemeral == Some(true) {
        check_ephemeral(storage, judgement);
        return match size {
            Some(size) => size.map(|(size, _)| Storage::Ephemeral {
                size_limit: Some(size),
            }),
            None => Some(Storage::Ephemeral { size_limit: None }),
        };
    }
    if let Some(class) = &storage.class_name {
        names::check_object_name(class, CLASS, judgement);
    }
    let (size, size_bytes) = size??;
    Some(Storage::Claim(Box::new(claim_of(
        storage, size, size_bytes,
    ))))
}

fn claim_of(storage: &StorageSpec, size: Quantity, size_bytes: u64) -> ClaimSettings {
    ClaimSettings {
        spec: PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), size.clone())].into()),
                ..VolumeResourceRequirements::default()
            }),
            storage_class_name: storage.class_name.clone(),
            ..PersistentVolumeClaimSpec::default()
        },
        size,
        size_bytes,
        class: storage.class_name.clone(),
        reclaim: storage.reclaim.unwrap_or_default(),
    }
}

fn check_ephemeral(storage: &StorageSpec, judgement: &mut Judgement) {
    if storage.class_name.is_some() {
        judgement.refuse(CLASS, Reason::StorageEphemeralConflict, WITH_EPHEMERAL.0);
    }
    if storage.reclaim == Some(Reclaim::Retain) {
        judgement.refuse(
            "spec.storage.reclaim",
            Reason::StorageEphemeralConflict,
            WITH_EPHEMERAL.0,
        );
    }
    judgement.warn(
        EPHEMERAL,
        "a cluster that loses most of its Pods at once loses its data",
    );
}

/// A volume holds the database and the write-ahead log beside it.
pub(super) fn larger_than_quota(spec: &EtcdClusterSpec, quota: u64) -> Option<Violation> {
    let size = volume_size(spec)?;
    let bytes = Amount::parse(size).ok()?.bytes()?;
    // A volume of nothing is refused as such.
    if bytes > quota || bytes == 0 {
        return None;
    }
    let field = if claim_spec(spec).is_some() {
        claim::STORAGE_REQUEST
    } else {
        SIZE
    };
    let message = NOT_LARGER.fill(&[("size", &size.0), ("quota", &display_bytes(quota))]);
    Some(violation(field, Reason::StorageNotLargerThanQuota, message))
}

/// What of the storage may not change. `claimed` is the largest volume that was ever asked for: a wish that no volume has
/// followed, because its class cannot grow, may be taken back.
pub(super) fn check_change(
    new: &Accepted,
    old: &Accepted,
    claimed: Option<&Quantity>,
    judgement: &mut Judgement,
) {
    if new.persistent_volume_claim_spec.is_some() || old.persistent_volume_claim_spec.is_some() {
        claim::check_change(new, old, claimed, judgement);
        return;
    }
    if new.class_name != old.class_name {
        let old = old.class_name.as_deref().unwrap_or("(unset)");
        judgement.refuse(
            CLASS,
            Reason::StorageImmutable,
            CLASS_IMMUTABLE.fill(&[("old", &old)]),
        );
    }
    let (was, is) = (old.is_ephemeral(), new.is_ephemeral());
    if was != is {
        judgement.refuse(
            EPHEMERAL,
            Reason::StorageImmutable,
            EPHEMERAL_IMMUTABLE.fill(&[("old", &was)]),
        );
    } else if !is {
        let (new, old) = (new.size.as_ref(), old.size.as_ref());
        judgement
            .violations
            .extend(shrinks(new, old, claimed, SIZE));
    }
}

pub(super) fn shrinks(
    new: Option<&Quantity>,
    old: Option<&Quantity>,
    claimed: Option<&Quantity>,
    field: &str,
) -> Option<Violation> {
    let (new, old) = (new?, old?);
    let wanted = Amount::parse(new).ok()?;
    let shrunk = wanted < Amount::parse(old).ok()?;
    let taken_back = claimed
        .and_then(|claimed| Amount::parse(claimed).ok())
        .is_some_and(|claimed| wanted >= claimed);
    (shrunk && !taken_back).then(|| {
        violation(
            field,
            Reason::StorageShrinks,
            SHRINKS.fill(&[("old", &old.0), ("new", &new.0)]),
        )
    })
}

pub(super) fn cel() -> Vec<CelRule> {
    let has_claim =
        |of: &str| format!("(has({of}.pod) && has({of}.pod.persistentVolumeClaimSpec))");
    let ephemeral = |of: &str| {
        format!("(has({of}.storage) && has({of}.storage.ephemeral) && {of}.storage.ephemeral)")
    };
    let class = |of: &str, unset: &str| {
        format!(
            "(has({of}.storage) && has({of}.storage.className) ? {of}.storage.className : '{unset}')"
        )
    };
    // A size that is left out is the default's.
    let size = |of: &str| {
        format!(
            "(has({of}.storage) && has({of}.storage.size) ? string({of}.storage.size) : '{STORAGE_SIZE}')"
        )
    };
    let mut rules = quantity_rules(SIZE);
    rules.extend([
        rule(Reason::StorageTwice, "spec", format!("!has(self.storage) || !{}", has_claim("self")), TWICE)
            .field(".storage"),
        rule(
            Reason::StorageEphemeralConflict,
            "spec.storage",
            "!(has(self.ephemeral) && self.ephemeral && has(self.className))",
            WITH_EPHEMERAL,
        )
        .field(".className"),
        rule(
            Reason::StorageEphemeralConflict,
            "spec.storage",
            "!(has(self.ephemeral) && self.ephemeral && has(self.reclaim) && self.reclaim == 'Retain')",
            WITH_EPHEMERAL,
        )
        .field(".reclaim"),
    ]);
    // At the root, because they ask the status.
    let (now, before) = ("self.spec", "oldSelf.spec");
    let (new, old) = (size(now), size(before));
    let either_claim = format!(
        "{} || {} || {}",
        storage_is_open(),
        has_claim(now),
        has_claim(before)
    );
    let accepted_class = or_unset("className", "''");
    let accepted_ephemeral = or_unset("ephemeral", "false");
    rules.extend([
        rule(
            Reason::StorageImmutable,
            "",
            format!(
                "{either_claim} || {} == {} || {}",
                class(now, ""),
                class(before, ""),
                accepts(&format!("{} == {accepted_class}", class(now, ""))),
            ),
            CLASS_IMMUTABLE,
        )
        .holes(CLASS_IMMUTABLE, &[("old", &class(before, "(unset)"))])
        .field(".spec.storage.className"),
        rule(
            Reason::StorageImmutable,
            "",
            format!(
                "{either_claim} || {} == {} || {}",
                ephemeral(now),
                ephemeral(before),
                accepts(&format!("{} == {accepted_ephemeral}", ephemeral(now))),
            ),
            EPHEMERAL_IMMUTABLE,
        )
        .holes(
            EPHEMERAL_IMMUTABLE,
            &[(
                "old",
                &format!("({} ? 'true' : 'false')", ephemeral(before)),
            )],
        )
        .field(".spec.storage.ephemeral"),
        rule(
            Reason::StorageShrinks,
            "",
            format!(
                "{either_claim} || {} || {} || {}",
                ephemeral(now),
                ephemeral(before),
                grows_or_was_never_reached(&new, &old),
            ),
            SHRINKS,
        )
        .holes(SHRINKS, &[("old", &old), ("new", &new)])
        .field(".spec.storage.size"),
    ]);
    rules.push(not_larger_rule(
        &has_claim("self"),
        &ephemeral("self"),
        &size("self"),
    ));
    rules
}

/// In CEL at the root: not smaller than before, than what was acted on, or than any volume was ever asked to be.
pub(super) fn grows_or_was_never_reached(new: &str, old: &str) -> String {
    let reaches = |size: &str| {
        format!(
            "(isQuantity(string({size})) && quantity({new}).compareTo(quantity(string({size}))) >= 0)"
        )
    };
    let claimed = "oldSelf.status.volumeSize";
    let accepted = format!("{ACCEPTED}.size");
    format!(
        "!isQuantity({new}) || !isQuantity({old}) || quantity({new}).compareTo(quantity({old})) >= 0 || \
         (has(oldSelf.status) && has({claimed}) && {}) || {}",
        reaches(claimed),
        accepts(&format!("has({accepted}) && {}", reaches(&accepted))),
    )
}

/// Growth only, where the size is a field of its own.
pub(super) fn alpha_growth() -> CelRule {
    let (new, old) = ("string(self.spec.storage)", "string(oldSelf.spec.storage)");
    rule(
        Reason::StorageShrinks,
        "",
        format!(
            "!has(self.spec.storage) || !has(oldSelf.spec.storage) || {}",
            grows_or_was_never_reached(new, old)
        ),
        SHRINKS,
    )
    .holes(SHRINKS, &[("old", old), ("new", new)])
    .field(".spec.storage")
}

fn not_larger_rule(has_claim: &str, ephemeral: &str, size: &str) -> CelRule {
    let quota = "string(self.options.quotaBackend)";
    let quota_set = "(has(self.options) && has(self.options.quotaBackend))";
    rule(
        Reason::StorageNotLargerThanQuota,
        "spec",
        format!(
            "{has_claim} || {ephemeral} || !{quota_set} || !isQuantity({quota}) || !isQuantity({size}) || \
             quantity({size}).isGreaterThan(quantity({quota}))"
        ),
        NOT_LARGER,
    )
    .holes(NOT_LARGER, &[("size", size), ("quota", quota)])
    .field(".storage.size")
}

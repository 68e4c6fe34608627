//! `spec.pod.persistentVolumeClaimSpec`: CoreOS's way to say where the data go.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::cel::{CelRule, rule};
use super::change::{ACCEPTED, accepts, storage_is_open};
use super::finding::{Judgement, Reason};
use super::text::Text;
use super::{positive_quantity, storage};
use crate::defaults::claim_spec;
use crate::v1beta2::{Accepted, EtcdClusterSpec, Reclaim};
use crate::validated::{ClaimSettings, Storage};

const FIELD: &str = "spec.pod.persistentVolumeClaimSpec";
pub(super) const STORAGE_REQUEST: &str =
    "spec.pod.persistentVolumeClaimSpec.resources.requests.storage";

const NO_SIZE: Text = Text("must ask for storage in `resources.requests.storage`, such as 8Gi");
const ACCESS: Text = Text(
    "must include ReadWriteOnce or ReadWriteOncePod in `accessModes`: each member writes its own volume",
);
const BLOCK: Text = Text("must have `volumeMode` Filesystem: etcd keeps files");
const ONE_VOLUME: Text =
    Text("must not name a volume in `volumeName`: each member has a volume of its own");
const FILLED: Text = Text(
    "must not have `dataSource` or `dataSourceRef`: members start empty; to start from data, restore a backup",
);
const IMMUTABLE: Text = Text(
    "must not change but for a larger `resources.requests.storage`: put it back, or make a new cluster and restore a backup",
);

pub(super) fn read(
    claim: &PersistentVolumeClaimSpec,
    judgement: &mut Judgement,
) -> Option<Storage> {
    for (broken, text) in [
        (!writable(claim), ACCESS),
        (
            claim
                .volume_mode
                .as_deref()
                .is_some_and(|mode| mode != "Filesystem"),
            BLOCK,
        ),
        (claim.volume_name.is_some(), ONE_VOLUME),
        (
            claim.data_source.is_some() || claim.data_source_ref.is_some(),
            FILLED,
        ),
    ] {
        if broken {
            judgement.refuse(FIELD, Reason::ClaimInvalid, text.0);
        }
    }
    let requests = claim
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let Some(size) = requests.and_then(|requests| requests.get("storage")) else {
        judgement.refuse(FIELD, Reason::ClaimInvalid, NO_SIZE.0);
        return None;
    };
    let size_bytes = judgement.keep(positive_quantity(size, STORAGE_REQUEST))?;
    Some(Storage::Claim(Box::new(ClaimSettings {
        spec: PersistentVolumeClaimSpec {
            access_modes: claim
                .access_modes
                .clone()
                .or_else(|| Some(vec!["ReadWriteOnce".to_owned()])),
            ..claim.clone()
        },
        size: size.clone(),
        size_bytes,
        class: claim.storage_class_name.clone(),
        // CoreOS's claims went with the cluster.
        reclaim: Reclaim::Delete,
    })))
}

/// No mode at all means the usual one.
fn writable(claim: &PersistentVolumeClaimSpec) -> bool {
    claim.access_modes.as_ref().is_none_or(|modes| {
        modes.is_empty()
            || modes
                .iter()
                .any(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod")
    })
}

pub(super) fn check_change(
    new: &Accepted,
    old: &Accepted,
    claimed: Option<&Quantity>,
    judgement: &mut Judgement,
) {
    if new.persistent_volume_claim_spec != old.persistent_volume_claim_spec {
        judgement.refuse(FIELD, Reason::ClaimImmutable, IMMUTABLE.0);
        return;
    }
    judgement.violations.extend(storage::shrinks(
        new.size.as_ref(),
        old.size.as_ref(),
        claimed,
        STORAGE_REQUEST,
    ));
}

/// All that is fixed: what stands in the claim but for its size.
pub(super) fn without_size(spec: &EtcdClusterSpec) -> Option<PersistentVolumeClaimSpec> {
    let mut claim = claim_spec(spec)?.clone();
    if let Some(requests) = claim
        .resources
        .as_mut()
        .and_then(|resources| resources.requests.as_mut())
    {
        requests.remove("storage");
    }
    Some(claim)
}

pub(super) fn cel() -> Vec<CelRule> {
    let size = |of: &str| format!("string({of}.resources.requests['storage'])");
    let has_size = |of: &str| {
        format!(
            "(has({of}.resources) && has({of}.resources.requests) && 'storage' in {of}.resources.requests)"
        )
    };
    let has = |of: &str| format!("(has({of}.pod) && has({of}.pod.persistentVolumeClaimSpec))");
    let (now, before) = (
        "self.spec.pod.persistentVolumeClaimSpec",
        "oldSelf.spec.pod.persistentVolumeClaimSpec",
    );
    let (new, old) = (size(now), size(before));
    let grown = format!(
        "{} || !({} && {} && {} && {}) || {}",
        storage_is_open(),
        has("self.spec"),
        has("oldSelf.spec"),
        has_size(now),
        has_size(before),
        storage::grows_or_was_never_reached(&new, &old),
    );
    let has_both = format!("{} && {}", has("self.spec"), has("oldSelf.spec"));
    let accepted = format!("{ACCEPTED}.persistentVolumeClaimSpec");
    // Of a selector that was put back CEL sees no more than its labels: the rest has another type there than here.
    let put_back = accepts(&format!(
        "has({accepted}) && {} && !{}",
        same(now, &accepted),
        same(now, before)
    ));
    let whole_selector = equal(now, before, "selector");
    let unchanged = format!(
        "{} || !({has_both}) || ({} && {whole_selector}) || {put_back}",
        storage_is_open(),
        same(now, before)
    );
    vec![
        rule(Reason::ClaimInvalid, FIELD, has_size("self"), NO_SIZE),
        rule(
            Reason::ClaimInvalid,
            FIELD,
            "!has(self.accessModes) || self.accessModes.size() == 0 || \
             self.accessModes.exists(m, m == 'ReadWriteOnce' || m == 'ReadWriteOncePod')",
            ACCESS,
        ),
        rule(
            Reason::ClaimInvalid,
            FIELD,
            "!has(self.volumeMode) || self.volumeMode == 'Filesystem'",
            BLOCK,
        ),
        rule(
            Reason::ClaimInvalid,
            FIELD,
            "!has(self.volumeName)",
            ONE_VOLUME,
        ),
        rule(
            Reason::ClaimInvalid,
            FIELD,
            "!has(self.dataSource) && !has(self.dataSourceRef)",
            FILLED,
        ),
        // At the root, because they ask the status.
        rule(
            Reason::ClaimImmutable,
            "",
            format!(
                "{open} || {now} == {before} || {accepted}",
                open = storage_is_open(),
                now = has("self.spec"),
                before = has("oldSelf.spec"),
                accepted = accepts(&format!("{} == has({accepted})", has("self.spec"))),
            ),
            IMMUTABLE,
        )
        .field(".spec.pod.persistentVolumeClaimSpec"),
        rule(Reason::ClaimImmutable, "", unchanged, IMMUTABLE)
            .field(".spec.pod.persistentVolumeClaimSpec"),
        rule(Reason::StorageShrinks, "", grown, storage::SHRINKS)
            .holes(storage::SHRINKS, &[("old", &old), ("new", &new)])
            .field(".spec.pod.persistentVolumeClaimSpec"),
    ]
}

/// In CEL: a field is the same in both, or in neither.
fn equal(new: &str, old: &str, field: &str) -> String {
    format!(
        "(has({new}.{field}) == has({old}.{field}) && (!has({new}.{field}) || {new}.{field} == {old}.{field}))"
    )
}

/// In CEL: what can be compared wherever it stands is the same in both claims.
fn same(new: &str, old: &str) -> String {
    let labels = |of: &str| {
        format!(
            "(has({of}.selector) && has({of}.selector.matchLabels) ? {of}.selector.matchLabels : {{}})"
        )
    };
    let plain = [
        "accessModes",
        "storageClassName",
        "volumeMode",
        "volumeAttributesClassName",
    ];
    let mut all: Vec<String> = plain
        .into_iter()
        .map(|field| equal(new, old, field))
        .collect();
    all.push(format!("{} == {}", labels(new), labels(old)));
    format!("({})", all.join(" && "))
}

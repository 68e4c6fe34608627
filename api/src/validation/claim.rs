//! `spec.pod.persistentVolumeClaimSpec`: CoreOS's way to say where the data go.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::text::Text;
use super::{positive_quantity, storage};
use crate::defaults::{claim_spec, volume_size};
use crate::v1beta2::{EtcdClusterSpec, Reclaim};
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
    new: &EtcdClusterSpec,
    old: &EtcdClusterSpec,
    claimed: Option<&Quantity>,
    judgement: &mut Judgement,
) {
    if without_size(new) != without_size(old) {
        judgement.refuse(FIELD, Reason::ClaimImmutable, IMMUTABLE.0);
        return;
    }
    judgement.violations.extend(storage::shrinks(
        volume_size(new),
        volume_size(old),
        claimed,
        STORAGE_REQUEST,
    ));
}

fn without_size(spec: &EtcdClusterSpec) -> Option<PersistentVolumeClaimSpec> {
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
    let same = |field: &str| {
        format!(
            "(has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field}))"
        )
    };
    let (now, before) = (
        "self.spec.pod.persistentVolumeClaimSpec",
        "oldSelf.spec.pod.persistentVolumeClaimSpec",
    );
    let (new, old) = (size(now), size(before));
    let grown = format!(
        "!({} && {} && {} && {}) || {}",
        has("self.spec"),
        has("oldSelf.spec"),
        has_size(now),
        has_size(before),
        storage::grows_or_was_never_reached(&new, &old),
    );
    let fixed: Vec<String> = [
        "accessModes",
        "storageClassName",
        "volumeMode",
        "selector",
        "volumeAttributesClassName",
    ]
    .into_iter()
    .map(same)
    .collect();
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
        rule(
            Reason::ClaimImmutable,
            "spec",
            format!("{} == {}", has("self"), has("oldSelf")),
            IMMUTABLE,
        )
        .field(".pod.persistentVolumeClaimSpec"),
        rule(Reason::ClaimImmutable, FIELD, fixed.join(" && "), IMMUTABLE),
        // At the root, because it asks the status.
        rule(Reason::StorageShrinks, "", grown, storage::SHRINKS)
            .holes(storage::SHRINKS, &[("old", &old), ("new", &new)])
            .field(".spec.pod.persistentVolumeClaimSpec"),
    ]
}

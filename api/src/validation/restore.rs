//! EtcdRestore: one source, one target, and no change of mind once it has begun.

use super::cel::{CelRule, cluster_spec_at, rule};
use super::finding::{Judgement, Reason, Violation};
use super::text::Text;
use super::tls::named;
use super::{check_stored, name, names, store};
use crate::defaults::default_restore;
use crate::policy::Policy;
use crate::v1beta2::{EtcdCluster, EtcdRestore, EtcdRestoreSpec, NewCluster};
use crate::validated::{Source, Target, ValidatedRestore};

const BACKUP: &str = "spec.backupName";
const SNAPSHOT: &str = "spec.snapshot";
const IN_PLACE: &str = "spec.etcdCluster.name";
const NEW: &str = "spec.newCluster.name";
const NEW_SPEC: &str = "spec.newCluster.spec";

const SOURCE_MISSING: Text =
    Text("must have a backup: `backupName`, or a store: one of `s3`, `gcs`, `abs` and `pvc`");
const SOURCE_TWICE: Text =
    Text("must have one source, not several of `backupName`, `s3`, `gcs`, `abs` and `pvc`");
const TYPE_UNUSED: Text =
    Text("must not be set together with `backupName`: the EtcdBackup says what its store is");
const SNAPSHOT_UNUSED: Text =
    Text("must not be set without `backupName`: a store's `path` names the backup itself");
const SNAPSHOT_INVALID: Text =
    Text("must be a snapshot as `status.history` of the EtcdBackup names it");
const TARGET_MISSING: Text = Text(
    "must have a target: `newCluster` to make an EtcdCluster, or `etcdCluster` to replace the data of one",
);
const TARGET_TWICE: Text = Text("must not be set together with `etcdCluster`: keep one target");
const TARGET_UNNAMED: Text = Text("must name the EtcdCluster");
const IMMUTABLE: Text =
    Text("must not change once the restore has begun: put it back, or make a new EtcdRestore");

/// Judges an EtcdRestore that is created (`old` is None) or updated, with the guarantees of `judge`.
pub fn judge(new: &EtcdRestore, old: Option<&EtcdRestore>, policy: &Policy) -> Judgement {
    let mut judgement = Judgement::default();
    let unchanged = old.is_some_and(|old| old.spec == new.spec);
    if unchanged || new.metadata.deletion_timestamp.is_some() {
        return judgement;
    }
    let defaulted = |restore: &EtcdRestore| {
        let mut restore = restore.clone();
        default_restore(&mut restore, policy);
        restore
    };
    let is = defaulted(new);
    examine(&is, policy, &mut judgement);
    if let Some(old) = old {
        let was = defaulted(old);
        let mut before = Judgement::default();
        examine(&was, policy, &mut before);
        judgement.forgive(&before);
        if begun(old) && is.spec != was.spec {
            judgement.refuse("spec", Reason::RestoreImmutable, IMMUTABLE.0);
        }
    }
    judgement
}

fn begun(restore: &EtcdRestore) -> bool {
    let status = restore.status.as_ref();
    status.is_some_and(|status| status.phase.is_some())
}

/// Reads an object that has its defaults; the controller's way in.
pub(crate) fn read(
    restore: &EtcdRestore,
    policy: &Policy,
) -> Result<ValidatedRestore, Vec<Violation>> {
    let mut judgement = Judgement::default();
    check_stored(&restore.metadata, &mut judgement);
    match examine(restore, policy, &mut judgement) {
        Some(validated) if judgement.allowed() => Ok(validated),
        _ => Err(judgement.violations),
    }
}

fn examine(
    restore: &EtcdRestore,
    policy: &Policy,
    judgement: &mut Judgement,
) -> Option<ValidatedRestore> {
    let EtcdRestore { metadata, spec, .. } = restore;
    name::check_for_jobs(metadata, judgement);
    let source = read_source(spec, judgement);
    let service_account = named(spec.service_account_name.as_ref());
    if let Some(account) = service_account {
        names::check_object_name(account, "spec.serviceAccountName", judgement);
    }
    let target = read_target(spec, policy, judgement);
    Some(ValidatedRestore {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        source: source?,
        service_account: service_account.map(ToOwned::to_owned),
        target: target?,
    })
}

fn read_source(spec: &EtcdRestoreSpec, judgement: &mut Judgement) -> Option<Source> {
    let described = store::Described {
        type_field: "spec.backupStorageType",
        type_: spec.backup_storage_type,
        s3: spec.s3.as_ref(),
        gcs: spec.gcs.as_ref(),
        abs: spec.abs.as_ref(),
        pvc: spec.pvc.as_ref(),
    };
    let snapshot = named(spec.snapshot.as_ref());
    let Some(backup) = named(spec.backup_name.as_ref()) else {
        if snapshot.is_some() {
            judgement.refuse(SNAPSHOT, Reason::SnapshotUnused, SNAPSHOT_UNUSED.0);
        }
        match described.count() {
            0 => judgement.refuse("spec", Reason::StoreMissing, SOURCE_MISSING.0),
            1 => return store::read(described, judgement).map(Source::Store),
            _ => judgement.refuse("spec", Reason::StoreTwice, SOURCE_TWICE.0),
        }
        return None;
    };
    names::check_object_name(backup, BACKUP, judgement);
    if described.count() > 0 {
        judgement.refuse("spec", Reason::StoreTwice, SOURCE_TWICE.0);
    } else if spec.backup_storage_type.is_some() {
        judgement.refuse(
            described.type_field,
            Reason::StoreTypeMismatch,
            TYPE_UNUSED.0,
        );
    }
    if snapshot.is_some_and(|snapshot| !store::is_inner_path(snapshot)) {
        judgement.refuse(SNAPSHOT, Reason::SnapshotInvalid, SNAPSHOT_INVALID.0);
    }
    Some(Source::Backup {
        name: backup.to_owned(),
        snapshot: snapshot.map(ToOwned::to_owned),
    })
}

fn read_target(
    spec: &EtcdRestoreSpec,
    policy: &Policy,
    judgement: &mut Judgement,
) -> Option<Target> {
    match (&spec.etcd_cluster, &spec.new_cluster) {
        (None, None) => {
            judgement.refuse("spec", Reason::RestoreTargetMissing, TARGET_MISSING.0);
            None
        }
        (Some(_), Some(_)) => {
            judgement.refuse(
                "spec.newCluster",
                Reason::RestoreTargetTwice,
                TARGET_TWICE.0,
            );
            None
        }
        (Some(cluster), None) => {
            let Some(name) = named(cluster.name.as_ref()) else {
                judgement.refuse(IN_PLACE, Reason::RestoreTargetMissing, TARGET_UNNAMED.0);
                return None;
            };
            names::check_object_name(name, IN_PLACE, judgement);
            judgement.warn(
                IN_PLACE,
                "in place: everything written since the backup is given up",
            );
            Some(Target::InPlace {
                name: name.to_owned(),
                cluster_id: named(cluster.cluster_id.as_ref()).map(ToOwned::to_owned),
            })
        }
        (None, Some(cluster)) => read_new(cluster, policy, judgement),
    }
}

/// A cluster to be made holds every rule that a cluster holds, already now: it would be a pity to learn it after the download.
fn read_new(cluster: &NewCluster, policy: &Policy, judgement: &mut Judgement) -> Option<Target> {
    let spec = cluster.spec.clone().unwrap_or_default();
    let name = named(cluster.name.as_ref());
    match name {
        Some(name) => name::check_cluster_name(name, NEW, judgement),
        None => judgement.refuse(NEW, Reason::RestoreTargetMissing, TARGET_UNNAMED.0),
    }
    // Its name was judged above, and where it stands.
    let found = super::judge(&EtcdCluster::new("", spec.clone()), None, policy);
    let moved = |field: &str| match field.strip_prefix("spec") {
        Some(rest) => format!("{NEW_SPEC}{rest}"),
        None => field.to_owned(),
    };
    for violation in found.violations {
        judgement.refuse(moved(&violation.field), violation.reason, violation.message);
    }
    for warning in found.warnings {
        judgement.warn(moved(&warning.field), warning.message);
    }
    Some(Target::New {
        name: name?.to_owned(),
        spec: Box::new(spec),
    })
}

/// Every rule of an EtcdRestore that CEL can say.
pub(crate) fn cel() -> Vec<CelRule> {
    let backup = "(has(self.backupName) && self.backupName != '')";
    let described = "[has(self.s3), has(self.gcs), has(self.abs), has(self.pvc)]";
    let snapshot = "(has(self.snapshot) && self.snapshot != '')";
    let named = "has(self.name) && self.name != ''";
    let mut rules = vec![
        name::cel_for_jobs(),
        rule(
            Reason::StoreMissing,
            "spec",
            format!("{backup} || {described}.exists(there, there)"),
            SOURCE_MISSING,
        ),
        rule(
            Reason::StoreTwice,
            "spec",
            format!("{described}.filter(there, there).size() + ({backup} ? 1 : 0) <= 1"),
            SOURCE_TWICE,
        ),
        rule(
            Reason::StoreTypeMismatch,
            "spec",
            format!("!{backup} || !has(self.backupStorageType)"),
            TYPE_UNUSED,
        )
        .field(".backupStorageType"),
        rule(
            Reason::SnapshotUnused,
            "spec",
            format!("{backup} || !{snapshot}"),
            SNAPSHOT_UNUSED,
        )
        .field(".snapshot"),
        rule(
            Reason::SnapshotInvalid,
            SNAPSHOT,
            r"!self.matches('(^|/)[.]{0,2}(/|$)') || self == ''",
            SNAPSHOT_INVALID,
        ),
        rule(
            Reason::RestoreTargetMissing,
            "spec",
            "has(self.etcdCluster) || has(self.newCluster)",
            TARGET_MISSING,
        ),
        rule(
            Reason::RestoreTargetTwice,
            "spec",
            "!has(self.etcdCluster) || !has(self.newCluster)",
            TARGET_TWICE,
        )
        .field(".newCluster"),
        rule(
            Reason::RestoreTargetMissing,
            "spec.etcdCluster",
            named,
            TARGET_UNNAMED,
        )
        .field(".name"),
        rule(
            Reason::RestoreTargetMissing,
            "spec.newCluster",
            named,
            TARGET_UNNAMED,
        )
        .field(".name"),
        rule(
            Reason::RestoreImmutable,
            "",
            "!has(oldSelf.status) || !has(oldSelf.status.phase) || self.spec == oldSelf.spec",
            IMMUTABLE,
        )
        .field(".spec"),
    ];
    rules.extend(store::cel("backupStorageType", ".backupStorageType"));
    rules.extend(name::cluster_name_rules(NEW, "self"));
    rules.extend(cluster_spec_at(NEW_SPEC));
    rules
}

#[cfg(test)]
mod tests;

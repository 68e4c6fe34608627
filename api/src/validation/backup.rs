//! EtcdBackup: what is saved, and that it has a place and a time. Stores and times have files of their own.

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason, Violation};
use super::text::Text;
use super::tls::named;
use super::{check_stored, name, names, schedule, store};
use crate::defaults::default_backup;
use crate::policy::Policy;
use crate::v1beta2::{EtcdBackup, EtcdBackupSpec, EtcdBackupStatus};
use crate::validated::{CertificateSecret, Recurrence, SecretKeys, Subject, ValidatedBackup};

const CLUSTER: &str = "spec.clusterName";
const ENDPOINTS: &str = "spec.etcdEndpoints";
const CLIENT_TLS: &str = "spec.clientTLSSecret";

const SUBJECT_MISSING: Text =
    Text("must have `clusterName`, the EtcdCluster to save, or `etcdEndpoints`");
const SUBJECT_TWICE: Text =
    Text("must not be set together with `clusterName`: keep one of the two");
const ENDPOINT: Text = Text("must be an address with its port, such as http://example-client:2379");
const CLIENT_TLS_UNUSED: Text =
    Text("must not be set together with `clusterName`: the cluster's own certificates are used");
const STORE_MISSING: Text = Text("must have a store: one of `s3`, `gcs`, `abs` and `pvc`");
const STORE_TWICE: Text = Text("must have one store, not several of `s3`, `gcs`, `abs` and `pvc`");

/// Judges an EtcdBackup that is created (`old` is None) or updated, with the guarantees of `judge`.
pub fn judge(new: &EtcdBackup, old: Option<&EtcdBackup>, policy: &Policy) -> Judgement {
    let mut judgement = Judgement::default();
    let unchanged = old.is_some_and(|old| old.spec == new.spec);
    if unchanged || new.metadata.deletion_timestamp.is_some() {
        return judgement;
    }
    let defaulted = |backup: &EtcdBackup| {
        let mut backup = backup.clone();
        default_backup(&mut backup, policy);
        backup
    };
    examine(&defaulted(new), &mut judgement);
    if let Some(old) = old {
        let mut before = Judgement::default();
        examine(&defaulted(old), &mut before);
        judgement.forgive(&before);
        warn_of_change(new, old, &mut judgement);
    }
    judgement
}

/// Reads an object that has its defaults; the controller's way in.
pub(crate) fn read(backup: &EtcdBackup) -> Result<ValidatedBackup, Vec<Violation>> {
    let mut judgement = Judgement::default();
    check_stored(&backup.metadata, &mut judgement);
    match examine(backup, &mut judgement) {
        Some(validated) if judgement.allowed() => Ok(validated),
        _ => Err(judgement.violations),
    }
}

fn examine(backup: &EtcdBackup, judgement: &mut Judgement) -> Option<ValidatedBackup> {
    let EtcdBackup { metadata, spec, .. } = backup;
    name::check_for_jobs(metadata, judgement);
    let subject = read_subject(spec, judgement);
    let mut object = |value: Option<&String>, field: &str| {
        let value = named(value)?;
        names::check_object_name(value, field, judgement);
        Some(value.to_owned())
    };
    let auth_secret = object(spec.auth_secret.as_ref(), "spec.authSecret");
    let service_account = object(
        spec.service_account_name.as_ref(),
        "spec.serviceAccountName",
    );
    let store = read_store(spec, judgement);
    let recurrence = schedule::read(spec, judgement);
    let timeout = schedule::read_timeout(spec.backup_policy.as_ref(), judgement);
    let retention = schedule::read_retention(spec, recurrence.as_ref(), judgement);
    Some(ValidatedBackup {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        subject: subject?,
        auth_secret,
        store: store?,
        service_account,
        recurrence: recurrence?,
        timeout: timeout?,
        retention: retention?,
        suspend: spec.suspend.unwrap_or_default(),
        concurrency: spec.concurrency_policy.unwrap_or_default(),
        verify: spec.verify.unwrap_or_default(),
    })
}

fn read_subject(spec: &EtcdBackupSpec, judgement: &mut Judgement) -> Option<Subject> {
    let cluster = named(spec.cluster_name.as_ref());
    let endpoints = spec.etcd_endpoints.as_deref().unwrap_or_default();
    let client_tls = named(spec.client_tls_secret.as_ref());
    for (index, endpoint) in endpoints.iter().enumerate() {
        let authority = store::without_scheme(endpoint);
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if !store::is_host_and_port(authority) {
            let field = format!("{ENDPOINTS}[{index}]");
            judgement.refuse(field, Reason::EndpointInvalid, ENDPOINT.0);
        }
    }
    if let Some(secret) = client_tls {
        names::check_object_name(secret, CLIENT_TLS, judgement);
    }
    let Some(cluster) = cluster else {
        if endpoints.is_empty() {
            judgement.refuse("spec", Reason::BackupSubjectMissing, SUBJECT_MISSING.0);
            return None;
        }
        warn_of_schemes(endpoints, client_tls.is_some(), judgement);
        return Some(Subject::Endpoints {
            urls: endpoints.to_vec(),
            client_tls: client_tls.map(|name| CertificateSecret {
                name: name.to_owned(),
                keys: SecretKeys::COREOS_OPERATOR,
            }),
        });
    };
    names::check_object_name(cluster, CLUSTER, judgement);
    if !endpoints.is_empty() {
        judgement.refuse(ENDPOINTS, Reason::BackupSubjectTwice, SUBJECT_TWICE.0);
    } else if client_tls.is_some() {
        judgement.refuse(
            CLIENT_TLS,
            Reason::ClientTlsSecretUnused,
            CLIENT_TLS_UNUSED.0,
        );
    }
    Some(Subject::Cluster(cluster.to_owned()))
}

fn warn_of_schemes(endpoints: &[String], certificate: bool, judgement: &mut Judgement) {
    let secure = endpoints.iter().any(|url| url.starts_with("https://"));
    if secure && !certificate {
        judgement.warn(
            CLIENT_TLS,
            "unset: only public authorities are trusted, and no certificate is shown",
        );
    } else if certificate && !secure {
        judgement.warn(CLIENT_TLS, "not used: no endpoint begins with https://");
    }
}

fn read_store(spec: &EtcdBackupSpec, judgement: &mut Judgement) -> Option<crate::validated::Store> {
    let described = store::Described {
        type_field: "spec.storageType",
        type_: spec.storage_type,
        s3: spec.s3.as_ref(),
        gcs: spec.gcs.as_ref(),
        abs: spec.abs.as_ref(),
        pvc: spec.pvc.as_ref(),
    };
    match described.count() {
        0 => judgement.refuse("spec", Reason::StoreMissing, STORE_MISSING.0),
        1 => return store::read(described, judgement),
        _ => judgement.refuse("spec", Reason::StoreTwice, STORE_TWICE.0),
    }
    None
}

/// Legal, but perhaps not what was meant.
fn warn_of_change(new: &EtcdBackup, old: &EtcdBackup, judgement: &mut Judgement) {
    let mut ignored = Judgement::default();
    let once = schedule::read(&new.spec, &mut ignored) == Some(Recurrence::Once);
    let ran = old.status.as_ref().is_some_and(has_run);
    if once && ran {
        judgement.warn("spec", "it has run: with this change it runs once more");
    }
    let stores = |spec: &EtcdBackupSpec| {
        (
            spec.s3.clone(),
            spec.gcs.clone(),
            spec.abs.clone(),
            spec.pvc.clone(),
        )
    };
    if !once && ran && stores(&new.spec) != stores(&old.spec) {
        judgement.warn(
            "spec",
            "backups at the old place are no longer counted or removed",
        );
    }
}

fn has_run(status: &EtcdBackupStatus) -> bool {
    status.succeeded == Some(true) || named(status.reason.as_ref()).is_some()
}

/// Every rule of an EtcdBackup that CEL can say.
pub(crate) fn cel() -> Vec<CelRule> {
    let cluster = "(has(self.clusterName) && self.clusterName != '')";
    let endpoints = "(has(self.etcdEndpoints) && self.etcdEndpoints.size() > 0)";
    let client_tls = "(has(self.clientTLSSecret) && self.clientTLSSecret != '')";
    let mut rules = vec![
        name::cel_for_jobs(),
        rule(
            Reason::BackupSubjectMissing,
            "spec",
            format!("{cluster} || {endpoints}"),
            SUBJECT_MISSING,
        ),
        rule(
            Reason::BackupSubjectTwice,
            "spec",
            format!("!{cluster} || !{endpoints}"),
            SUBJECT_TWICE,
        )
        .field(".etcdEndpoints"),
        rule(
            Reason::EndpointInvalid,
            ENDPOINTS,
            format!("self.all(endpoint, {})", store::endpoint_cel("endpoint")),
            ENDPOINT,
        ),
        rule(
            Reason::ClientTlsSecretUnused,
            "spec",
            format!("!{cluster} || !{client_tls}"),
            CLIENT_TLS_UNUSED,
        )
        .field(".clientTLSSecret"),
        rule(
            Reason::StoreMissing,
            "spec",
            "has(self.s3) || has(self.gcs) || has(self.abs) || has(self.pvc)",
            STORE_MISSING,
        ),
        rule(
            Reason::StoreTwice,
            "spec",
            "[has(self.s3), has(self.gcs), has(self.abs), has(self.pvc)].filter(there, there).size() <= 1",
            STORE_TWICE,
        ),
    ];
    rules.extend(store::cel("storageType", ".storageType"));
    rules.extend(schedule::cel());
    rules
}

#[cfg(test)]
mod tests;

//! The Jobs of a backup: one that saves, and where asked for one that proves. Pure.

use std::collections::BTreeMap;

use etcd_operator_api::{
    ValidatedBackup, Version,
    orders::{Naming, Order, Owner, RestoreTool, Retention, SnapshotRef, TlsFiles},
    v1beta2::EtcdBackup,
    validated::{self, Recurrence, SecretKeys},
};
use k8s_openapi::{
    api::batch::v1::Job,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::Resource;
use sha2::{Digest, Sha256};

use super::observed::{Cause, Purpose, Subject};
use crate::{
    agents::{self, BadOrder, Mounts},
    cluster::children::labels::MANAGED_BY,
};

/// Which backup a Job or pod belongs to, by name.
pub const BACKUP: &str = "etcd.database.coreos.com/backup";
/// What a Job is for: `save` or `prove`.
pub const PURPOSE: &str = "etcd.database.coreos.com/purpose";
/// On a Job: why it was made.
pub const CAUSE: &str = "etcd.database.coreos.com/cause";
/// On an EtcdBackup: a new word asks for a run now.
pub const RUN_NOW: &str = "etcd.database.coreos.com/run-now";

/// Letters that spell no word and are not mistaken for one another.
const ALPHABET: &[u8] = b"bcdfghjkmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 8;

/// The run's name, which is its Job's. It follows from the resource's UID and the cause, so that neither a crash nor a second
/// controller makes two of one.
pub fn run_name(backup: &ValidatedBackup, cause: &Cause) -> String {
    let cause = match cause {
        Cause::Generation(generation) => format!("generation {generation}"),
        Cause::Due(at) => format!("due {at}"),
        Cause::RunNow(word) => format!("now {word}"),
        Cause::Request(word) => format!("request {word}"),
    };
    let digest = Sha256::new()
        .chain_update(&backup.uid)
        .chain_update([0])
        .chain_update(cause)
        .finalize();
    let suffix: String = digest
        .iter()
        .take(SUFFIX_LENGTH)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect();
    format!("{}-{suffix}", backup.name)
}

/// The Job that proves what a run has saved.
pub fn proof_name(run: &str) -> String {
    format!("{run}-p")
}

/// The Job that saves.
pub fn save(
    backup: &ValidatedBackup,
    subject: &Subject,
    agent_image: &str,
    run: &str,
    cause: &Cause,
) -> Result<Job, BadOrder> {
    let store = agents::store(&backup.store);
    let mut mounts = Mounts {
        etcd_auth: backup.auth_secret.clone(),
        etcd: subject.client_secret.clone(),
        ..Mounts::of_store(&store)
    };
    let mut etcd = subject.access.clone();
    etcd.auth = backup.auth_secret.is_some();
    // What a lone member has may be old: it is saved only when somebody asks, or before it is given up.
    etcd.lone &= matches!(cause, Cause::Request(_) | Cause::RunNow(_));
    let before_a_step = matches!(cause, Cause::Request(_));
    if subject.issues {
        mounts.etcd = Some(run.to_owned());
        etcd.tls = Some(tls_files(SecretKeys::STANDARD));
    }
    let cluster = match &backup.subject {
        validated::Subject::Cluster(name) => Some(name.clone()),
        validated::Subject::Endpoints { .. } => None,
    };
    let order = Order::Save {
        etcd,
        store,
        naming: match backup.recurrence {
            // What stands there may be the very snapshot that the step is about to restore.
            Recurrence::Once if !before_a_step => Naming::Exact,
            _ => Naming::Repeated,
        },
        owner: Owner {
            namespace: backup.namespace.clone(),
            name: backup.name.clone(),
            uid: backup.uid.clone(),
            cluster,
        },
        run: run.to_owned(),
        retention: if before_a_step {
            Retention::default()
        } else {
            retention(backup)
        },
    };
    let pod = agents::pod_spec(
        None,
        agents::container(agent_image, &order, &mounts)?,
        &mounts,
        backup.service_account.as_deref(),
    );
    let metadata = metadata(backup, run, Purpose::Save, Some(cause));
    Ok(agents::job(metadata, pod, timeout_seconds(backup)))
}

fn retention(backup: &ValidatedBackup) -> Retention {
    Retention {
        count: backup
            .retention
            .count
            .and_then(|count| u32::try_from(count).ok()),
        age_seconds: backup.retention.age.map(|age| age.as_secs()),
    }
}

/// The Job that restores what a run has saved on scratch space, and throws it away.
pub fn prove(
    backup: &ValidatedBackup,
    repository: Option<&str>,
    agent_image: &str,
    run: &str,
    snapshot: &SnapshotRef,
    version: Version,
) -> Result<Job, BadOrder> {
    let store = agents::store(&backup.store);
    let mounts = Mounts {
        tools: true,
        ..Mounts::of_store(&store)
    };
    let abilities = version.abilities();
    let order = Order::Prove {
        store,
        snapshot: snapshot.clone(),
        tool: if abilities.etcdutl {
            RestoreTool::Etcdutl {
                bumps: abilities.bump_revision,
            }
        } else {
            RestoreTool::Etcdctl
        },
    };
    let repository = repository.unwrap_or_else(|| version.default_repository());
    let pod = agents::pod_spec(
        Some(agents::install(agent_image)?),
        agents::beside_etcd(&format!("{repository}:v{version}"), &order, &mounts)?,
        &mounts,
        backup.service_account.as_deref(),
    );
    let metadata = metadata(backup, &proof_name(run), Purpose::Prove, None);
    Ok(agents::job(metadata, pod, timeout_seconds(backup)))
}

/// How the agent finds the files of a Secret.
pub fn tls_files(keys: SecretKeys) -> TlsFiles {
    TlsFiles {
        ca: keys.authority.to_owned(),
        certificate: keys.certificate.to_owned(),
        key: keys.key.to_owned(),
    }
}

fn timeout_seconds(backup: &ValidatedBackup) -> i64 {
    i64::try_from(backup.timeout.as_secs())
        .unwrap_or(i64::MAX)
        .max(1)
}

pub(super) fn labels(backup: &str, purpose: Purpose) -> BTreeMap<String, String> {
    let purpose = match purpose {
        Purpose::Save => "save",
        Purpose::Prove => "prove",
    };
    [
        ("app.kubernetes.io/name", "etcd-operator-agent"),
        ("app.kubernetes.io/component", "backup"),
        MANAGED_BY,
        (BACKUP, backup),
        (PURPOSE, purpose),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

fn metadata(
    backup: &ValidatedBackup,
    name: &str,
    purpose: Purpose,
    cause: Option<&Cause>,
) -> ObjectMeta {
    let cause = cause.and_then(|cause| serde_json::to_string(cause).ok());
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(backup.namespace.clone()),
        labels: Some(labels(&backup.name, purpose)),
        annotations: cause.map(|cause| BTreeMap::from([(CAUSE.to_owned(), cause)])),
        owner_references: Some(vec![OwnerReference {
            api_version: EtcdBackup::api_version(&()).into_owned(),
            kind: EtcdBackup::kind(&()).into_owned(),
            name: backup.name.clone(),
            uid: backup.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::Policy;
    use serde_json::json;

    use super::*;

    /// The order that a run for this cause gets.
    fn order(cause: &Cause) -> (Naming, Retention, bool) {
        let backup: EtcdBackup = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
            "metadata": {"name": "once", "namespace": "n", "uid": "u"},
            "spec": {"clusterName": "c", "pvc": {"claimName": "backups", "path": "etcd.backup"}},
        }))
        .unwrap();
        let mut backup = ValidatedBackup::new(&backup, &Policy::default()).unwrap();
        backup.retention.count = Some(1);
        let subject = Subject {
            access: etcd_operator_api::orders::EtcdAccess {
                lone: true,
                ..Default::default()
            },
            client_secret: None,
            issues: false,
            repository: None,
        };
        let job = save(&backup, &subject, "image", "run", cause).unwrap();
        let pod = job.spec.unwrap().template.spec.unwrap();
        let order = pod.containers[0]
            .env
            .clone()
            .unwrap()
            .remove(0)
            .value
            .unwrap();
        match serde_json::from_str(&order).unwrap() {
            Order::Save {
                naming,
                retention,
                etcd,
                ..
            } => (naming, retention, etcd.lone),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_before_a_step_neither_replaces_nor_prunes_what_the_step_may_be_about_to_restore() {
        let (naming, retention, lone) = order(&Cause::Generation(1));
        assert_eq!(
            (naming, retention.count, lone),
            (Naming::Exact, Some(1), false)
        );
        let (naming, retention, lone) = order(&Cause::Request("a step".to_owned()));
        assert_eq!(
            (naming, retention.count, lone),
            (Naming::Repeated, None, true)
        );
    }
}

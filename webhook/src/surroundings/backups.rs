//! What is around an EtcdBackup or an EtcdRestore: the cluster, the backup and the Secrets that it names.

use etcd_operator_api::v1beta2::{AbsStore, EtcdBackup, EtcdRestore, GcsStore, S3Store};
use etcd_operator_api::validated::SecretKeys;
use etcd_operator_api::{Recovery, Warning, recovery_refused};
use jiff::Timestamp;
use kube::ResourceExt;

use super::secrets::{self, Holds, Named};
use super::{Found, Seen, Surroundings, warning};
use crate::review::Refusal;

/// Looks around for a backup that is created.
pub async fn look_for_backup(
    backup: &EtcdBackup,
    around: &dyn Surroundings,
    now: Timestamp,
) -> Seen {
    let namespace = backup.namespace().unwrap_or_default();
    let spec = &backup.spec;
    let mut named = of_store(spec.s3.as_ref(), spec.gcs.as_ref(), spec.abs.as_ref());
    named.extend(spec.auth_secret.iter().map(|secret| Named {
        field: "spec.authSecret",
        secret: secret.clone(),
        holds: Holds::Keys(&["username", "password"]),
    }));
    named.extend(spec.client_tls_secret.iter().map(|secret| Named {
        field: "spec.clientTLSSecret",
        secret: secret.clone(),
        holds: Holds::Certificate {
            keys: SecretKeys::COREOS_OPERATOR,
            names: Vec::new(),
        },
    }));
    let (cluster, secrets) = futures::join!(
        missing_cluster(
            "spec.clusterName",
            spec.cluster_name.as_deref(),
            &namespace,
            around
        ),
        secrets::all(&named, &namespace, around, now),
    );
    let warnings: Vec<Warning> = cluster.into_iter().chain(secrets).collect();
    Seen::warned(&warnings)
}

/// Looks around for a restore that is created.
pub async fn look_for_restore(
    restore: &EtcdRestore,
    around: &dyn Surroundings,
    now: Timestamp,
) -> Seen {
    let namespace = restore.namespace().unwrap_or_default();
    let spec = &restore.spec;
    let named = of_store(spec.s3.as_ref(), spec.gcs.as_ref(), spec.abs.as_ref());
    let in_place = spec
        .etcd_cluster
        .as_ref()
        .and_then(|target| target.name.as_deref());
    let new = spec
        .new_cluster
        .as_ref()
        .and_then(|target| target.name.as_deref());
    let (refusal, backup, cluster, taken, secrets) = futures::join!(
        recovery(restore, &namespace, around),
        async {
            let name = spec.backup_name.as_deref()?;
            (around.backup(&namespace, name).await == Found::No).then(|| {
                warning(
                    "spec.backupName",
                    format!("EtcdBackup `{name}` does not exist (yet)"),
                )
            })
        },
        missing_cluster("spec.etcdCluster.name", in_place, &namespace, around),
        async {
            let name = new?;
            (around.cluster(&namespace, name).await == Found::Yes(())).then(|| {
                warning(
                    "spec.newCluster.name",
                    format!(
                        "EtcdCluster `{name}` exists already; a restore into it is `etcdCluster`"
                    ),
                )
            })
        },
        secrets::all(&named, &namespace, around, now),
    );
    let named = [backup, cluster, taken].into_iter().flatten();
    Seen {
        refusals: refusal.into_iter().collect(),
        ..Seen::warned(&named.chain(secrets).collect::<Vec<_>>())
    }
}

/// A recovery gives up what the cluster has: it must be that cluster, and no quorum may serve. The controller asks again.
async fn recovery(
    restore: &EtcdRestore,
    namespace: &str,
    around: &dyn Surroundings,
) -> Option<Refusal> {
    let target = restore.spec.etcd_cluster.as_ref()?;
    let meant = target.cluster_id.as_deref().filter(|id| !id.is_empty())?;
    let name = target.name.as_deref()?;
    let Found::Yes(status) = around.cluster_status(namespace, name).await else {
        return None;
    };
    let (reason, message) = recovery_refused(meant, Some(&status), Recovery::FromBackup)?;
    Some(Refusal {
        field: "spec.etcdCluster.clusterID".to_owned(),
        reason: reason.as_str().into(),
        message,
    })
}

async fn missing_cluster(
    field: &str,
    name: Option<&str>,
    namespace: &str,
    around: &dyn Surroundings,
) -> Option<Warning> {
    let name = name?;
    (around.cluster(namespace, name).await == Found::No)
        .then(|| warning(field, format!("EtcdCluster `{name}` does not exist (yet)")))
}

fn of_store(s3: Option<&S3Store>, gcs: Option<&GcsStore>, abs: Option<&AbsStore>) -> Vec<Named> {
    const CA: Holds = Holds::Keys(&["ca.crt"]);
    let mut named = Vec::new();
    let mut add = |field, secret: Option<&String>, holds| {
        if let Some(secret) = secret {
            named.push(Named {
                field,
                secret: secret.clone(),
                holds,
            });
        }
    };
    if let Some(s3) = s3 {
        add(
            "spec.s3.awsSecret",
            s3.aws_secret.as_ref(),
            Holds::Keys(&["credentials"]),
        );
        add("spec.s3.caSecret", s3.ca_secret.as_ref(), CA);
    }
    if let Some(gcs) = gcs {
        let either = Holds::OneOf(&["access-token", "credentials.json"]);
        add("spec.gcs.gcpSecret", gcs.gcp_secret.as_ref(), either);
        add("spec.gcs.caSecret", gcs.ca_secret.as_ref(), CA);
    }
    if let Some(abs) = abs {
        let both = Holds::Keys(&["storage-account", "storage-key"]);
        add("spec.abs.absSecret", abs.abs_secret.as_ref(), both);
        add("spec.abs.caSecret", abs.ca_secret.as_ref(), CA);
    }
    named
}

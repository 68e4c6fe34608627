//! Takes the one step of a restore. What takes something away names exactly what it means.

use std::{collections::BTreeSet, fmt};

use etcd_operator_api::{
    ValidatedCluster, ValidatedRestore,
    orders::{Order, SnapshotRef},
    v1beta2::{
        BootstrapMember, BootstrapRecord, EtcdBackup, EtcdCluster, EtcdClusterStatus, EtcdRestore,
        EtcdRestoreStatus, FormerMembers, Seed,
    },
};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;

use super::{
    Context, FINALIZER,
    plan::{Observed, Step},
};
use crate::{
    FIELD_MANAGER,
    agents::{self, BadOrder, Mounts},
    cluster::{children::labels, names, set_aside},
};

/// A snapshot that is not fetched in this time is tried again, from where it was.
const FETCHED_WITHIN: i64 = 6 * 60 * 60;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    #[error("{what} could not be read or written")]
    Api { what: String, source: kube::Error },
    #[error(
        "Job {0} exists and belongs to something else: rename or delete it, or name the restore otherwise"
    )]
    NameTaken(String),
    #[error(transparent)]
    Order(#[from] BadOrder),
    #[error("the lease is not held: another controller may act")]
    NotLeader,
    #[error("the EtcdCluster has changed since it was looked at")]
    OutOfDate,
}

impl ActError {
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::OutOfDate)
            || matches!(self, Self::Api { source: kube::Error::Api(status), .. } if status.code == 409)
    }

    /// The API server has understood and says no.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::NameTaken(_))
            || matches!(self, Self::Api { source: kube::Error::Api(status), .. } if matches!(status.code, 400 | 403 | 422))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inspect { snapshot, .. } => write!(f, "fetch and check {snapshot}"),
            Self::DeleteJob { .. } => write!(f, "delete the Job that has ended"),
            Self::Create { cluster } => write!(f, "make EtcdCluster {}", cluster.name_any()),
            Self::Hold => write!(f, "keep the restore until its cluster is whole"),
            Self::LetGo => write!(f, "let the restore go"),
            Self::RequestBackup { backup, .. } => write!(f, "ask EtcdBackup {backup} for a run"),
            Self::Replace { .. } => write!(f, "set the members aside and start from the snapshot"),
            Self::GoBack => write!(f, "go back to the members that were set aside"),
        }
    }
}

/// The Job that fetches and checks.
pub(super) fn job_name(restore: &ValidatedRestore) -> String {
    format!("{}-fetch", restore.name)
}

pub(super) async fn read<K>(api: &Api<K>, name: &str) -> Result<Option<K>, ActError>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + serde::de::DeserializeOwned,
{
    api.get_opt(name).await.map_err(|source| ActError::Api {
        what: format!("{} {name}", K::kind(&())),
        source,
    })
}

/// Asked before every write: a controller that lost its lease must not act.
fn guard(context: &Context) -> Result<(), ActError> {
    if context.leadership.held() {
        Ok(())
    } else {
        Err(ActError::NotLeader)
    }
}

fn parameters() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

pub(super) async fn perform(
    context: &Context,
    object: &EtcdRestore,
    restore: &ValidatedRestore,
    seen: &Observed,
    step: &Step,
) -> Result<(), ActError> {
    guard(context)?;
    let client = || context.client.clone();
    let jobs: Api<Job> = Api::namespaced(client(), &restore.namespace);
    let clusters: Api<EtcdCluster> = Api::namespaced(client(), &restore.namespace);
    let failed = |source| ActError::Api {
        what: format!("to {step}: something"),
        source,
    };
    match step {
        Step::Inspect { store, snapshot } => {
            let order = Order::Inspect {
                store: store.clone(),
                snapshot: SnapshotRef {
                    name: snapshot.clone(),
                    sha256: None,
                },
            };
            let mounts = Mounts::of_store(store);
            let agent = agents::container(&context.agent_image, &order, &mounts)?;
            let account = restore.service_account.as_deref();
            let pod = agents::pod_spec(None, agent, &mounts, account);
            let job = agents::job(job_metadata(object, restore), pod, FETCHED_WITHIN);
            jobs.create(&parameters(), &job).await.map_err(failed)?;
        }
        Step::DeleteJob { uid } => {
            let exactly = DeleteParams::background().preconditions(Preconditions {
                uid: Some(uid.clone()),
                resource_version: None,
            });
            match jobs.delete(&job_name(restore), &exactly).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Step::Create { cluster } => {
            clusters
                .create(&parameters(), cluster)
                .await
                .map_err(failed)?;
        }
        Step::Hold | Step::LetGo => {
            let mut finalizers = object.finalizers().to_vec();
            finalizers.retain(|held| held != FINALIZER);
            if *step == Step::Hold {
                finalizers.push(FINALIZER.to_owned());
            }
            let change = json!({"metadata": {
                "resourceVersion": object.resource_version(),
                "finalizers": finalizers,
            }});
            let restores: Api<EtcdRestore> = Api::namespaced(client(), &restore.namespace);
            restores
                .patch(
                    &restore.name,
                    &PatchParams::default(),
                    &Patch::Merge(&change),
                )
                .await
                .map_err(failed)?;
        }
        Step::RequestBackup { backup, word } => {
            let backups: Api<EtcdBackup> = Api::namespaced(client(), &restore.namespace);
            let asked = json!({"status": {"requested": word}});
            backups
                .patch_status(backup, &PatchParams::default(), &Patch::Merge(&asked))
                .await
                .map_err(failed)?;
        }
        Step::Replace { seed } => {
            let cluster = looked_at(seen)?;
            let left = everybody(context, cluster).await?;
            let sound =
                ValidatedCluster::new(cluster, &context.policy).map_err(|_| ActError::OutOfDate)?;
            let status = replaced(cluster, &sound, seed, &left);
            write_cluster(context, cluster, status).await?;
        }
        Step::GoBack => {
            let cluster = looked_at(seen)?;
            let left = everybody(context, cluster).await?;
            let status = put_back(cluster, &left);
            write_cluster(context, cluster, status).await?;
        }
    }
    Ok(())
}

fn looked_at(seen: &Observed) -> Result<&EtcdCluster, ActError> {
    seen.cluster.as_ref().ok_or(ActError::OutOfDate)
}

fn job_metadata(object: &EtcdRestore, restore: &ValidatedRestore) -> ObjectMeta {
    ObjectMeta {
        name: Some(job_name(restore)),
        namespace: Some(restore.namespace.clone()),
        labels: Some(
            [
                ("app.kubernetes.io/name", "etcd-operator-agent"),
                ("app.kubernetes.io/instance", restore.name.as_str()),
                ("app.kubernetes.io/component", "restore"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ),
        owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// Everybody of this cluster that has a pod or a claim, by the API server's own word, and whom the status lists.
async fn everybody(context: &Context, cluster: &EtcdCluster) -> Result<BTreeSet<String>, ActError> {
    let (name, uid) = (cluster.name_any(), cluster.uid().unwrap_or_default());
    let namespace = cluster.namespace().unwrap_or_default();
    let of_cluster = ListParams::default().labels(&format!("{}={name}", labels::CLUSTER));
    let unread = |source| ActError::Api {
        what: format!("the members of {name}"),
        source,
    };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &namespace);
    let (pods, claims) =
        futures::try_join!(pods.list(&of_cluster), claims.list(&of_cluster)).map_err(unread)?;
    let metas = pods.items.iter().map(|pod| &pod.metadata);
    let metas = metas.chain(claims.items.iter().map(|claim| &claim.metadata));
    let listed = cluster
        .status
        .iter()
        .flat_map(|status| &status.member_status);
    Ok(metas
        .filter(|meta| labels::is_of(meta, &uid))
        .filter_map(|meta| meta.name.clone())
        .chain(listed.map(|member| member.name.clone()))
        .collect())
}

/// The status of a cluster that begins anew from a snapshot, with everybody it has now set aside.
fn replaced(
    object: &EtcdCluster,
    cluster: &ValidatedCluster,
    seed: &Seed,
    everybody: &BTreeSet<String>,
) -> EtcdClusterStatus {
    let before = object.status.clone().unwrap_or_default();
    let record = before.bootstrap.clone().unwrap_or_default();
    let mut taken = everybody.clone();
    taken.extend(record.members.iter().map(|member| member.name.clone()));
    let token = format!("{}-{}", cluster.uid, seed.restore_uid);
    let members = names::founders_of(cluster, &token, &taken)
        .into_iter()
        .map(|name| BootstrapMember {
            name,
            claim_uid: None,
        })
        .collect();
    EtcdClusterStatus {
        bootstrap: Some(BootstrapRecord {
            token,
            members,
            seed: Some(seed.clone()),
            former: Some(FormerMembers {
                token: record.token,
                cluster_id: before.cluster_id.clone(),
                members: everybody.iter().cloned().collect(),
            }),
        }),
        ..begun_anew(before, None)
    }
}

/// The status of a cluster whose former members are the cluster again; whoever took their place is set aside.
fn put_back(object: &EtcdCluster, everybody: &BTreeSet<String>) -> EtcdClusterStatus {
    let before = object.status.clone().unwrap_or_default();
    let record = before.bootstrap.clone().unwrap_or_default();
    let kept = set_aside(&before);
    let former = record.former.unwrap_or_default();
    let mut given_up: BTreeSet<String> = everybody.difference(&kept).cloned().collect();
    given_up.extend(record.members.into_iter().map(|member| member.name));
    EtcdClusterStatus {
        bootstrap: Some(BootstrapRecord {
            token: former.token,
            members: Vec::new(),
            seed: None,
            former: Some(FormerMembers {
                token: record.token,
                cluster_id: before.cluster_id.clone(),
                members: given_up.into_iter().collect(),
            }),
        }),
        ..begun_anew(before, former.cluster_id)
    }
}

/// What was said of the one incarnation is not true of the other.
fn begun_anew(before: EtcdClusterStatus, cluster_id: Option<String>) -> EtcdClusterStatus {
    EtcdClusterStatus {
        cluster_id,
        leader: None,
        members: None,
        member_status: Vec::new(),
        compacted: None,
        log_readable_by: None,
        recovery: None,
        ..before
    }
}

/// Against the very version of the EtcdCluster that was looked at.
async fn write_cluster(
    context: &Context,
    cluster: &EtcdCluster,
    status: EtcdClusterStatus,
) -> Result<(), ActError> {
    let mut updated = cluster.clone();
    updated.status = Some(status);
    let name = cluster.name_any();
    let namespace = cluster.namespace().unwrap_or_default();
    let api: Api<EtcdCluster> = Api::namespaced(context.client.clone(), &namespace);
    api.replace_status(&name, &parameters(), &updated)
        .await
        .map_err(|source| ActError::Api {
            what: format!("the status of EtcdCluster {name}"),
            source,
        })?;
    Ok(())
}

/// Writes the restore's own status, against the version that was looked at.
pub(super) async fn write_status(
    context: &Context,
    object: &EtcdRestore,
    status: EtcdRestoreStatus,
) -> Result<(), ActError> {
    guard(context)?;
    let mut updated = object.clone();
    updated.status = Some(status);
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<EtcdRestore> = Api::namespaced(context.client.clone(), &namespace);
    api.replace_status(&name, &parameters(), &updated)
        .await
        .map_err(|source| ActError::Api {
            what: format!("the status of {name}"),
            source,
        })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::fixtures;

    fn running() -> EtcdCluster {
        let mut object = fixtures::object(json!({}));
        object.status = serde_json::from_value(json!({
            "clusterID": "c0",
            "bootstrap": {"token": "first", "members": [{"name": "c-old"}]},
            "leader": "c-new",
        }))
        .unwrap();
        object
    }

    fn names(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_new_beginning_keeps_who_was_there_and_names_nobody_twice() {
        let (object, cluster) = (running(), fixtures::cluster(json!({})));
        let seed = Seed {
            restore_uid: "r".to_owned(),
            ..Seed::default()
        };
        let there = names(&["c-old", "c-new"]);
        let status = replaced(&object, &cluster, &seed, &there);
        assert_eq!(
            (status.cluster_id.clone(), status.leader.clone()),
            (None, None)
        );
        let record = status.bootstrap.clone().unwrap();
        let former = record.former.clone().unwrap();
        assert_eq!(former.members, ["c-new", "c-old"]);
        assert_eq!(former.cluster_id.as_deref(), Some("c0"));
        assert_ne!(record.token, "first");
        assert_eq!(record.members.len(), 3);
        assert!(record.members.iter().all(|one| !there.contains(&one.name)));

        // And back again: the former are the cluster, under its own ID, and the others are set aside.
        let mut replaced = object;
        replaced.status = Some(status);
        let founder = record.members[0].name.clone();
        let all = names(&["c-old", "c-new", &founder]);
        let back = put_back(&replaced, &all);
        assert_eq!(back.cluster_id.as_deref(), Some("c0"));
        let again = back.bootstrap.unwrap();
        assert_eq!((again.token.as_str(), again.seed), ("first", None));
        let aside = again.former.unwrap().members;
        assert!(aside.contains(&founder) && !aside.contains(&"c-old".to_owned()));
    }
}

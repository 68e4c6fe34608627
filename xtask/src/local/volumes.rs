//! The provisioner of the classes `local` and `bounded`: a folder on the node that the scheduler chose, writable by anyone, growable,
//! gone with its claim. A process of its own; watches claims and volumes, and touches the nodes' `volumes` folders.
//!
//! Every step can be done twice, and a volume is named after its claim's UID: stopped between any two steps, it goes on where it was.
//! The folder is held by a finalizer on the volume, so that none stays behind.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{
        Controller,
        controller::{self, Action},
        watcher,
    },
};
use serde_json::json;

use super::bounded;

/// Who the provisioner is to the API server.
pub const USER: &str = "etcd-operator:local-volumes";
const PROVISIONER: &str = "etcd-operator.local/volumes";
const FINALIZER: &str = "etcd-operator.local/folder";
const RESPONSIBLE: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Provides volumes to the cluster.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The cluster's folder, which holds one folder per node.
    #[arg(long)]
    state: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let client = super::ready::client(&args.kubeconfig).await?;
            let context = Arc::new(Context {
                client: client.clone(),
                state: args.state.clone(),
            });
            let claims = Controller::new(
                Api::<PersistentVolumeClaim>::all(client.clone()),
                watcher::Config::default(),
            )
            .run(tend_claim, again, context.clone())
            .for_each(tell);
            let volumes = Controller::new(
                Api::<PersistentVolume>::all(client),
                watcher::Config::default(),
            )
            .run(tend_volume, again, context)
            .for_each(tell);
            futures::join!(claims, volumes);
            Ok(())
        })
}

/// Failed steps are told where they fail; what is left are troubles of the watch itself.
async fn tell<T, E: std::error::Error>(result: Result<T, controller::Error<E, watcher::Error>>) {
    if let Err(error @ (controller::Error::QueueError(_) | controller::Error::RunnerError(_))) =
        result
    {
        eprintln!("{error}");
    }
}

struct Context {
    client: Client,
    state: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Folder(#[from] io::Error),
    #[error("claim {0} asks for no storage")]
    NoSize(String),
}

// By value, because that is what a Controller calls.
#[allow(clippy::needless_pass_by_value)]
fn again<K: ResourceExt>(object: Arc<K>, error: &Error, _: Arc<Context>) -> Action {
    eprintln!(
        "{}/{}: {error}",
        object.namespace().unwrap_or_default(),
        object.name_any()
    );
    Action::requeue(Duration::from_millis(500))
}

/// What is to be done about a claim.
#[derive(Debug, PartialEq, Eq)]
enum ClaimStep {
    Nothing,
    Provide { node: String },
    Grow { volume: String, to: String },
}

fn plan_claim(claim: &PersistentVolumeClaim) -> ClaimStep {
    let annotation = |name: &str| claim.annotations().get(name).map(String::as_str);
    if annotation(RESPONSIBLE) != Some(PROVISIONER) || claim.metadata.deletion_timestamp.is_some() {
        return ClaimStep::Nothing;
    }
    let spec = claim.spec.as_ref();
    let Some(volume) = spec.and_then(|spec| spec.volume_name.clone()) else {
        return annotation(SELECTED_NODE).map_or(ClaimStep::Nothing, |node| ClaimStep::Provide {
            node: node.to_owned(),
        });
    };
    // The API server lets a request grow only, so a difference is growth.
    let actual = claim
        .status
        .as_ref()
        .and_then(|status| status.capacity.as_ref()?.get("storage"));
    match (requested(claim), actual) {
        (Some(wanted), Some(actual)) if wanted != actual.0 => {
            ClaimStep::Grow { volume, to: wanted }
        }
        _ => ClaimStep::Nothing,
    }
}

fn requested(claim: &PersistentVolumeClaim) -> Option<String> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    requests.get("storage").map(|size| size.0.clone())
}

async fn tend_claim(
    claim: Arc<PersistentVolumeClaim>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    match plan_claim(&claim) {
        ClaimStep::Nothing => {}
        ClaimStep::Provide { node } => provide(&claim, &node, &context).await?,
        ClaimStep::Grow { volume, to } => grow(&claim, &volume, &to, &context).await?,
    }
    Ok(Action::await_change())
}

async fn provide(
    claim: &PersistentVolumeClaim,
    node: &str,
    context: &Context,
) -> Result<(), Error> {
    let Some(folders) = folders_of(&context.state, node) else {
        return Ok(());
    };
    let size = requested(claim).ok_or_else(|| Error::NoSize(claim.name_any()))?;
    let class = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.clone())
        .unwrap_or_default();
    let of_class = Api::<StorageClass>::all(context.client.clone())
        .get(&class)
        .await?;
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let folder = folders.join(&name);
    fs::create_dir_all(&folder)?;
    if bounded::wanted(&of_class) {
        bounded::bound(&folder, &size)?;
    }
    // Pods that are nobody's root must be able to write, with and without an fsGroup.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let volume = volume(
        claim,
        &name,
        node,
        &folder,
        &size,
        &class,
        of_class.reclaim_policy.as_deref().unwrap_or("Delete"),
    )?;
    match Api::<PersistentVolume>::all(context.client.clone())
        .create(&PostParams::default(), &volume)
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

fn volume(
    claim: &PersistentVolumeClaim,
    name: &str,
    node: &str,
    folder: &Path,
    size: &str,
    class: &str,
    reclaim: &str,
) -> Result<PersistentVolume, Error> {
    let spec = claim.spec.clone().unwrap_or_default();
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": [FINALIZER]},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.access_modes,
            "volumeMode": "Filesystem",
            "storageClassName": class,
            "persistentVolumeReclaimPolicy": reclaim,
            "local": {"path": folder},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid()},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}},
        },
    });
    serde_json::from_value(volume).map_err(|error| Error::Folder(io::Error::other(error)))
}

async fn grow(
    claim: &PersistentVolumeClaim,
    volume: &str,
    to: &str,
    context: &Context,
) -> Result<(), Error> {
    let capacity = json!({"capacity": {"storage": to}});
    // The volume first: a claim never says more than its volume.
    let volumes = Api::<PersistentVolume>::all(context.client.clone());
    let grown = volumes
        .patch(
            volume,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": capacity})),
        )
        .await?;
    if let Some(folder) = folder_of(&grown) {
        bounded::grow(&folder, to)?;
    }
    let claims = Api::<PersistentVolumeClaim>::namespaced(
        context.client.clone(),
        &claim.namespace().unwrap_or_default(),
    );
    let status = json!({"status": {"capacity": {"storage": to}, "conditions": null, "allocatedResources": null, "allocatedResourceStatuses": null}});
    claims
        .patch_status(
            &claim.name_any(),
            &PatchParams::default(),
            &Patch::Merge(status),
        )
        .await?;
    Ok(())
}

/// What is to be done about a volume.
#[derive(Debug, PartialEq, Eq)]
enum VolumeStep {
    Nothing,
    Delete,
    /// Remove this folder of that node, then let the volume go.
    LetGo {
        node: String,
        folder: PathBuf,
    },
}

fn folder_of(volume: &PersistentVolume) -> Option<PathBuf> {
    let local = volume.spec.as_ref()?.local.as_ref()?;
    Some(PathBuf::from(&local.path))
}

fn plan_volume(volume: &PersistentVolume) -> VolumeStep {
    if volume.annotations().get(PROVISIONED_BY).map(String::as_str) != Some(PROVISIONER) {
        return VolumeStep::Nothing;
    }
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let spec = volume.spec.as_ref();
    if volume.metadata.deletion_timestamp.is_none() {
        let released = phase == Some("Released")
            && spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
                == Some("Delete");
        return if released {
            VolumeStep::Delete
        } else {
            VolumeStep::Nothing
        };
    }
    // Deleted while a claim still uses it: Kubernetes waits for that claim, and so does the folder.
    if phase == Some("Bound")
        || !volume
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == FINALIZER)
    {
        return VolumeStep::Nothing;
    }
    let folder = folder_of(volume);
    let node = spec.and_then(|spec| {
        let terms = &spec
            .node_affinity
            .as_ref()?
            .required
            .as_ref()?
            .node_selector_terms;
        terms
            .first()?
            .match_expressions
            .as_ref()?
            .first()?
            .values
            .as_ref()?
            .first()
            .cloned()
    });
    node.zip(folder)
        .map_or(VolumeStep::Nothing, |(node, folder)| VolumeStep::LetGo {
            node,
            folder,
        })
}

async fn tend_volume(
    volume: Arc<PersistentVolume>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let volumes = Api::<PersistentVolume>::all(context.client.clone());
    let result = match plan_volume(&volume) {
        VolumeStep::Nothing => Ok(()),
        VolumeStep::Delete => {
            let same = Preconditions {
                uid: volume.uid(),
                resource_version: None,
            };
            volumes
                .delete(
                    &volume.name_any(),
                    &DeleteParams::default().preconditions(same),
                )
                .await
                .map(drop)
        }
        VolumeStep::LetGo { node, folder } => {
            // Whatever a volume's path says, only a folder of that node's volumes is ever removed.
            let ours = folders_of(&context.state, &node)
                .is_some_and(|folders| folder.parent() == Some(folders.as_path()));
            if ours
                && let Err(error) =
                    bounded::unbound(&folder).and_then(|()| fs::remove_dir_all(&folder))
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error.into());
            }
            let finalizers: Vec<_> = volume
                .finalizers()
                .iter()
                .filter(|finalizer| *finalizer != FINALIZER)
                .collect();
            let patch = json!({"metadata": {"resourceVersion": volume.resource_version(), "finalizers": finalizers}});
            volumes
                .patch(
                    &volume.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(patch),
                )
                .await
                .map(drop)
        }
    };
    match result {
        // Gone or changed already: the watch tells.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            Ok(Action::await_change())
        }
        other => Ok(other.map(|()| Action::await_change())?),
    }
}

/// The folder for volumes of a node of this cluster.
fn folders_of(state: &Path, node: &str) -> Option<PathBuf> {
    let number = node.strip_prefix("node")?;
    let plain = !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit());
    plain
        .then(|| state.join(node).join("volumes"))
        .filter(|folder| folder.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(change: serde_json::Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "annotations": {RESPONSIBLE: PROVISIONER, SELECTED_NODE: "node2"}},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "local"},
        });
        merge(&mut claim, change);
        serde_json::from_value(claim).unwrap()
    }

    fn volume_of(change: serde_json::Value) -> PersistentVolume {
        let made = volume(
            &claim(json!({})),
            "pvc-u",
            "node2",
            Path::new("/state/node2/volumes/pvc-u"),
            "1Gi",
            "local",
            "Delete",
        )
        .unwrap();
        let mut made = serde_json::to_value(made).unwrap();
        merge(&mut made, change);
        serde_json::from_value(made).unwrap()
    }

    /// As in a JSON merge patch: null removes.
    fn merge(into: &mut serde_json::Value, from: serde_json::Value) {
        match (into, from) {
            (serde_json::Value::Object(into), serde_json::Value::Object(from)) => {
                for (key, value) in from {
                    if value.is_null() {
                        into.remove(&key);
                    } else {
                        merge(into.entry(key).or_insert(json!(null)), value);
                    }
                }
            }
            (into, from) => *into = from,
        }
    }

    #[test]
    fn a_claim_gets_its_volume_on_the_node_the_scheduler_chose() {
        assert_eq!(
            plan_claim(&claim(json!({}))),
            ClaimStep::Provide {
                node: "node2".to_owned()
            }
        );
    }

    #[test]
    fn a_claim_waits_until_a_node_is_chosen_and_claims_of_others_are_left_alone() {
        assert_eq!(
            plan_claim(&claim(
                json!({"metadata": {"annotations": {SELECTED_NODE: null}}})
            )),
            ClaimStep::Nothing
        );
        assert_eq!(
            plan_claim(&claim(
                json!({"metadata": {"annotations": {RESPONSIBLE: "another"}}})
            )),
            ClaimStep::Nothing
        );
    }

    #[test]
    fn a_bound_claim_that_asks_for_more_grows_and_one_that_has_it_rests() {
        let bound = |has: &str| {
            claim(
                json!({"spec": {"volumeName": "pvc-u"}, "status": {"capacity": {"storage": has}}}),
            )
        };
        assert_eq!(
            plan_claim(&bound("512Mi")),
            ClaimStep::Grow {
                volume: "pvc-u".to_owned(),
                to: "1Gi".to_owned()
            }
        );
        assert_eq!(plan_claim(&bound("1Gi")), ClaimStep::Nothing);
    }

    #[test]
    fn a_released_volume_is_deleted_unless_it_is_to_be_retained() {
        let released = json!({"status": {"phase": "Released"}});
        assert_eq!(
            plan_volume(&volume_of(released.clone())),
            VolumeStep::Delete
        );
        let mut retained = volume_of(released);
        retained
            .spec
            .as_mut()
            .unwrap()
            .persistent_volume_reclaim_policy = Some("Retain".to_owned());
        assert_eq!(plan_volume(&retained), VolumeStep::Nothing);
    }

    #[test]
    fn a_deleted_volume_loses_its_folder_but_not_while_a_claim_uses_it() {
        let deleted = |phase: &str| {
            volume_of(
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase}}),
            )
        };
        assert_eq!(
            plan_volume(&deleted("Released")),
            VolumeStep::LetGo {
                node: "node2".to_owned(),
                folder: "/state/node2/volumes/pvc-u".into()
            }
        );
        assert_eq!(plan_volume(&deleted("Bound")), VolumeStep::Nothing);
    }

    #[test]
    fn a_node_name_never_leads_out_of_the_clusters_folder() {
        assert_eq!(folders_of(Path::new("/"), "node1/../.."), None);
        assert_eq!(folders_of(Path::new("/"), "node"), None);
    }
}

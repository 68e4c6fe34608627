//! Writes of children: create, change, delete, each meaning exactly one object.

use std::fmt::Debug;

use etcd_operator_api::{ValidatedCluster, v1beta2::EtcdBackup};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams, Preconditions},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::ActError;
use crate::{
    FIELD_MANAGER,
    cluster::{
        Context,
        children::{InPlace, labels},
    },
};

/// Creates a child; that it is there already means only that our cache was behind, if it is ours.
pub(super) async fn create<K>(
    context: &Context,
    cluster: &ValidatedCluster,
    child: K,
) -> Result<(), ActError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let what = format!("{} {}", K::kind(&()), child.name_any());
    let api: Api<K> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&parameters, &child).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let live = api.get_opt(&child.name_any()).await;
            match live.map_err(|source| ActError::Api {
                what: what.clone(),
                source,
            })? {
                Some(live) if labels::belongs(live.meta(), cluster) => Ok(()),
                Some(_) => Err(ActError::NameTaken { what }),
                // Gone since: the next look makes it.
                None => Err(ActError::OutOfDate { what }),
            }
        }
        Err(source) => Err(ActError::Api { what, source }),
    }
}

/// Asks for a larger volume. Claims never shrink, so this is right whatever happened since.
pub(super) async fn grow(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    uid: &str,
    size: &str,
) -> Result<(), ActError> {
    let wish = json!({
        "metadata": {"uid": uid},
        "spec": {"resources": {"requests": {"storage": size}}},
    });
    match patch_claim(context, cluster, name, wish).await {
        // The API server asks the class, and says no for good.
        Err(ActError::Api {
            what,
            source: kube::Error::Api(status),
        }) if matches!(status.code, 403 | 422) => Err(ActError::CannotGrow {
            what,
            source: kube::Error::Api(status),
        }),
        other => other,
    }
}

/// Lets a claim outlive the resource, or go with it. The annotation says whose it is while no owner does.
pub(super) async fn reclaim(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    uid: &str,
    retain: bool,
) -> Result<(), ActError> {
    let metadata = if retain {
        json!({
            "uid": uid,
            "ownerReferences": null,
            "annotations": {labels::CLUSTER_UID: cluster.uid},
        })
    } else {
        json!({
            "uid": uid,
            "ownerReferences": [labels::owner(cluster)],
            "annotations": {labels::CLUSTER_UID: null},
        })
    };
    patch_claim(context, cluster, name, json!({"metadata": metadata})).await
}

/// Changes a claim. The change names the claim's UID: one of the same name made since is left alone, by a conflict.
pub(super) async fn patch_claim(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    change: Value,
) -> Result<(), ActError> {
    let api: Api<PersistentVolumeClaim> =
        Api::namespaced(context.client.clone(), &cluster.namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .map_err(|source| ActError::Api {
            what: format!("PersistentVolumeClaim {name}"),
            source,
        })?;
    Ok(())
}

/// Deletes exactly this object: a namesake created since is left alone.
pub(super) async fn delete<K>(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    uid: &str,
) -> Result<(), ActError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let exactly = DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    match api.delete(name, &exactly).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(source) => Err(ActError::Api {
            what: format!("{} {name}", K::kind(&())),
            source,
        }),
    }
}

/// Changes a running pod: its resources first, then its metadata, which also notes that both were done.
pub(super) async fn adjust(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    uid: &str,
    before: &InPlace,
) -> Result<(), ActError> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let failed = |source| ActError::Api {
        what: format!("Pod {name}"),
        source,
    };
    let wanted = InPlace::of(cluster);
    if wanted.resources != before.resources {
        let resources = json!(wanted.resources.clone().unwrap_or_default());
        let mut change = json!({
            "metadata": {"uid": uid},
            "spec": {"containers": [{"name": "etcd", "resources": resources}]},
        });
        // What is no longer asked for goes, instead of being merged with what is.
        change["spec"]["containers"][0]["resources"]["$patch"] = "replace".into();
        let resized = api
            .patch_subresource(
                "resize",
                name,
                &PatchParams::default(),
                &Patch::Strategic(&change),
            )
            .await;
        match resized {
            Ok(_) => {}
            // A Kubernetes that cannot, or a change that it does not make in place: the pod is made anew.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403..=405 | 422) => {
                return evict(context, cluster, name, uid).await;
            }
            Err(source) => return Err(failed(source)),
        }
    }
    let mut metadata = wanted.metadata_since(before);
    metadata["uid"] = uid.into();
    let change = json!({"metadata": metadata});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .map_err(failed)?;
    Ok(())
}

/// Asks Kubernetes to evict exactly this pod: whoever drains a node at the same moment draws on the same disruption budget, and
/// only one of us gets it.
pub(super) async fn evict(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    uid: &str,
) -> Result<(), ActError> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let exactly = EvictParams {
        delete_options: Some(DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        })),
        ..EvictParams::default()
    };
    match api.evict(name, &exactly).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 429 => Err(ActError::BudgetUsedUp {
            what: format!("Pod {name}"),
        }),
        Err(source) => Err(ActError::Api {
            what: format!("Pod {name}"),
            source,
        }),
    }
}

/// Asks an EtcdBackup for a run, in its status: its spec is its owner's.
pub(super) async fn request_backup(
    context: &Context,
    cluster: &ValidatedCluster,
    backup: &str,
    word: &str,
) -> Result<(), ActError> {
    let api: Api<EtcdBackup> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let asked = json!({"status": {"requested": word}});
    api.patch_status(backup, &PatchParams::default(), &Patch::Merge(&asked))
        .await
        .map_err(|source| ActError::Api {
            what: format!("the status of EtcdBackup {backup}"),
            source,
        })?;
    Ok(())
}

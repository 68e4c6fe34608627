//! Keeps the children with fixed names as they should be: the Services, the budget, and the ConfigMap that tells members how to
//! start. Writes only what differs, and only what is this cluster's.

use std::{collections::BTreeMap, fmt::Debug};

use etcd_operator_api::ValidatedCluster;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Context,
    act::{ActError, guard},
    cache::{Cache, Text},
    children::{budget, services, starts},
    observed::{Observed, Start},
};
use crate::FIELD_MANAGER;

/// Keeps the ConfigMap that tells members how to start: no pod is made before it is right.
pub(crate) async fn starts(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
) -> Result<(), ActError> {
    let wanted = starts::desired(cluster, seen);
    if wanted.is_empty() {
        return Ok(());
    }
    if wanted == seen.starts {
        let map = starts::config_map(cluster, &wanted);
        return keep(context, cluster, &context.stores.config_maps, map, false).await;
    }
    write_starts(context, cluster, &wanted).await
}

/// Writes it as told.
pub(crate) async fn write_starts(
    context: &Context,
    cluster: &ValidatedCluster,
    wanted: &BTreeMap<String, Start>,
) -> Result<(), ActError> {
    let map = starts::config_map(cluster, wanted);
    keep(context, cluster, &context.stores.config_maps, map, true).await
}

/// Keeps the Services and the budget as they should be. Writes only what differs.
pub(crate) async fn surroundings(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
) -> Result<(), ActError> {
    let stores = &context.stores;
    futures::try_join!(
        keep(
            context,
            cluster,
            &stores.services,
            services::headless(cluster),
            false
        ),
        keep(
            context,
            cluster,
            &stores.services,
            services::client(cluster),
            false
        ),
        async {
            // Without a quorum nobody can say how many voters there are: the budget stays as it was.
            if seen.quorum.is_none() && seen.cluster_id.is_some() {
                return Ok(());
            }
            let budget = budget::budget(cluster, seen.voter_count());
            keep(context, cluster, &stores.budgets, budget, false).await
        },
    )?;
    Ok(())
}

/// Applies one child if it is missing, differs, or `always`.
async fn keep<K>(
    context: &Context,
    cluster: &ValidatedCluster,
    known: &Cache<Text>,
    mut child: K,
    always: bool,
) -> Result<(), ActError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + 'static,
{
    let name = child.name_any();
    let what = format!("{} {name}", K::kind(&()));
    let failed = |source| ActError::Api {
        what: what.clone(),
        source,
    };
    let agrees = |child: &K| {
        let mut known = known.of(cluster).into_iter();
        known.any(|known| known.name == name && known.facts.agrees(child))
    };
    if !always && agrees(&child) {
        return Ok(());
    }
    guard(context)?;
    let api: Api<K> = Api::namespaced(context.client.clone(), &cluster.namespace);
    // Server-side apply would merge into whatever bears the name, so whose it is comes first.
    let live = api.get_opt(&name).await.map_err(failed)?;
    if let Some(live) = &live {
        if !live
            .owner_references()
            .iter()
            .any(|owner| owner.uid == cluster.uid)
        {
            return Err(ActError::NameTaken { what });
        }
        child.meta_mut().uid = live.uid();
    }
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &apply, &Patch::Apply(&child))
        .await
        .map_err(failed)?;
    Ok(())
}

//! What CoreOS's operator made and left: its pods, its claims, and whether it is still there.

use std::sync::Arc;

use etcd_operator_api::{
    ValidatedCluster,
    v1beta2::{EtcdCluster, EtcdClusterStatus, Origin},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Endpoints, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use serde::Deserialize;

use super::{
    Context,
    act::ActError,
    children::{flags::DATA_DIR, labels},
    observe::is_adopted,
};

/// What its operator elects its leader by.
const LOCK: &str = "etcd-operator";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// On an EtcdCluster: it is looked after by an operator that may be in any namespace.
const SCOPE: (&str, &str) = ("etcd.database.coreos.com/scope", "clusterwide");
/// It renews its lock every two seconds, and gives up after ten.
const FRESH: SignedDuration = SignedDuration::from_secs(30);

/// What was found, read from the API server itself: none of it carries our label yet.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) pods: Vec<Pod>,
    pub(crate) claims: Vec<PersistentVolumeClaim>,
    /// Who holds its operator's lock.
    pub(crate) in_charge: Option<String>,
}

/// Looks for what it left of a cluster that this operator has not begun itself. Nothing where there is nothing of it.
pub(crate) async fn look(
    context: &Context,
    object: &EtcdCluster,
) -> Result<Option<Found>, ActError> {
    let status = object.status.as_ref();
    let of_coreos = status.is_some_and(EtcdClusterStatus::is_of_coreos);
    let begun = status.is_some_and(|status| status.bootstrap.is_some());
    if begun && !of_coreos {
        return Ok(None);
    }
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let unread = |source| ActError::Api {
        what: format!("what CoreOS's operator made of {name}"),
        source,
    };
    let mut found = Found {
        in_charge: in_charge(context, object, &namespace)
            .await
            .map_err(unread)?,
        ..Found::default()
    };
    if !begun {
        let uid = object.uid().unwrap_or_default();
        let its = ListParams::default().labels(&format!("app=etcd,{}={name}", labels::CLUSTER));
        let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
        let pods = pods.list(&its).await.map_err(unread)?;
        found.pods = pods.items;
        found
            .pods
            .retain(|pod| labels::is_of(&pod.metadata, &uid) && is_adopted(pod));
        if of_coreos || !found.pods.is_empty() {
            let claims: Api<PersistentVolumeClaim> =
                Api::namespaced(context.client.clone(), &namespace);
            found.claims = claims.list(&its).await.map_err(unread)?.items;
            found
                .claims
                .retain(|claim| labels::is_of(&claim.metadata, &uid));
        }
    }
    let anything = of_coreos || found.in_charge.is_some() || !found.pods.is_empty();
    Ok(anything.then_some(found))
}

/// The resource, knowing whose it was: what is unset in its spec means what it meant then.
pub(crate) fn knowing_its_origin(
    object: Arc<EtcdCluster>,
    found: Option<&Found>,
) -> Arc<EtcdCluster> {
    let status = object.status.as_ref();
    let of_coreos = status.is_some_and(EtcdClusterStatus::is_of_coreos)
        || found.is_some_and(|found| !found.pods.is_empty());
    if !of_coreos {
        return object;
    }
    let mut object = Arc::unwrap_or_clone(object);
    object.status.get_or_insert_default().origin = Some(Origin::CoreOS);
    Arc::new(object)
}

/// Who acts for the other operator right now.
async fn in_charge(
    context: &Context,
    object: &EtcdCluster,
    namespace: &str,
) -> Result<Option<String>, kube::Error> {
    let anywhere = object.annotations().get(SCOPE.0).map(String::as_str) == Some(SCOPE.1);
    let now = Timestamp::now();
    if anywhere {
        let by_name = ListParams::default().fields(&format!("metadata.name={LOCK}"));
        let all: Api<Endpoints> = Api::all(context.client.clone());
        match all.list(&by_name).await {
            Ok(locks) => return Ok(locks.items.iter().find_map(|lock| holder(lock, now))),
            // Whoever may look at some namespaces only cannot know of the others.
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(error) => return Err(error),
        }
    }
    let here: Api<Endpoints> = Api::namespaced(context.client.clone(), namespace);
    match here.get_opt(LOCK).await {
        Ok(lock) => Ok(lock.and_then(|lock| holder(&lock, now))),
        // Roles of an older release know nothing of it, and whoever has them took nothing over.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who holds a lock, while it is fresh.
fn holder(lock: &Endpoints, now: Timestamp) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Record {
        #[serde(default)]
        holder_identity: String,
        renew_time: Timestamp,
    }
    let record: Record = serde_json::from_str(lock.annotations().get(LEADER)?).ok()?;
    let held = !record.holder_identity.is_empty();
    let fresh = now.duration_since(record.renew_time) < FRESH;
    (held && fresh).then(|| {
        format!(
            "{} in namespace {}",
            record.holder_identity,
            lock.namespace().unwrap_or_default()
        )
    })
}

/// What about a pod is not as its operator makes them, or not as the spec has it: such a cluster is left alone.
pub(crate) fn misfit(cluster: &ValidatedCluster, pod: &Pod) -> Option<String> {
    let name = pod.name_any();
    let spec = pod.spec.as_ref()?;
    let differs = |what: String| Some(format!("pod {name} {what}"));
    if spec.hostname.as_ref() != Some(&name) || spec.subdomain.as_ref() != Some(&cluster.name) {
        return differs(format!("is not addressed as {name}.{}", cluster.name));
    }
    let Some(etcd) = spec.containers.iter().find(|one| one.name == "etcd") else {
        return differs("has no container `etcd`".to_owned());
    };
    let flag = |name: &str| {
        let words = etcd.command.iter().chain(&etcd.args).flatten();
        let mut values = words.filter_map(|word| word.strip_prefix(&format!("--{name}=")));
        values.next().unwrap_or_default().to_owned()
    };
    if flag("data-dir") != DATA_DIR {
        return differs(format!("keeps its data in `{}`", flag("data-dir")));
    }
    let sides = [
        ("peers", "listen-peer-urls", cluster.peer_tls.scheme()),
        ("clients", "listen-client-urls", cluster.client_tls.scheme()),
    ];
    for (who, listens, scheme) in sides {
        let (speaks, _) = flag(listens)
            .split_once("://")
            .map(|(scheme, rest)| (scheme.to_owned(), rest.to_owned()))
            .unwrap_or_default();
        if speaks != scheme {
            return differs(format!(
                "speaks `{speaks}` with {who}, and the spec asks for `{scheme}`"
            ));
        }
    }
    let data = spec.volumes.iter().flatten();
    let mut data = data.filter(|volume| volume.name == "etcd-data");
    let kept = data.next().is_some_and(|volume| {
        let claim = volume.persistent_volume_claim.as_ref();
        volume.empty_dir.is_some() || claim.is_some_and(|claim| claim.claim_name == name)
    });
    if !kept {
        return differs(
            "has its data neither in scratch space nor in a claim of its name".to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::fixtures::{cluster, now};

    fn lock(record: &Value) -> Endpoints {
        serde_json::from_value(json!({"metadata": {
            "name": "etcd-operator", "namespace": "n", "annotations": {LEADER: record.to_string()},
        }}))
        .unwrap()
    }

    #[test]
    fn a_lock_counts_while_it_is_fresh_and_somebody_holds_it() {
        let record = |holder: &str, renewed: &str| {
            lock(&json!({
                "holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "2026-01-01T00:00:00Z",
                "renewTime": renewed, "leaderTransitions": 0,
            }))
        };
        let held = |lock: &Endpoints| holder(lock, now());
        assert_eq!(
            held(&record("etcd-operator-x", "2026-01-01T11:59:58Z")).unwrap(),
            "etcd-operator-x in namespace n"
        );
        assert_eq!(
            held(&record("etcd-operator-x", "2026-01-01T11:59:00Z")),
            None
        );
        assert_eq!(held(&record("", "2026-01-01T11:59:58Z")), None);
        assert_eq!(held(&Endpoints::default()), None);
    }

    pub(crate) fn pod(volume: &Value, scheme: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "c-0123456789", "namespace": "n"},
            "spec": {
                "hostname": "c-0123456789", "subdomain": "c", "restartPolicy": "Never",
                "containers": [{"name": "etcd", "command": [
                    "/usr/local/bin/etcd", "--data-dir=/var/etcd/data", "--name=c-0123456789",
                    format!("--listen-peer-urls={scheme}://0.0.0.0:2380"),
                    format!("--listen-client-urls={scheme}://0.0.0.0:2379"),
                ]}],
                "volumes": [volume],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_fits_that_is_as_coreos_made_it_and_as_the_spec_has_it() {
        let plain = cluster(json!({"security": {"peerTLS": {"mode": "Off"}}}));
        let scratch = json!({"name": "etcd-data", "emptyDir": {}});
        let claim =
            |name: &str| json!({"name": "etcd-data", "persistentVolumeClaim": {"claimName": name}});
        assert_eq!(misfit(&plain, &pod(&scratch, "http")), None);
        assert_eq!(misfit(&plain, &pod(&claim("c-0123456789"), "http")), None);
        let says = |volume: &Value, scheme| misfit(&plain, &pod(volume, scheme)).unwrap();
        assert!(says(&claim("other"), "http").contains("neither in scratch space"));
        assert_eq!(
            says(&scratch, "https"),
            "pod c-0123456789 speaks `https` with peers, and the spec asks for `http`"
        );
        let mut moved = pod(&scratch, "http");
        moved.spec.as_mut().unwrap().subdomain = Some("d".to_owned());
        assert_eq!(
            misfit(&plain, &moved).unwrap(),
            "pod c-0123456789 is not addressed as c-0123456789.c"
        );
    }
}

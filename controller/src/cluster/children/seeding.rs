//! A founder of a cluster that starts from a snapshot: before its etcd starts, an init container fetches the snapshot and makes it the
//! member's data directory, unless that is there already.
//!
//! etcd itself is told, as every member that has served once, that it must find its data: started empty it would bear the very IDs
//! of a restored member, and its log would agree with the others' although it has none of their data.

use etcd_operator_api::{
    ValidatedCluster,
    orders::{Order, Report, RestoreTool, RestoredMember, SnapshotRef},
    v1beta2::{BootstrapRecord, Seed},
};
use k8s_openapi::api::core::v1::{Pod, VolumeMount};

use super::flags::DATA_DIR;
use crate::{
    agents::{self, BadOrder, Mounts},
    cluster::{names, observed::Observed},
};

/// The init container that fills a member's volume.
pub(crate) const CONTAINER: &str = "restore";
/// By how much etcd's guide raises the revision: more than any cluster writes between a backup and its loss.
const BEYOND_ANY_REVISION: u64 = 1_000_000_000;

/// The snapshot a member's pod has to bring first: a founder's, until etcd has seen it start. Afterwards nothing of the store is
/// needed, and its Secrets may be gone.
pub(crate) fn wanted<'a>(
    seen: &'a Observed,
    name: &str,
) -> Option<(&'a BootstrapRecord, &'a Seed)> {
    let record = seen.bootstrap.as_ref()?;
    let seed = record.seed.as_ref()?;
    record.members.iter().find(|founder| founder.name == name)?;
    let never_started = || {
        let listed = seen.members.get(name)?.listed.as_ref()?;
        Some(!listed.started)
    };
    let empty = seen.cluster_id.is_none() || never_started() == Some(true);
    empty.then_some((record, seed))
}

/// Puts the init containers before etcd.
pub(crate) fn add(
    pod: &mut Pod,
    agent_image: &str,
    cluster: &ValidatedCluster,
    name: &str,
    record: &BootstrapRecord,
    seed: &Seed,
) -> Result<(), BadOrder> {
    let (Some(spec), Some(store)) = (pod.spec.as_mut(), seed.store()) else {
        return Ok(());
    };
    let mounts = Mounts {
        tools: true,
        ..Mounts::of_store(&store)
    };
    let founders: Vec<String> = record
        .members
        .iter()
        .map(|founder| founder.name.clone())
        .collect();
    let order = Order::Restore {
        store,
        snapshot: SnapshotRef {
            name: seed.snapshot.clone(),
            sha256: Some(seed.sha256.clone()),
        },
        tool: tool(cluster),
        member: RestoredMember {
            name: name.to_owned(),
            peer_url: names::peer_url(cluster, name),
            initial_cluster: names::initial_cluster(cluster, &founders),
            token: record.token.clone(),
            data_dir: DATA_DIR.to_owned(),
            bump_revision: cluster
                .version
                .abilities()
                .bump_revision
                .then_some(BEYOND_ANY_REVISION),
        },
    };
    let token = format!("--initial-cluster-token={}", record.token);
    let arguments = spec.containers.iter_mut().flat_map(|one| &mut one.args);
    for argument in arguments.flatten() {
        if argument.starts_with("--initial-cluster-token=") {
            argument.clone_from(&token);
        }
    }
    let mut restore = agents::beside_etcd(&cluster.image, &order, &mounts)?;
    CONTAINER.clone_into(&mut restore.name);
    restore
        .volume_mounts
        .get_or_insert_default()
        .push(VolumeMount {
            name: "data".to_owned(),
            mount_path: etcd_operator_api::orders::mounts::DATA.to_owned(),
            ..VolumeMount::default()
        });
    spec.init_containers = Some(vec![agents::install(agent_image)?, restore]);
    spec.volumes
        .get_or_insert_default()
        .extend(mounts.volumes());
    if spec.service_account_name.is_none() {
        spec.service_account_name.clone_from(&seed.service_account);
    }
    Ok(())
}

/// Why the init containers do not come to an end, in the agent's own words where it said any.
pub(crate) fn trouble(pod: &Pod) -> Option<String> {
    let first = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    first.iter().find_map(|container| {
        let now = container.state.as_ref();
        let before = container.last_state.as_ref();
        let ended = [now, before].into_iter().find_map(|state| {
            state?
                .terminated
                .as_ref()
                .filter(|ended| ended.exit_code != 0)
        });
        let said = ended.and_then(|ended| {
            let last = ended.message.as_deref()?.lines().last()?;
            match serde_json::from_str(last).ok()? {
                Report::Failed { reason, message } => {
                    Some(format!("{}: {message}", reason.as_str()))
                }
                _ => None,
            }
        });
        let waits = || {
            let waiting = now?.waiting.as_ref()?;
            let reason = waiting.reason.as_deref()?;
            (reason != "PodInitializing" && reason != "ContainerCreating").then(|| {
                let message = waiting.message.as_deref().unwrap_or_default();
                format!("{reason}: {message}")
            })
        };
        let words = said.or_else(waits)?;
        Some(format!("{}: {words}", container.name))
    })
}

/// Which of etcd's tools restores at this version.
pub(crate) fn tool(cluster: &ValidatedCluster) -> RestoreTool {
    let abilities = cluster.version.abilities();
    if abilities.etcdutl {
        RestoreTool::Etcdutl {
            bumps: abilities.bump_revision,
        }
    } else {
        RestoreTool::Etcdctl
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::v1beta2::{BootstrapMember, S3Store};
    use serde_json::json;

    use super::*;
    use crate::cluster::{
        children,
        fixtures::{cluster, formed, member, nothing},
    };

    fn record(founders: &[&str]) -> BootstrapRecord {
        BootstrapRecord {
            token: "t".to_owned(),
            members: founders
                .iter()
                .map(|name| BootstrapMember {
                    name: (*name).to_owned(),
                    claim_uid: None,
                })
                .collect(),
            seed: Some(Seed {
                s3: Some(S3Store {
                    path: Some("bucket/key".to_owned()),
                    aws_secret: Some("aws".to_owned()),
                    ..S3Store::default()
                }),
                snapshot: "key".to_owned(),
                sha256: "0".repeat(64),
                ..Seed::default()
            }),
            former: None,
        }
    }

    #[test]
    fn a_founder_brings_the_snapshot_until_etcd_has_seen_it_start() {
        let cluster = cluster(json!({}));
        let mut seen = nothing();
        seen.bootstrap = Some(record(&["c-a", "c-b", "c-c"]));
        assert!(wanted(&seen, "c-a").is_some());
        assert!(wanted(&seen, "c-x").is_none(), "no founder");
        let mut seen = formed(&cluster, &["c-a", "c-b", "c-c"]);
        seen.bootstrap = Some(record(&["c-a", "c-b", "c-c"]));
        assert!(wanted(&seen, "c-a").is_none(), "it has started");
        member(&mut seen, "c-a").listed.as_mut().unwrap().started = false;
        assert!(wanted(&seen, "c-a").is_some());
        // Nobody can say: then nothing of the store may be needed, and on an empty disk etcd does not start.
        member(&mut seen, "c-a").listed = None;
        seen.quorum = None;
        assert!(wanted(&seen, "c-a").is_none());
    }

    #[test]
    fn what_the_agent_could_not_do_is_said_in_its_words() {
        let pod = |status: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
        };
        let failed =
            json!({"report": "failed", "reason": "StoreUnreachable", "message": "no route"});
        let container = |state: serde_json::Value, last: serde_json::Value| {
            pod(json!({"initContainerStatuses": [{
                "name": "restore", "image": "", "imageID": "", "ready": false, "restartCount": 1,
                "state": state, "lastState": last,
            }]}))
        };
        let ended = json!({"terminated": {"exitCode": 1, "message": format!("x\n{failed}")}});
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        let said = Some("restore: StoreUnreachable: no route".to_owned());
        assert_eq!(trouble(&container(waits.clone(), ended.clone())), said);
        assert_eq!(trouble(&container(ended, json!({}))), said);
        assert_eq!(
            trouble(&container(waits, json!({}))).unwrap(),
            "restore: CrashLoopBackOff: back-off"
        );
        let initializing = json!({"waiting": {"reason": "PodInitializing"}});
        assert_eq!(trouble(&container(initializing, json!({}))), None);
        assert_eq!(trouble(&pod(json!({}))), None);
    }

    #[test]
    fn the_snapshot_comes_before_etcd_and_changes_nothing_that_would_restart_the_member_later() {
        let cluster = cluster(json!({}));
        let record = record(&["c-a", "c-b"]);
        let seed = record.seed.clone().unwrap();
        let plain = children::pod::pod(&cluster, "c-a");
        let mut pod = plain.clone();
        add(&mut pod, "operator:1", &cluster, "c-a", &record, &seed).unwrap();
        assert_eq!(pod.metadata, plain.metadata);
        let (with, without) = (pod.spec.unwrap(), plain.spec.unwrap());
        let arguments =
            |spec: &k8s_openapi::api::core::v1::PodSpec| spec.containers[0].args.clone().unwrap();
        let changed: Vec<String> = arguments(&with)
            .into_iter()
            .filter(|argument| !arguments(&without).contains(argument))
            .collect();
        assert_eq!(changed, ["--initial-cluster-token=t"]);
        let init = with.init_containers.unwrap();
        let names: Vec<&str> = init.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, [agents::INSTALL, CONTAINER]);
        assert_eq!(init[1].image, Some(cluster.image.clone()));
        let order = init[1].env.clone().unwrap().remove(0).value.unwrap();
        let Order::Restore {
            snapshot, member, ..
        } = serde_json::from_str(&order).unwrap()
        else {
            panic!("{order}")
        };
        assert_eq!(snapshot.sha256, Some("0".repeat(64)));
        assert_eq!(member.data_dir, DATA_DIR);
        assert_eq!(member.bump_revision, Some(BEYOND_ANY_REVISION));
        assert_eq!(
            member.initial_cluster,
            "c-a=https://c-a.c.n.svc:2380,c-b=https://c-b.c.n.svc:2380"
        );
    }
}

//! The controller with a thousand EtcdClusters. Real: the API server, every object the operator makes (pods, claims, Services,
//! Secrets, budgets), its watches, its questions to each member over the network. Played: the members. Nobody schedules or starts
//! their pods and nobody makes volumes for their claims; this program says in each pod's status that it runs, and a fake etcd answers
//! at its address. What a member costs is thus not measured, only what it costs to look after it.
//!
//! Scheduler and kube-proxy of the cluster are stopped meanwhile: they would be busy with what is only played.

use std::{
    collections::BTreeSet,
    fs::File,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    pin::pin,
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use nix::{
    sched::{CloneFlags, setns},
    sys::resource::{Resource, getrlimit, setrlimit},
};
use serde_json::json;
use tokio::{runtime::Runtime, sync::mpsc};

use super::{
    super::{
        creation::{etcd_clusters, make_namespace, manifest},
        table::{Row, Table},
    },
    fake_etcd::{self, Cluster, Clusters, Member},
    rest,
};
use crate::{
    command,
    local::{self, Running},
    progress,
};

const NAMESPACE: &str = "bench-many";
const SIZE: usize = 3;
/// Addresses for played members, in the cluster's network and nowhere else.
const ADDRESSES: &str = "10.200.0.0/16";
const CLIENT_PORT: u16 = 2379;
/// How many requests are under way at once: a crowd would measure the API server.
const AT_ONCE: usize = 16;
const LIMIT: Duration = Duration::from_mins(30);
/// Long enough to look at each of a thousand clusters once: those that became Ready together are looked at together for long, so a
/// shorter time sees all of it or nothing.
const WATCHED: Duration = Duration::from_mins(3);
const MEGABYTES: f64 = 60.0;
const PERCENT: f64 = 2.0;

pub(super) fn measure(
    runtime: &Runtime,
    client: &Client,
    running: &Running,
    clusters: usize,
    table: &mut Table,
) -> Result<()> {
    // kube-proxy must have told the nodes where the webhook is before it ends.
    runtime.block_on(admission_answers(client))?;
    for component in ["kube-scheduler", "kube-proxy"] {
        local::end_component(&running.name, component)?;
    }
    let route = ["route", "replace", "local", ADDRESSES, "dev", "lo"];
    command::run(
        Command::new("ip")
            .args(["-netns", &running.netns])
            .args(route),
    )?;
    allow_many_sockets()?;
    let known = Clusters::default();
    let members = play_members(running, Arc::clone(&known))?;
    let seen = runtime.block_on(async {
        let kubelet = tokio::spawn(play_kubelet(client.clone(), known, members));
        let api = etcd_clusters(client, NAMESPACE);
        progress::say(&format!("Creating {clusters} EtcdClusters …"));
        stream::iter(0..clusters)
            .map(|number| {
                let api = api.clone();
                async move {
                    let object = manifest(&format!("many-{number}"), &json!({"size": SIZE}))?;
                    api.create(&PostParams::default(), &object).await?;
                    anyhow::Ok(())
                }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        rest::all_ready(client, NAMESPACE, clusters, LIMIT).await?;
        let seen = rest::watch_rest(client, running, WATCHED).await;
        kubelet.abort();
        seen
    })?;
    let with = format!("with {clusters} simulated clusters");
    table.push(Row::alone(
        format!("controller: memory {with}"),
        "MB",
        vec![seen.megabytes],
        MEGABYTES,
    ));
    table.push(Row::alone(
        format!("controller: CPU {with}"),
        "% of a core",
        vec![seen.percent],
        PERCENT,
    ));
    table.push(Row::alone(
        format!("controller: writes in {} s {with}", WATCHED.as_secs()),
        "",
        vec![rest::count(seen.writes)],
        0.0,
    ));
    Ok(())
}

/// Returns when an EtcdCluster would be let in.
async fn admission_answers(client: &Client) -> Result<()> {
    make_namespace(client, NAMESPACE).await?;
    let api = etcd_clusters(client, NAMESPACE);
    let object = manifest("asked", &json!({"size": SIZE}))?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let answered = async {
        let mut tries = tokio::time::interval(Duration::from_millis(100));
        loop {
            tries.tick().await;
            if api.create(&dry_run, &object).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, answered)
        .await
        .context("the webhook does not answer")
}

/// Each played member listens on an address of its own.
fn allow_many_sockets() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

#[derive(Debug)]
struct Birth {
    address: SocketAddr,
    cluster: String,
    member: String,
}

/// A thread of its own moves into the cluster's network and answers there for every member it is told of.
fn play_members(running: &Running, clusters: Clusters) -> Result<mpsc::UnboundedSender<Birth>> {
    let netns = PathBuf::from("/run/netns").join(&running.netns);
    let file = File::open(&netns).with_context(|| netns.display().to_string())?;
    let (sender, mut births) = mpsc::unbounded_channel::<Birth>();
    thread::Builder::new()
        .name("members".to_owned())
        .spawn(move || -> Result<()> {
            setns(file, CloneFlags::CLONE_NEWNET).context("entering the cluster's network")?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                while let Some(birth) = births.recv().await {
                    let clusters = Arc::clone(&clusters);
                    let served =
                        fake_etcd::serve(birth.address, clusters, birth.cluster, birth.member);
                    if let Err(error) = served.await {
                        progress::say(&format!("a member cannot be played: {error:#}"));
                    }
                }
                Ok(())
            })
        })?;
    Ok(sender)
}

/// Says of every pod that appears that it runs and is ready, and where.
async fn play_kubelet(
    client: Client,
    clusters: Clusters,
    births: mpsc::UnboundedSender<Birth>,
) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let mut known = BTreeSet::new();
    let appeared = watcher(pods.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .filter_map(async |pod| pod.ok())
        .filter(|pod| futures::future::ready(known.insert(pod.uid())))
        .enumerate()
        .map(|(number, pod)| start(&pods, &clusters, &births, number, pod));
    let mut started = pin!(appeared.buffer_unordered(AT_ONCE));
    while let Some(outcome) = started.next().await {
        if let Err(error) = outcome {
            progress::say(&format!("a pod cannot be played: {error:#}"));
        }
    }
    Ok(())
}

async fn start(
    pods: &Api<Pod>,
    clusters: &Clusters,
    births: &mpsc::UnboundedSender<Birth>,
    number: usize,
    pod: Pod,
) -> Result<()> {
    let cluster = pod
        .labels()
        .get("etcd_cluster")
        .context("a member's pod names its cluster")?
        .clone();
    let address = address(number)?;
    let name = pod.name_any();
    let member = member(&pod, number)?;
    births
        .send(Birth {
            address: SocketAddr::from((address, CLIENT_PORT)),
            cluster: cluster.clone(),
            member: name.clone(),
        })
        .map_err(|_| anyhow!("the members' thread has ended"))?;
    {
        let mut clusters = clusters.write().await;
        let number = u64::try_from(clusters.len())? + 1;
        let cluster = clusters.entry(cluster).or_insert_with(|| Cluster {
            id: number,
            size: SIZE,
            ..Cluster::default()
        });
        cluster.members.insert(name.clone(), member);
    }
    let now = jiff::Timestamp::now();
    let conditions: Vec<_> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}))
        .into();
    let status = json!({"status": {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": conditions,
        "containerStatuses": [{
            "name": "etcd", "image": "played", "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }],
    }});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status))
        .await?;
    Ok(())
}

/// What the pod's own flags say of the member.
fn member(pod: &Pod, number: usize) -> Result<Member> {
    let container = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.containers.first())
        .context("a member's pod has a container")?;
    let flag = |name: &str| {
        let flags = container.args.iter().flatten();
        let value = flags.into_iter().find_map(|flag| flag.strip_prefix(name));
        value
            .map(str::to_owned)
            .with_context(|| format!("a member has {name}"))
    };
    let image = container.image.as_deref().unwrap_or_default();
    let (_, version) = image.rsplit_once(":v").context("an image has a version")?;
    Ok(Member {
        id: 1000 + u64::try_from(number)?,
        peer_url: flag("--initial-advertise-peer-urls=")?,
        client_url: flag("--advertise-client-urls=")?,
        version: version.to_owned(),
    })
}

fn address(number: usize) -> Result<Ipv4Addr> {
    let number = u16::try_from(number + 1).context("more members than addresses")?;
    let [high, low] = number.to_be_bytes();
    Ok(Ipv4Addr::new(10, 200, high, low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_has_an_address_of_its_own_within_the_range() {
        assert_eq!(address(0).unwrap(), Ipv4Addr::new(10, 200, 0, 1));
        assert_eq!(address(299).unwrap(), Ipv4Addr::new(10, 200, 1, 44));
        assert!(address(70_000).is_err());
    }

    #[test]
    fn a_member_is_what_its_pod_says() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{
            "name": "etcd",
            "image": "gcr.io/etcd-development/etcd:v3.6.16",
            "args": ["--initial-advertise-peer-urls=https://a:2380", "--advertise-client-urls=http://a:2379"],
        }]}}))
        .unwrap();
        let member = member(&pod, 4).unwrap();
        assert_eq!(
            (member.peer_url.as_str(), member.version.as_str()),
            ("https://a:2380", "3.6.16")
        );
        assert_eq!(member.id, 1004);
    }
}

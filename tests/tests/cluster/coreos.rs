//! A cluster that CoreOS's operator 0.9.4 made and left: pods, Services and status as it writes them. Only what needs a shell, which the
//! images here lack, is otherwise: the init container is left out, and probes call etcdctl directly.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    Cluster, Context, Outcome, condition_is, history::Traffic, until, until_answer,
};
use k8s_openapi::api::core::v1::{Endpoints, Namespace, PersistentVolumeClaim, Pod, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::change::{exactly, tell};

const VERSION: &str = "3.2.13";
const NEXT: &str = "3.3.27";

/// What it left, by hand.
struct Left<'a> {
    context: &'a Context,
    name: &'a str,
    uid: String,
    on_claims: bool,
}

fn claim_spec() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
}

impl Left<'_> {
    fn owner(&self) -> Value {
        json!([{
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "name": self.name, "uid": self.uid, "controller": true,
        }])
    }

    fn labels(&self) -> Value {
        json!({"app": "etcd", "etcd_cluster": self.name})
    }

    fn peer_url(&self, member: &str) -> String {
        let namespace = self.context.namespace();
        format!("http://{member}.{}.{namespace}.svc:2380", self.name)
    }

    async fn services(&self) -> Outcome {
        let client = json!({"name": "client", "port": 2379, "targetPort": 2379, "protocol": "TCP"});
        let peer = json!({"name": "peer", "port": 2380, "targetPort": 2380, "protocol": "TCP"});
        let client_name = format!("{}-client", self.name);
        for (name, ports, address) in [
            (client_name.as_str(), json!([client.clone()]), None),
            (self.name, json!([client, peer]), Some("None")),
        ] {
            let mut service = json!({
                "metadata": {
                    "name": name, "labels": self.labels(), "ownerReferences": self.owner(),
                    "annotations": {"service.alpha.kubernetes.io/tolerate-unready-endpoints": "true"},
                },
                "spec": {"ports": ports, "selector": self.labels()},
            });
            if let Some(address) = address {
                service["spec"]["clusterIP"] = address.into();
                // What the annotation asked for; the Kubernetes of today reads only this.
                service["spec"]["publishNotReadyAddresses"] = true.into();
            }
            let service: Service = serde_json::from_value(service)?;
            let api: Api<Service> = self.context.api();
            api.create(&PostParams::default(), &service).await?;
        }
        Ok(())
    }

    /// A member's claim, as `pod.persistentVolumeClaimSpec` asks for it.
    async fn claim(&self, member: &str) -> Outcome {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": member, "labels": self.labels(), "ownerReferences": self.owner()},
            "spec": claim_spec(),
        }))?;
        let api: Api<PersistentVolumeClaim> = self.context.api();
        api.create(&PostParams::default(), &claim).await?;
        Ok(())
    }

    /// A member's pod, beside those there are.
    async fn pod(&self, member: &str, others: &[&str]) -> anyhow::Result<Pod> {
        let namespace = self.context.namespace();
        let initial: Vec<String> = others
            .iter()
            .chain([&member])
            .map(|name| format!("{name}={}", self.peer_url(name)))
            .collect();
        let state = if others.is_empty() { "new" } else { "existing" };
        let mut command = vec![
            "/usr/local/bin/etcd".to_owned(),
            "--data-dir=/var/etcd/data".to_owned(),
            format!("--name={member}"),
            format!("--initial-advertise-peer-urls={}", self.peer_url(member)),
            "--listen-peer-urls=http://0.0.0.0:2380".to_owned(),
            "--listen-client-urls=http://0.0.0.0:2379".to_owned(),
            format!(
                "--advertise-client-urls=http://{member}.{}.{namespace}.svc:2379",
                self.name
            ),
            format!("--initial-cluster={}", initial.join(",")),
            format!("--initial-cluster-state={state}"),
        ];
        if others.is_empty() {
            command.push("--initial-cluster-token=7a0a0b3c-1f2e-4a55-9a77-2f6a3b1c9d10".to_owned());
        }
        let probe = |delay: u8, period: u8| {
            json!({
                "exec": {"command": ["/usr/local/bin/etcdctl", "endpoint", "status"]},
                "initialDelaySeconds": delay, "timeoutSeconds": 10, "periodSeconds": period, "failureThreshold": 3,
            })
        };
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": member,
                "labels": {"app": "etcd", "etcd_node": member, "etcd_cluster": self.name},
                "annotations": {"etcd.version": VERSION},
                "ownerReferences": self.owner(),
            },
            "spec": {
                "containers": [{
                    "name": "etcd", "command": command, "image": format!("quay.io/coreos/etcd:v{VERSION}"),
                    "env": [{"name": "ETCDCTL_API", "value": "3"}],
                    "ports": [
                        {"name": "server", "containerPort": 2380, "protocol": "TCP"},
                        {"name": "client", "containerPort": 2379, "protocol": "TCP"},
                    ],
                    "volumeMounts": [{"name": "etcd-data", "mountPath": "/var/etcd"}],
                    "livenessProbe": probe(10, 60), "readinessProbe": probe(1, 5),
                }],
                "restartPolicy": "Never", "hostname": member, "subdomain": self.name,
                "automountServiceAccountToken": false,
                "volumes": [self.data(member)],
            },
        }))?;
        let api: Api<Pod> = self.context.api();
        api.create(&PostParams::default(), &pod).await?;
        self.serves(member).await
    }

    fn data(&self, member: &str) -> Value {
        if self.on_claims {
            json!({"name": "etcd-data", "persistentVolumeClaim": {"claimName": member}})
        } else {
            json!({"name": "etcd-data", "emptyDir": {}})
        }
    }

    /// A member's pod, once it is ready.
    async fn serves(&self, member: &str) -> anyhow::Result<Pod> {
        let ready = |pod: &Pod| {
            let conditions = pod
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten());
            conditions
                .into_iter()
                .any(|one| one.type_ == "Ready" && one.status == "True")
        };
        until(
            self.context.api::<Pod>(),
            member,
            "the pod to be ready",
            |pod| pod.is_some_and(ready),
        )
        .await?
        .context("a ready pod exists")
    }

    /// As its operator does it: one member founds the cluster, the others are added one by one.
    async fn members(&self, cluster: &Cluster<'_>, names: &[&str]) -> Outcome {
        for (place, name) in names.iter().enumerate() {
            let others = &names[..place];
            if let Some(first) = others.first() {
                let first = self.context.api::<Pod>().get(first).await?;
                let url = self.peer_url(name);
                // etcd takes another only when those there are have been connected for a while.
                until_answer(
                    "etcd to take another member",
                    Duration::from_millis(500),
                    || async {
                        let mut etcd = cluster.etcd_of(&first).await?;
                        let listed = etcd.member_list().await?;
                        let known = |one: &etcd_client::Member| one.peer_urls().contains(&url);
                        if !listed.members().iter().any(known) {
                            etcd.member_add([url.clone()], None).await?;
                        }
                        Ok(Some(()))
                    },
                )
                .await?;
            }
            self.pod(name, others).await?;
        }
        Ok(())
    }
}

/// Its operator's lock, last renewed so long from now.
async fn lock(context: &Context, from_now: i64) -> Outcome {
    let renewed = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(from_now);
    let record = json!({
        "holderIdentity": "etcd-operator-7d9c5f", "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00Z", "renewTime": renewed.to_string(), "leaderTransitions": 0,
    });
    let lock = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "etcd-operator", "annotations": {
            "control-plane.alpha.kubernetes.io/leader": record.to_string(),
        }},
    });
    let api: Api<Endpoints> = context.api();
    let apply = PatchParams::apply("test").force();
    api.patch("etcd-operator", &apply, &Patch::Apply(&lock))
        .await?;
    Ok(())
}

async fn uids(cluster: &Cluster<'_>) -> anyhow::Result<BTreeMap<String, String>> {
    let pods = cluster.pods().await?;
    Ok(pods
        .iter()
        .map(|pod| (pod.name_any(), pod.uid().unwrap_or_default()))
        .collect())
}

/// Pods as CoreOS's operator makes them meet no level of Pod Security but the widest.
async fn let_everybody_in(context: &Context) -> Outcome {
    let namespaces: Api<Namespace> = Api::all(context.client());
    let widest =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    namespaces
        .patch(
            context.namespace(),
            &PatchParams::default(),
            &Patch::Merge(&widest),
        )
        .await?;
    Ok(())
}

/// The resource as its operator left it: nothing in its spec that came later, and its status.
async fn resource(
    context: &Context,
    cluster: &Cluster<'_>,
    members: &[&str],
    pod: &Value,
) -> anyhow::Result<String> {
    let spec = json!({
        "size": members.len(), "version": VERSION, "repository": "quay.io/coreos/etcd", "pod": pod,
    });
    let uid = cluster.create(&spec).await?.uid().context("a UID")?;
    let status = json!({"status": {
        "phase": "Running", "size": members.len(), "serviceName": format!("{}-client", cluster.name()), "clientPort": 2379,
        "members": {"ready": members}, "currentVersion": VERSION, "targetVersion": "",
        "summary": null,
    }});
    context
        .clusters()
        .patch_status(
            cluster.name(),
            &PatchParams::default(),
            &Patch::Merge(&status),
        )
        .await?;
    // What admission wrote at creation is taken out again: what it fills in now is what such a cluster meant.
    cluster
        .change(&json!({"storage": null, "security": null}))
        .await?;
    Ok(uid)
}

pub(crate) async fn a_cluster_of_coreos_is_taken_over_and_moves_onto_claims(
    context: &Context,
) -> Outcome {
    let_everybody_in(context).await?;
    lock(context, 3600).await?;
    let names = [
        "legacy-4mx2hzkb7c",
        "legacy-8tqvd5nw9r",
        "legacy-f6kslp2xjg",
    ];
    let cluster = context.cluster("legacy");
    let left = Left {
        context,
        name: "legacy",
        uid: resource(context, &cluster, &names, &json!({})).await?,
        on_claims: false,
    };
    let stored = cluster.get().await?.data["spec"].clone();
    ensure!(stored["storage"]["ephemeral"] == true, "{stored:#}");
    ensure!(stored["security"]["peerTLS"]["mode"] == "Off", "{stored:#}");
    left.services().await?;
    left.members(&cluster, &names).await?;
    let before = uids(&cluster).await?;
    let traffic = Traffic::start(&cluster).await?;

    // While the other operator is there, this one says so and touches nothing.
    until(
        context.clusters(),
        "legacy",
        "the operator to stay away",
        |cluster| {
            cluster.is_some_and(|cluster| {
                let said = cluster.data["status"]["conditions"].to_string();
                condition_is(cluster, "Stalled", "True") && said.contains("OtherOperator")
            })
        },
    )
    .await?;
    let status = cluster.get().await?.data["status"].clone();
    ensure!(
        status["phase"] == "Running" && status["bootstrap"].is_null(),
        "{status:#}"
    );
    for pod in cluster.pods().await? {
        ensure!(
            !pod.labels().contains_key("app.kubernetes.io/managed-by"),
            "{} was touched",
            pod.name_any()
        );
    }

    // It is gone: the cluster is taken over as it stands.
    lock(context, -3600).await?;
    let ready = cluster.ready().await?;
    ensure!(
        ready.data["status"]["origin"] == "CoreOS",
        "{:#}",
        ready.data["status"]
    );
    ensure!(
        uids(&cluster).await? == before,
        "pods were made anew: {before:?}"
    );
    let restarts = |pod: &Pod| {
        let all = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        all.map(|one| one.restart_count).sum::<i32>()
    };
    ensure!(
        cluster.pods().await?.iter().all(|pod| restarts(pod) == 0),
        "a member was restarted"
    );
    traffic.goes_on().await?;

    // A step up changes the image where the pod stands: the data are in it.
    cluster.change(&json!({"version": NEXT})).await?;
    cluster.ready().await?;
    ensure!(
        uids(&cluster).await? == before,
        "pods were made anew: {before:?}"
    );
    for pod in cluster.pods().await? {
        let served = cluster.etcd_of(&pod).await?.status().await?;
        ensure!(
            served.version() == NEXT,
            "{} serves {}",
            pod.name_any(),
            served.version()
        );
    }
    traffic.goes_on().await?;

    // A member that is lost is replaced.
    let lost = names[1];
    context
        .api::<Pod>()
        .delete(lost, &DeleteParams::default())
        .await?;
    until(context.api::<Pod>(), lost, "the pod to be gone", |pod| {
        pod.is_none()
    })
    .await?;
    until_answer(
        "another to take its place",
        Duration::from_millis(500),
        || async {
            let members = cluster.members().await?;
            let replaced = members.len() == 3 && members.iter().all(|member| member.name != lost);
            Ok(replaced.then_some(()))
        },
    )
    .await?;
    cluster.ready().await?;
    traffic.goes_on().await?;

    // And all move onto claims when they are asked for.
    cluster.change(&json!({"storage": {"ephemeral": null, "size": "1Gi"}, "options": {"quotaBackend": "512Mi"}})).await?;
    let ready = cluster.ready().await?;
    exactly(context, &cluster, 3).await?;
    let accepted = &ready.data["status"]["accepted"];
    ensure!(
        accepted["size"] == "1Gi" && accepted["ephemeral"].is_null(),
        "{accepted:#}"
    );
    for pod in cluster.pods().await? {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
        let claimed = volumes
            .into_iter()
            .flatten()
            .any(|volume| volume.persistent_volume_claim.is_some());
        ensure!(
            claimed && !before.contains_key(&pod.name_any()),
            "{} has no claim",
            pod.name_any()
        );
    }
    traffic.goes_on().await?;
    tell(
        "taken over from CoreOS, 3.2.13 → 3.3.27, a member lost, moved onto claims",
        &traffic.stop().await?,
    );
    Ok(())
}

/// With a claim of CoreOS's a pod that is lost comes back on it; a member alone without one is followed by one that has a claim.
pub(crate) async fn single_members_of_coreos_are_taken_over_with_and_without_a_claim(
    context: &Context,
) -> Outcome {
    let_everybody_in(context).await?;
    lock(context, 3600).await?;
    let pod = json!({"persistentVolumeClaimSpec": claim_spec()});
    let mut all = Vec::new();
    for (name, member, on_claims) in [
        ("kept", "kept-2v8kq7zsnm", true),
        ("bare", "bare-x5ndg9rw4t", false),
    ] {
        let cluster = context.cluster(name);
        let pod = if on_claims { &pod } else { &json!({}) };
        let left = Left {
            context,
            name,
            uid: resource(context, &cluster, &[member], pod).await?,
            on_claims,
        };
        left.services().await?;
        if on_claims {
            left.claim(member).await?;
        }
        left.members(&cluster, &[member]).await?;
        cluster.etcd().await?.put("before", "kept", None).await?;
        all.push((cluster, member));
    }
    lock(context, -3600).await?;
    for (cluster, member) in &all {
        cluster.ready().await?;
        let pods = uids(cluster).await?;
        ensure!(pods.len() == 1 && pods.contains_key(*member), "{pods:?}");
    }
    let (with_claim, bare) = (&all[0], &all[1]);

    let id = with_claim.0.members().await?;
    let api: Api<Pod> = context.api();
    let before = uids(&with_claim.0).await?;
    api.delete(with_claim.1, &DeleteParams::default()).await?;
    until(context.api::<Pod>(), with_claim.1, "another pod", |pod| {
        pod.is_some_and(|pod| pod.uid().as_ref() != before.get(with_claim.1))
    })
    .await?;
    with_claim.0.ready().await?;
    ensure!(
        with_claim.0.members().await? == id,
        "the member list changed from {id:?}"
    );

    bare.0.change(&json!({"version": NEXT})).await?;
    until(
        context.clusters(),
        "bare",
        "the upgrade to be held",
        |cluster| {
            cluster.is_some_and(|cluster| {
                condition_is(cluster, "Stalled", "True")
                    && cluster.data["status"]["conditions"]
                        .to_string()
                        .contains("WouldLoseData")
            })
        },
    )
    .await?;
    let storage = json!({"ephemeral": null, "size": "1Gi"});
    bare.0
        .change(&json!({"storage": storage, "options": {"quotaBackend": "512Mi"}}))
        .await?;
    bare.0.ready().await?;
    let pods = uids(&bare.0).await?;
    ensure!(pods.len() == 1 && !pods.contains_key(bare.1), "{pods:?}");
    for (cluster, _) in &all {
        let answer = cluster.etcd().await?.get("before", None).await?;
        let found = answer.kvs().first().map(|entry| entry.value().to_vec());
        ensure!(
            found == Some(b"kept".to_vec()),
            "{}: {found:?}",
            cluster.name()
        );
    }
    Ok(())
}

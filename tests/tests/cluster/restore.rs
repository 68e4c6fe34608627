//! Backups that become clusters again: anew, in place, and back when that does not succeed.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    CREDENTIALS, Cluster, Context, GROUP, Outcome, S3Server, condition_is, until,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use object_store::{ObjectStoreExt as _, PutPayload, path::Path};
use serde_json::{Value, json};

use crate::{backup, interruptions};

fn restores(context: &Context) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1beta2", "EtcdRestore");
    Api::namespaced_with(
        context.client(),
        context.namespace(),
        &ApiResource::from_gvk_with_plural(&kind, "etcdrestores"),
    )
}

async fn create(context: &Context, name: &str, spec: Value) -> Outcome {
    let object = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdRestore",
        "metadata": {"name": name},
        "spec": spec,
    }))?;
    restores(context)
        .create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("creating EtcdRestore {name}"))?;
    Ok(())
}

/// Creates an EtcdRestore and waits until it has ended, one way or the other.
async fn restore(context: &Context, name: &str, spec: Value) -> anyhow::Result<Value> {
    create(context, name, spec).await?;
    ended(context, name).await
}

/// Waits until it has ended, one way or the other.
pub(crate) async fn ended(context: &Context, name: &str) -> anyhow::Result<Value> {
    let ended = until(restores(context), name, "the restore to end", |seen| {
        seen.is_some_and(|seen| {
            let phase = seen.data["status"]["phase"].as_str();
            matches!(phase, Some("Succeeded" | "Failed"))
        })
    })
    .await?;
    Ok(ended.context("the restore exists")?.data["status"].clone())
}

/// Waits until the restore says this, in any of its conditions.
async fn says(context: &Context, name: &str, words: &str) -> Outcome {
    let what = format!("restore {name} to say {words}");
    until(restores(context), name, &what, |seen| {
        seen.is_some_and(|seen| {
            seen.data["status"]["conditions"]
                .to_string()
                .contains(words)
        })
    })
    .await?;
    Ok(())
}

/// Every member has `key`, or none has, and all hash alike.
pub(crate) async fn all_have(cluster: &Cluster<'_>, key: &str, there: bool) -> Outcome {
    let mut hashes = Vec::new();
    for pod in cluster.pods().await? {
        let mut etcd = cluster.etcd_of(&pod).await?;
        let found = !etcd.get(key, None).await?.kvs().is_empty();
        ensure!(found == there, "{}: {key} there: {found}", pod.name_any());
        hashes.push(etcd.hash_kv(0).await?.hash());
    }
    ensure!(
        hashes.windows(2).all(|pair| pair[0] == pair[1]),
        "members hash {hashes:?}"
    );
    Ok(())
}

pub(crate) async fn a_backup_becomes_a_new_cluster_and_coreos_manifest_takes_an_old_one_back_in_place(
    context: &Context,
) -> Outcome {
    let store = S3Server::start(context).await?;
    let first = context.cluster("first");
    first.create(&json!({"size": 1})).await?;
    let old_id = first.ready().await?.data["status"]["clusterID"].clone();
    first.etcd().await?.put("before", "kept", None).await?;
    let spec = json!({"clusterName": "first", "s3": store.s3("first.backup")});
    backup::create(context, "nightly", spec).await?;
    let saved = backup::status(context, "nightly", "the backup to be good", backup::good).await?;
    first.etcd().await?.put("after", "gone", None).await?;

    let spec = json!({
        "backupName": "nightly",
        "newCluster": {"name": "second", "spec": {"size": 3}},
    });
    let made = restore(context, "into-new", spec).await?;
    ensure!(made["succeeded"] == true, "{made:#}");
    ensure!(made["etcdRevision"] == saved["etcdRevision"], "{made:#}");
    let second = context.cluster("second");
    second.ready().await?;
    ensure!(second.pods().await?.len() == 3, "not three members");
    all_have(&second, "before", true).await?;
    all_have(&second, "after", false).await?;
    // A pod that is made anew needs its volume and no store.
    store.down().await?;
    let pods: Api<Pod> = context.api();
    let lost = second.pods().await?.swap_remove(0);
    pods.delete(&lost.name_any(), &DeleteParams::default())
        .await?;
    until(pods, &lost.name_any(), "the pod to be back", |found| {
        found.is_some_and(|found| found.uid() != lost.uid())
    })
    .await?;
    second.ready().await?;
    store.up().await?;

    // As CoreOS's example has it: one name for both, and a store of S3. (`endpoint`, because the store is here.)
    let claims = first.claims().await?;
    let manifest = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdRestore",
        "metadata": {"name": "first"},
        "spec": {
            "etcdCluster": {"name": "first"},
            "backupStorageType": "S3",
            "s3": {
                "path": "backups/first.backup", "awsSecret": CREDENTIALS,
                "endpoint": store.endpoint(), "forcePathStyle": true,
            },
        },
    });
    context.kubectl_with(&["create"], &manifest).await?.ok()?;
    let back = ended(context, "first").await?;
    ensure!(back["succeeded"] == true, "{back:#}");
    let now = first.ready().await?;
    ensure!(
        now.data["status"]["clusterID"] != old_id,
        "the same cluster"
    );
    all_have(&first, "before", true).await?;
    all_have(&first, "after", false).await?;
    for claim in claims {
        until(
            context.api::<PersistentVolumeClaim>(),
            &claim.name_any(),
            "the former claim to go",
            |found| found.is_none(),
        )
        .await?;
    }
    Ok(())
}

/// A cluster of one member that relies on a backup: `before` is in it, `after` is not.
async fn saved(context: &Context, store: &S3Server<'_>, spec: &Value) -> anyhow::Result<String> {
    let cluster = context.cluster("kept");
    cluster.create(spec).await?;
    let ready = cluster.ready().await?;
    cluster.etcd().await?.put("before", "kept", None).await?;
    let spec = json!({"clusterName": "kept", "s3": store.s3("good.backup")});
    backup::create(context, "nightly", spec).await?;
    backup::status(context, "nightly", "the backup to be good", backup::good).await?;
    cluster.etcd().await?.put("after", "kept too", None).await?;
    let id = ready.data["status"]["clusterID"].as_str();
    Ok(id.context("a cluster ID")?.to_owned())
}

fn in_place(store: &S3Server<'_>, object: &str) -> Value {
    json!({"backupStorageType": "S3", "s3": store.s3(object), "etcdCluster": {"name": "kept"}})
}

pub(crate) async fn a_backup_that_is_not_sound_or_does_not_fit_touches_nothing(
    context: &Context,
) -> Outcome {
    let store = S3Server::start(context).await?;
    let id = saved(context, &store, &json!({"size": 1})).await?;
    let cluster = context.cluster("kept");
    let pods = cluster.pods().await?;
    let bucket = store.bucket().await?;
    let good = bucket
        .get(&Path::from("good.backup"))
        .await?
        .bytes()
        .await?;
    let mut flipped = good.to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    let half = good.slice(..good.len() / 2).to_vec();
    for (object, bytes) in [
        ("flipped", flipped),
        ("foreign", b"no snapshot of etcd".repeat(100)),
        ("empty", Vec::new()),
    ] {
        bucket
            .put(&Path::from(object), PutPayload::from(bytes))
            .await?;
        let status = restore(context, object, in_place(&store, object)).await?;
        let reason = status["reason"].as_str().unwrap_or_default();
        println!("  {object}: {reason}");
        ensure!(
            status["phase"] == "Failed"
                && (reason.starts_with("Snapshot") || reason.starts_with("NotASnapshot")),
            "{object}: {status:#}"
        );
    }
    // One that is cut off may be on its way into the store still: it is tried again.
    bucket
        .put(&Path::from("truncated"), PutPayload::from(half))
        .await?;
    create(context, "truncated", in_place(&store, "truncated")).await?;
    says(context, "truncated", "SnapshotIncomplete").await?;
    create(context, "missing", in_place(&store, "nowhere")).await?;
    says(context, "missing", "SnapshotNotFound").await?;
    let small = json!({
        "backupName": "nightly",
        "newCluster": {"name": "small", "spec": {
            "size": 1, "storage": {"size": "150Mi"}, "options": {"quotaBackend": "64Mi"},
        }},
    });
    let small = restore(context, "too-small", small).await?;
    let reason = small["reason"].as_str().unwrap_or_default();
    println!("  too small: {reason}");
    ensure!(reason.starts_with("LargerThanVolume"), "{small:#}");

    let after = cluster.ready().await?;
    ensure!(after.data["status"]["clusterID"] == id, "another cluster");
    let uids = |pods: &[Pod]| pods.iter().map(ResourceExt::uid).collect::<Vec<_>>();
    ensure!(
        uids(&pods) == uids(&cluster.pods().await?),
        "its pod was touched"
    );
    all_have(&cluster, "after", true).await
}

/// The EtcdBackup is asked for nothing, or answers again.
async fn suspend(context: &Context, suspended: bool) -> Outcome {
    let change = Patch::Merge(json!({"spec": {"suspend": suspended}}));
    backup::backups(context)
        .patch("nightly", &PatchParams::default(), &change)
        .await?;
    Ok(())
}

pub(crate) async fn a_restore_that_cannot_end_goes_back_and_the_next_outlives_store_and_controller(
    context: &Context,
) -> Outcome {
    let store = S3Server::start(context).await?;
    let relies = json!({"size": 1, "backup": {"backupName": "nightly"}});
    let id = saved(context, &store, &relies).await?;
    let cluster = context.cluster("kept");
    let claims = cluster.claims().await?;
    let bucket = store.bucket().await?;
    let good = bucket
        .get(&Path::from("good.backup"))
        .await?
        .bytes()
        .await?;
    for copy in ["first", "second"] {
        let payload = PutPayload::from(good.clone());
        bucket.put(&Path::from(copy), payload).await?;
    }

    // It is sound, and held: no backup can be had before. Then it is lost.
    suspend(context, true).await?;
    create(context, "lost", in_place(&store, "first")).await?;
    says(context, "lost", "EtcdBackup nightly is suspended").await?;
    all_have(&cluster, "after", true).await?;
    bucket.delete(&Path::from("first")).await?;
    suspend(context, false).await?;
    says(context, "lost", "SnapshotNotFound").await?;
    says(context, "lost", "delete etcdrestore lost").await?;
    // Another one waits for it.
    create(context, "next", in_place(&store, "second")).await?;
    says(context, "next", "AnotherRestore").await?;
    for claim in &claims {
        let live = context.api::<PersistentVolumeClaim>();
        let live = live.get(&claim.name_any()).await?;
        ensure!(
            live.uid() == claim.uid() && live.metadata.deletion_timestamp.is_none(),
            "the old volume was touched"
        );
    }

    // The way back, without the store and with a controller that dies on it. The next goes on by itself, and is held by the store.
    store.down().await?;
    cluster
        .change(
            &json!({"backup": {"backupName": "nightly", "beforeRisk": "Never"}, "paused": false}),
        )
        .await?;
    restores(context)
        .delete("lost", &DeleteParams::default())
        .await?;
    interruptions::kill_the_leader(context).await?;
    until(
        restores(context),
        "lost",
        "the restore to be gone",
        |seen| seen.is_none(),
    )
    .await?;
    until(
        context.clusters(),
        "kept",
        "the old members to serve again",
        |seen| {
            seen.is_some_and(|seen| {
                condition_is(seen, "Available", "True") && seen.data["status"]["clusterID"] == id
            })
        },
    )
    .await?;
    all_have(&cluster, "after", true).await?;

    says(context, "next", "StoreUnreachable").await?;
    interruptions::kill_the_leader(context).await?;
    let pods: Api<Pod> = context.api();
    let filling = until_filling(&cluster).await?;
    pods.delete(&filling, &DeleteParams::default().grace_period(0))
        .await?;
    store.up().await?;
    let status = ended(context, "next").await?;
    ensure!(status["succeeded"] == true, "{status:#}");
    cluster.ready().await?;
    all_have(&cluster, "before", true).await?;
    all_have(&cluster, "after", false).await
}

/// A pod of the cluster whose volume is being filled.
async fn until_filling(cluster: &Cluster<'_>) -> anyhow::Result<String> {
    etcd_operator_tests::until_answer(
        "a pod that is being filled",
        std::time::Duration::from_millis(200),
        || async {
            let pods = cluster.pods().await?;
            let filling = pods.iter().find(|pod| {
                let spec = pod.spec.as_ref();
                spec.is_some_and(|spec| spec.init_containers.is_some())
            });
            Ok(filling.map(ResourceExt::name_any))
        },
    )
    .await
}

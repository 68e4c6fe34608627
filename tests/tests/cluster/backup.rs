//! Backups: once and again, to a real store, with words for what goes wrong, and before what cannot be taken back.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{CREDENTIALS, Context, GROUP, Outcome, S3Server, condition_is, until};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

pub(crate) fn backups(context: &Context) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1beta2", "EtcdBackup");
    Api::namespaced_with(
        context.client(),
        context.namespace(),
        &ApiResource::from_gvk_with_plural(&kind, "etcdbackups"),
    )
}

pub(crate) async fn create(context: &Context, name: &str, spec: Value) -> anyhow::Result<()> {
    let object = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdBackup",
        "metadata": {"name": name},
        "spec": spec,
    }))?;
    backups(context)
        .create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("creating EtcdBackup {name}"))?;
    Ok(())
}

/// The status, once it is as wished.
pub(crate) async fn status(
    context: &Context,
    name: &str,
    what: &str,
    wished: impl Fn(&DynamicObject) -> bool,
) -> anyhow::Result<Value> {
    let found = until(backups(context), name, what, |seen| {
        seen.is_some_and(&wished)
    })
    .await?;
    let found = found.context("the backup exists")?;
    Ok(found.data["status"].clone())
}

pub(crate) fn good(backup: &DynamicObject) -> bool {
    condition_is(backup, "Ready", "True") && backup.data["status"]["succeeded"] == true
}

fn runs(status: &Value, result: &str) -> usize {
    let history = status["history"].as_array();
    history.map_or(0, |runs| {
        runs.iter().filter(|run| run["result"] == result).count()
    })
}

/// A cluster of one member, with a key in it.
async fn cluster_with_a_key(context: &Context, name: &str, spec: Value) -> anyhow::Result<()> {
    let cluster = context.cluster(name);
    cluster.create(&spec).await?;
    cluster.ready().await?;
    cluster.etcd().await?.put("greeting", "hello", None).await?;
    Ok(())
}

pub(crate) async fn a_backup_proves_itself_in_the_store_and_one_that_repeats_keeps_what_it_is_told(
    context: &Context,
) -> Outcome {
    let sealed = json!({"size": 1, "security": {"clientTLS": {"mode": "Auto"}}});
    let (store, ()) = futures::try_join!(
        S3Server::start(context),
        cluster_with_a_key(context, "saved", sealed)
    )?;
    create(
        context,
        "once",
        json!({"clusterName": "saved", "s3": store.s3("once.backup"), "verify": "Restore"}),
    )
    .await?;
    let once = status(context, "once", "the backup to be proven", good).await?;
    let run = &once["history"][0];
    ensure!(
        run["verified"] == "Restore" && run["snapshot"] == "once.backup",
        "{once:#}"
    );
    ensure!(run["etcdRevision"].as_i64() >= Some(2), "{once:#}");
    ensure!(once["summary"] == "Succeeded", "{once:#}");
    let objects = store.objects().await?;
    for object in ["once.backup", "once.backup.manifest.json"] {
        ensure!(objects.iter().any(|known| known == object), "{objects:?}");
    }
    // Applications' certificates are none of a backup's business, and its own is gone with its Job sooner or later; nothing of the
    // store's credentials is anywhere but in the Secret that was named.
    let told = context
        .kubectl(&["describe", "etcdbackup", "once"])
        .await?
        .ok()?;
    ensure!(told.contains("RunSucceeded"), "{told}");

    create(
        context,
        "often",
        json!({
            "clusterName": "saved", "s3": store.s3("often/etcd.backup"),
            "backupPolicy": {"backupIntervalInSecond": 10, "maxBackups": 2},
        }),
    )
    .await?;
    let often = status(context, "often", "three good runs", |seen| {
        runs(&seen.data["status"], "Succeeded") >= 3
    })
    .await?;
    ensure!(often["snapshots"] == 2, "{often:#}");
    ensure!(often["nextRun"].is_string(), "{often:#}");
    // A suspended one starts nothing: then its objects can be counted.
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    backups(context)
        .patch("often", &PatchParams::default(), &suspend)
        .await?;
    let rested = status(context, "often", "no run to be under way", |seen| {
        seen.data["status"]["summary"] == "Suspended"
    })
    .await?;
    let named: BTreeSet<&str> = rested["history"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|run| run["result"] == "Succeeded")
        .take(2)
        .filter_map(|run| run["snapshot"].as_str())
        .collect();
    let objects = store.objects().await?;
    let kept: BTreeSet<&str> = objects
        .iter()
        .map(String::as_str)
        .filter(|object| object.starts_with("often/") && !object.ends_with(".manifest.json"))
        .collect();
    ensure!(
        kept == named,
        "kept {kept:?}, and the history names {named:?}"
    );
    Ok(())
}

pub(crate) async fn a_backup_that_fails_says_why_and_coreos_manifest_works_as_it_is(
    context: &Context,
) -> Outcome {
    let (store, ()) = futures::try_join!(
        S3Server::start(context),
        cluster_with_a_key(context, "example", json!({"size": 1}))
    )?;
    let wrong: Secret = serde_json::from_value(json!({
        "metadata": {"name": "wrong"},
        "stringData": {"credentials": "[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n"},
    }))?;
    context.api().create(&PostParams::default(), &wrong).await?;
    let s3 = |field: &str, value: &str| {
        let mut s3 = store.s3("x.backup");
        s3[field] = json!(value);
        json!({"clusterName": "example", "s3": s3})
    };
    let mut waits = s3("awsSecret", "missing");
    waits["backupPolicy"] = json!({"timeoutInSecond": 600});
    for (name, spec) in [
        ("no-bucket", s3("path", "no-such-bucket/x.backup")),
        ("no-entry", s3("awsSecret", "wrong")),
        ("no-secret", waits),
    ] {
        create(context, name, spec).await?;
    }
    for (name, reasons) in [
        ("no-bucket", &["BucketNotFound"][..]),
        ("no-entry", &["CredentialsInvalid", "PermissionDenied"][..]),
    ] {
        let failed = status(context, name, "the run to fail", |seen| {
            condition_is(seen, "Stalled", "True")
        })
        .await?;
        let run = &failed["history"][0];
        let reason = run["reason"].as_str().unwrap_or_default();
        ensure!(reasons.contains(&reason), "{name}: {failed:#}");
        ensure!(
            failed["succeeded"] == false && failed["Reason"] == run["message"],
            "{name}: {failed:#}"
        );
    }
    status(context, "no-secret", "words about the Secret", |seen| {
        let conditions = seen.data["status"]["conditions"].to_string();
        conditions.contains("Secret missing does not exist")
    })
    .await?;

    // As CoreOS's example has it; the endpoint stands in for AWS.
    let manifest = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdBackup",
        "metadata": {"name": "example-etcd-cluster-backup"},
        "spec": {
            "etcdEndpoints": [format!("http://example-client.{}.svc:2379", context.namespace())],
            "storageType": "S3",
            "s3": {
                "path": "backups/etcd.backup", "awsSecret": CREDENTIALS,
                "endpoint": store.endpoint(), "forcePathStyle": true,
            },
        },
    });
    context.kubectl_with(&["apply"], &manifest).await?.ok()?;
    let name = "example-etcd-cluster-backup";
    let coreos = status(context, name, "the backup to be good", good).await?;
    ensure!(
        coreos["etcdVersion"].is_string() && coreos["etcdRevision"].is_i64(),
        "{coreos:#}"
    );
    ensure!(
        store.objects().await?.contains(&"etcd.backup".to_owned()),
        "{coreos:#}"
    );
    Ok(())
}

pub(crate) async fn a_new_minor_waits_for_a_good_backup(context: &Context) -> Outcome {
    let relies = json!({"size": 1, "version": "3.5.35", "backup": {"backupName": "nightly"}});
    let (store, ()) = futures::try_join!(
        S3Server::start(context),
        cluster_with_a_key(context, "careful", relies)
    )?;
    let cluster = context.cluster("careful");
    let mut nowhere = store.s3("careful.backup");
    nowhere["path"] = json!("no-such-bucket/careful.backup");
    create(
        context,
        "nightly",
        json!({
            "clusterName": "careful", "s3": nowhere, "schedule": "0 3 1 1 *",
            "retention": {"count": 3},
        }),
    )
    .await?;
    cluster.change(&json!({"version": "3.6.16"})).await?;
    let held = until(
        context.clusters(),
        "careful",
        "the upgrade to be held",
        |seen| seen.is_some_and(|cluster| condition_is(cluster, "Stalled", "True")),
    )
    .await?
    .context("the cluster exists")?;
    let conditions = held.data["status"]["conditions"].to_string();
    ensure!(
        conditions.contains("BackupFailed") && conditions.contains("BucketNotFound"),
        "{conditions}"
    );
    ensure!(
        held.data["status"]["currentVersion"] == "3.5.35"
            && condition_is(&held, "Available", "True")
            && condition_is(&held, "BackupHealthy", "False"),
        "{:#}",
        held.data["status"]
    );

    // Put right, and run once more.
    let mended = Patch::Merge(json!({
        "metadata": {"annotations": {"etcd.database.coreos.com/run-now": "the bucket is there"}},
        "spec": {"s3": store.s3("careful.backup")},
    }));
    backups(context)
        .patch("nightly", &PatchParams::default(), &mended)
        .await?;
    let done = until(
        context.clusters(),
        "careful",
        "the upgrade to go on",
        |seen| {
            seen.is_some_and(|cluster| {
                condition_is(cluster, "Ready", "True")
                    && cluster.data["status"]["currentVersion"] == "3.6.16"
            })
        },
    )
    .await?
    .context("the cluster exists")?;
    ensure!(
        condition_is(&done, "BackupHealthy", "True"),
        "{:#}",
        done.data["status"]
    );
    let taken = backups(context).get("nightly").await?.data["status"].clone();
    ensure!(taken["etcdVersion"] == "3.5.35", "{taken:#}");
    ensure!(
        (runs(&taken, "Failed"), runs(&taken, "Succeeded")) == (1, 1),
        "once per step, and once by hand: {taken:#}"
    );
    Ok(())
}

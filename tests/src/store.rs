//! A store for backups: a server that speaks S3 (versitygw), in a pod of the scenario's own namespace, with one bucket.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::TryStreamExt as _;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{PersistentVolumeClaim, Secret, Service},
};
use kube::api::{Patch, PatchParams, PostParams};
use object_store::{ClientOptions, ObjectStore, aws::AmazonS3Builder};
use serde_json::{Value, json};

use crate::{Context, until, until_answer};

const NAME: &str = "store";
/// The Secret that backups name.
pub const CREDENTIALS: &str = "store-credentials";
pub const BUCKET: &str = "backups";
const PORT: u16 = 7070;
const ACCESS: &str = "tester";
const SECRET: &str = "only-for-tests";
/// As `xtask/src/programs/pins.rs` has it.
const IMAGE: &str = "ghcr.io/versity/versitygw:v1.8.0";

/// The server; what is in its bucket outlives its pod.
#[derive(Debug)]
pub struct S3Server<'a> {
    context: &'a Context,
}

impl<'a> S3Server<'a> {
    /// Starts it and waits until it answers.
    pub async fn start(context: &'a Context) -> anyhow::Result<Self> {
        let server = Self { context };
        let labels = json!({"app": NAME});
        let made = PostParams::default();
        let credentials =
            format!("[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n");
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": CREDENTIALS},
            "stringData": {"credentials": credentials, "config": "[default]\nregion = us-east-1\n"},
        }))?;
        context.api().create(&made, &secret).await?;
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": NAME},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }))?;
        context.api().create(&made, &claim).await?;
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": NAME},
            "spec": {"selector": labels, "ports": [{"port": PORT}]},
        }))?;
        context.api().create(&made, &service).await?;
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": NAME},
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "securityContext": {
                            "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "containers": [{
                            "name": "versitygw",
                            "image": IMAGE,
                            "args": ["--access", ACCESS, "--secret", SECRET, "--port", format!(":{PORT}"), "posix", "/buckets"],
                            "ports": [{"containerPort": PORT}],
                            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
                            "securityContext": {
                                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                            },
                            // A folder below the root is a bucket; the server's own notes are beside it.
                            "volumeMounts": [
                                {"name": "notes", "mountPath": "/buckets"},
                                {"name": "bucket", "mountPath": format!("/buckets/{BUCKET}")},
                            ],
                        }],
                        "volumes": [
                            {"name": "notes", "emptyDir": {}},
                            {"name": "bucket", "persistentVolumeClaim": {"claimName": NAME}},
                        ],
                    },
                },
            },
        }))?;
        context.api().create(&made, &deployment).await?;
        server.settled(1).await?;
        server.objects().await?;
        Ok(server)
    }

    /// Where pods reach it.
    pub fn endpoint(&self) -> String {
        format!("http://{NAME}.{}.svc:{PORT}", self.context.namespace())
    }

    /// What an EtcdBackup or EtcdRestore says of it under `s3`.
    pub fn s3(&self, path: &str) -> Value {
        json!({
            "path": format!("{BUCKET}/{path}"),
            "awsSecret": CREDENTIALS,
            "endpoint": self.endpoint(),
            "forcePathStyle": true,
        })
    }

    /// Takes the server away; its objects stay.
    pub async fn down(&self) -> anyhow::Result<()> {
        self.scale(0).await
    }

    /// Brings it back.
    pub async fn up(&self) -> anyhow::Result<()> {
        self.scale(1).await
    }

    async fn scale(&self, replicas: i32) -> anyhow::Result<()> {
        let api = self.context.api::<Deployment>();
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch(NAME, &PatchParams::default(), &patch).await?;
        self.settled(replicas).await
    }

    async fn settled(&self, replicas: i32) -> anyhow::Result<()> {
        let what = format!("the store to have {replicas} pods");
        until(self.context.api::<Deployment>(), NAME, &what, |seen| {
            seen.and_then(|deployment| {
                let status = deployment.status.as_ref()?;
                let current = status.observed_generation >= deployment.metadata.generation;
                let ready = status.ready_replicas.unwrap_or(0) == replicas;
                Some(current && ready && status.replicas.unwrap_or(0) == replicas)
            })
            .unwrap_or(false)
        })
        .await?;
        Ok(())
    }

    /// The bucket itself, to look into it and to do harm to what is there.
    pub async fn bucket(&self) -> anyhow::Result<Arc<dyn ObjectStore>> {
        // The suite runs in the cluster's network, but not with its DNS.
        let service = self.context.api::<Service>().get(NAME).await?;
        let address = service
            .spec
            .and_then(|spec| spec.cluster_ip)
            .context("the store's address")?;
        let store = AmazonS3Builder::new()
            .with_bucket_name(BUCKET)
            .with_endpoint(format!("http://{address}:{PORT}"))
            .with_access_key_id(ACCESS)
            .with_secret_access_key(SECRET)
            .with_region("us-east-1")
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .build()?;
        Ok(Arc::new(store))
    }

    /// The names of all objects, in order, once it answers.
    pub async fn objects(&self) -> anyhow::Result<Vec<String>> {
        until_answer(
            "the store to list its objects",
            Duration::from_millis(200),
            || async {
                let listed = self.bucket().await?.list(None);
                let names = listed.map_ok(|object| object.location.to_string());
                let mut names: Vec<String> = names.try_collect().await?;
                names.sort();
                Ok(Some(names))
            },
        )
        .await
    }
}

//! What is around an object: a Secret, a cluster, a backup that it names. Told as warnings, never as a refusal: GitOps applies in any order.

use std::time::Duration;

use anyhow::ensure;
use etcd_operator_certs::{CertificateAuthority, LeafRequest, Usage};
use etcd_operator_tests::{Context, GROUP, Outcome};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::api::PostParams;
use serde_json::{Value, json};

/// What admission warns of, line by line.
async fn warnings(context: &Context, kind: &str, spec: &Value) -> anyhow::Result<Vec<String>> {
    let mut manifest = context.manifest("c", spec);
    manifest["kind"] = json!(kind);
    let answer = context
        .kubectl_with(&["create", "--dry-run=server"], &manifest)
        .await?;
    let told = answer.stderr.clone();
    answer.ok()?;
    let warnings = told
        .lines()
        .filter_map(|line| line.strip_prefix("Warning: "));
    Ok(warnings.map(ToOwned::to_owned).collect())
}

async fn store(context: &Context, name: &str, data: &[(&str, &str)]) -> Outcome {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    let data = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
    secret.data = Some(data.collect());
    context
        .api::<Secret>()
        .create(&PostParams::default(), &secret)
        .await?;
    Ok(())
}

/// A certificate for every member of that cluster in this namespace, as someone with an authority of their own makes it.
async fn store_certificate(context: &Context, name: &str, cluster: &str) -> Outcome {
    let (now, life) = (Timestamp::now(), Duration::from_hours(24));
    let authority = CertificateAuthority::generate("somebody's own", now, life)?;
    let members = format!("*.{cluster}.{}.svc", context.namespace());
    let leaf = authority.issue(
        &LeafRequest {
            common_name: cluster.to_owned(),
            names: vec![members.parse()?],
            usage: Usage::Peer,
            lifetime: life,
        },
        now,
    )?;
    let data = [
        ("tls.crt", leaf.certificate_pem()),
        ("tls.key", leaf.key_pem()),
        ("ca.crt", authority.certificate_pem()),
    ];
    store(context, name, &data).await
}

pub(crate) async fn a_secret_that_will_not_do_is_told_of_and_never_refused(
    context: &Context,
) -> Outcome {
    store(context, "without-keys", &[("tls.crt", "-")]).await?;
    store_certificate(context, "of-another", "another").await?;
    store_certificate(context, "fitting", "c").await?;
    for (secret, words) in [
        (
            "missing",
            Some("spec.security.peerTLS.secretName: Secret `missing` does not exist (yet)"),
        ),
        (
            "without-keys",
            Some("Secret `without-keys` has no `tls.key`, `ca.crt`"),
        ),
        (
            "of-another",
            Some("Secret `of-another`: its certificate does not name `*.c."),
        ),
        ("fitting", None),
    ] {
        let spec = json!({"security": {"peerTLS": {"secretName": secret}}});
        let told = warnings(context, "EtcdCluster", &spec).await?;
        let of_secrets: Vec<&String> = told
            .iter()
            .filter(|line| line.contains("Secret `"))
            .collect();
        match words {
            Some(words) => ensure!(
                of_secrets.iter().any(|line| line.contains(words)),
                "{secret}: {told:?}"
            ),
            None => ensure!(of_secrets.is_empty(), "{secret}: {told:?}"),
        }
    }
    Ok(())
}

pub(crate) async fn what_a_backup_or_a_restore_names_is_looked_for(context: &Context) -> Outcome {
    context
        .cluster("here")
        .create(&json!({"paused": true}))
        .await?;
    store(context, "aws", &[("credentials", "-")]).await?;
    let backup = |cluster: &str, secret: &str| json!({"clusterName": cluster, "s3": {"path": "bucket/key", "awsSecret": secret}});
    let restore = |target: Value| {
        let mut spec = json!({"backupName": "nightly"});
        spec["newCluster"] = target;
        spec
    };
    for (kind, spec, words) in [
        ("EtcdBackup", backup("here", "aws"), None),
        (
            "EtcdBackup",
            backup("gone", "aws"),
            Some("spec.clusterName: EtcdCluster `gone` does not exist (yet)"),
        ),
        (
            "EtcdBackup",
            backup("here", "none"),
            Some("spec.s3.awsSecret: Secret `none` does not exist (yet)"),
        ),
        (
            "EtcdRestore",
            restore(json!({"name": "new"})),
            Some("spec.backupName: EtcdBackup `nightly` does not exist (yet)"),
        ),
        (
            "EtcdRestore",
            restore(json!({"name": "here"})),
            Some("spec.newCluster.name: EtcdCluster `here` exists already"),
        ),
    ] {
        let told = warnings(context, kind, &spec).await?;
        match words {
            Some(words) => ensure!(
                told.iter().any(|line| line.starts_with(words)),
                "{kind} {spec}: {told:?}"
            ),
            None => ensure!(
                !told.iter().any(|line| line.contains("exist")),
                "{kind} {spec}: {told:?}"
            ),
        }
    }
    // A dry run, all of it: nothing of our kinds was stored but what was created for real.
    let left = context
        .kubectl(&[
            "get",
            &format!("etcdbackups.{GROUP},etcdrestores.{GROUP}"),
            "--output=name",
        ])
        .await?
        .ok()?;
    ensure!(left.trim().is_empty(), "a dry run left {left}");
    Ok(())
}

//! TLS as an application meets it: a pod that mounts the client Secret, or does not.

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, Outcome, history::Traffic, until};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

/// Where the client Secret appears in the application's pod.
const MOUNTED: &str = "/etc/client";

/// Runs `etcdctl` in a pod of its own to its end: whether it succeeded, and what it said.
async fn application(
    context: &Context,
    name: &str,
    image: &str,
    arguments: &[&str],
) -> anyhow::Result<(bool, String)> {
    let pod: Value = json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "application",
                "image": image,
                "command": ["/usr/local/bin/etcdctl", "--command-timeout=10s", "--dial-timeout=10s"],
                "args": arguments,
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "client", "mountPath": MOUNTED, "readOnly": true}],
            }],
            "volumes": [{"name": "client", "secret": {"secretName": "sealed-client-tls"}}],
        },
    });
    let pods: Api<Pod> = context.api();
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    let phase = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        phase.filter(|phase| phase == "Succeeded" || phase == "Failed")
    };
    let ended = until(pods, name, "the application to end", |pod| {
        pod.is_some_and(|pod| phase(pod).is_some())
    })
    .await?
    .context("the application's pod")?;
    let said = context.kubectl(&["logs", name]).await?.ok()?;
    Ok((phase(&ended).as_deref() == Some("Succeeded"), said))
}

pub(crate) async fn client_tls_lets_in_who_has_the_client_secret_and_nobody_else(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("sealed");
    cluster
        .create(&json!({"security": {"clientTLS": {"mode": "Auto"}}}))
        .await?;
    let ready = cluster.ready().await?;
    ensure!(
        ready.data["status"]["readyMembers"] == 3,
        "{:#}",
        ready.data["status"]
    );
    let secret: Secret = context.api().get("sealed-client-tls").await?;
    let keys: Vec<String> = secret.data.unwrap_or_default().into_keys().collect();
    ensure!(
        keys == ["ca.crt", "tls.crt", "tls.key"],
        "the client Secret holds {keys:?}"
    );

    let member = cluster.pods().await?;
    let image = member
        .first()
        .and_then(|pod| pod.spec.as_ref()?.containers.first()?.image.clone())
        .context("a member's image")?;
    let service = format!("sealed-client.{}.svc:2379", context.namespace());
    let endpoint = format!("--endpoints=https://{service}");
    let (authority, certificate, key) = (
        format!("--cacert={MOUNTED}/ca.crt"),
        format!("--cert={MOUNTED}/tls.crt"),
        format!("--key={MOUNTED}/tls.key"),
    );
    let admitted = [&*endpoint, &authority, &certificate, &key];

    let put = [&admitted[..], &["put", "greeting", "hello"]].concat();
    let (written, said) = application(context, "with-secret-writes", &image, &put).await?;
    ensure!(written, "refused with the client Secret: {said}");
    let get = [&admitted[..], &["get", "greeting", "--print-value-only"]].concat();
    let (read, said) = application(context, "with-secret-reads", &image, &get).await?;
    ensure!(read && said.trim() == "hello", "read: {said}");

    let plain = format!("--endpoints=http://{service}");
    let strangers: [(&str, Vec<&str>); 2] = [
        (
            "without-certificate",
            vec![&endpoint, &authority, "get", "greeting"],
        ),
        ("without-tls", vec![&plain, "get", "greeting"]),
    ];
    for (name, arguments) in strangers {
        let (admitted, said) = application(context, name, &image, &arguments).await?;
        ensure!(
            !admitted && !said.contains("hello"),
            "{name} was let in: {said}"
        );
    }
    Ok(())
}

/// One key of a Secret, as text.
async fn secret_text(context: &Context, secret: &str, key: &str) -> anyhow::Result<Option<String>> {
    let found: Secret = context.api().get(secret).await?;
    Ok(text_in(&found, key))
}

fn text_in(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok()
}

fn certificates(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

/// Waits until this Secret is as it should be.
async fn until_secret(
    context: &Context,
    name: &str,
    what: &str,
    is: impl Fn(&Secret) -> bool,
) -> anyhow::Result<Secret> {
    until(context.api::<Secret>(), name, what, |secret| {
        secret.is_some_and(&is)
    })
    .await?
    .context("the Secret")
}

pub(crate) async fn new_authorities_take_over_under_load_and_no_write_is_lost(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("turn");
    cluster
        .create(&json!({"security": {"clientTLS": {"mode": "Auto"}}}))
        .await?;
    cluster.ready().await?;
    let members = cluster.members().await?;
    let traffic = Traffic::start(&cluster).await?;
    let mut old = Vec::new();
    for authority in ["turn-peer-ca", "turn-client-ca"] {
        let certificate = secret_text(context, authority, "tls.crt").await?;
        old.push((authority, certificate.context("an authority")?));
    }
    let before = cluster.door().await?.snapshot().await?;

    context
        .kubectl(&[
            "annotate",
            "etcdcluster",
            "turn",
            "etcd.database.coreos.com/rotate-ca=a-key-has-leaked",
        ])
        .await?
        .ok()?;
    // Applications are told of the new authority before anybody shows its certificates.
    let both = until_secret(context, "turn-client-tls", "both to be trusted", |secret| {
        text_in(secret, "ca.crt").is_some_and(|bundle| certificates(&bundle) == 2)
    })
    .await?;
    ensure!(
        text_in(&both, "ca.crt").is_some_and(|bundle| bundle.contains(old[1].1.trim())),
        "the old authority is not trusted any more"
    );
    for (authority, _) in &old {
        until_secret(context, authority, "the new one to sign", |secret| {
            text_in(secret, "previous.crt").is_some()
        })
        .await?;
    }
    traffic.goes_on().await?;
    for (authority, certificate) in &old {
        until_secret(context, authority, "the old one to be dropped", |secret| {
            text_in(secret, "previous.crt").is_none()
                && text_in(secret, "tls.crt").as_ref() != Some(certificate)
        })
        .await?;
    }
    until_secret(
        context,
        "turn-client-tls",
        "only the new to be trusted",
        |secret| {
            text_in(secret, "ca.crt").is_some_and(|bundle| {
                certificates(&bundle) == 1 && !bundle.contains(old[1].1.trim())
            })
        },
    )
    .await?;
    cluster.ready().await?;
    traffic.goes_on().await?;
    println!("  new certificate authorities: {}", traffic.stop().await?);
    ensure!(
        cluster.members().await? == members,
        "the member list changed from {members:?}"
    );
    ensure!(
        before.open_once().await.is_err(),
        "a certificate of the old authority is still let in"
    );
    Ok(())
}

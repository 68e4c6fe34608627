//! Whoever keeps the webhook's certificate: a Secret of the user's, cert-manager, and for callers an authority of theirs. Each is installed
//! by the chart as a user would, one after the other on one release, and asked to judge.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use etcd_operator_certs::{CertificateAuthority, Leaf, LeafRequest, Usage};
use etcd_operator_tests::{
    Context, OPERATOR_NAMESPACE, Outcome, Scraped, install, install_with, until, until_answer,
};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{ConfigMap, Pod, Secret},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;

const SERVER: &str = "etcd-operator-webhook.etcd-operator.svc";
const CONFIGURATION: &str = "etcd-operator.etcd-operator";
const DEFINITION: &str = "etcdclusters.etcd.database.coreos.com";
const LEAF_EXPIRY: &str =
    r#"etcd_operator_certificate_expiry_timestamp_seconds{certificate="leaf"}"#;

fn hours(hours: u64) -> Duration {
    Duration::from_hours(hours)
}

fn authority() -> anyhow::Result<CertificateAuthority> {
    let life = hours(24 * 30);
    Ok(CertificateAuthority::generate(
        "somebody's own",
        Timestamp::now(),
        life,
    )?)
}

/// Their lives differ, so that one is told from another by when it ends.
fn leaf(authority: &CertificateAuthority, name: &str, life: Duration) -> anyhow::Result<Leaf> {
    let request = LeafRequest {
        common_name: name.to_owned(),
        names: vec![name.parse()?],
        usage: Usage::Server,
        lifetime: life,
    };
    Ok(authority.issue(&request, Timestamp::now())?)
}

async fn store(
    context: &Context,
    name: &str,
    leaf: &Leaf,
    authority: &CertificateAuthority,
) -> Outcome {
    let secret: Secret = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": leaf.certificate_pem(), "tls.key": leaf.key_pem(), "ca.crt": authority.certificate_pem()},
    }))?;
    let secrets: Api<Secret> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let params = PatchParams::apply("tests").force();
    secrets.patch(name, &params, &Patch::Apply(&secret)).await?;
    nudge(context).await
}

/// The kubelet looks after mounted files about once a minute, and at once when a pod changes: an annotation saves the wait.
async fn nudge(context: &Context) -> Outcome {
    let pods: Api<Pod> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    for (pod, _) in Scraped::pods(context, "webhook").await? {
        let now = json!({"metadata": {"annotations": {"nudged": Timestamp::now().to_string()}}});
        pods.patch(&pod, &PatchParams::default(), &Patch::Merge(now))
            .await?;
    }
    Ok(())
}

/// One that is refused with its reason, one that is let in and filled in.
async fn judges(context: &Context) -> Outcome {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let create = async |spec| {
        let object: DynamicObject = serde_json::from_value(context.manifest("judged", &spec))?;
        anyhow::Ok(context.clusters().create(&dry_run, &object).await)
    };
    let sound = create(json!({})).await??;
    ensure!(
        sound.data["spec"]["size"] == 3,
        "not filled in: {:#}",
        sound.data
    );
    match create(json!({"size": 4})).await? {
        Err(kube::Error::Api(status)) if status.message.contains("admission webhook") => Ok(()),
        other => anyhow::bail!("an even size: {other:?}"),
    }
}

/// The same once the pods of the mode before are gone: as long as they are there, they publish an authority of their own.
async fn comes_to_judge(context: &Context) -> Outcome {
    until_answer(
        "admission to settle",
        Duration::from_millis(500),
        || async { judges(context).await.map(Some) },
    )
    .await
}

/// (name, restarts) of the webhook's pods.
async fn pods(context: &Context) -> anyhow::Result<Vec<(String, i32)>> {
    let api: Api<Pod> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let mut all = Vec::new();
    for (name, _) in Scraped::pods(context, "webhook").await? {
        let status = api.get(&name).await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        all.push((name, containers.iter().map(|one| one.restart_count).sum()));
    }
    Ok(all)
}

async fn expiries(context: &Context) -> anyhow::Result<Vec<f64>> {
    let mut all = Vec::new();
    for (pod, address) in Scraped::pods(context, "webhook").await? {
        let value = Scraped::of(&address).await?.value(LEAF_EXPIRY);
        all.push(
            value
                .with_context(|| format!("{pod} tells when its certificate ends"))?
                .parse()?,
        );
    }
    Ok(all)
}

#[allow(clippy::cast_precision_loss)] // Seconds since 1970 fit a double for ever.
async fn serves(context: &Context, leaf: &Leaf) -> Outcome {
    let wanted = leaf.validity().not_after.as_second() as f64;
    until_answer(
        "every replica to serve the certificate",
        Duration::from_millis(500),
        || async {
            let expiries = expiries(context).await?;
            let all = expiries.iter().all(|expiry| (expiry - wanted).abs() < 0.5);
            Ok((all && !expiries.is_empty()).then_some(()))
        },
    )
    .await
}

pub(crate) async fn certificates_may_come_from_a_secret_or_cert_manager_and_callers_may_have_to_show_one(
    context: &Context,
) -> Outcome {
    let played = async {
        from_a_secret(context)
            .await
            .context("certificates.mode=secret")?;
        from_cert_manager(context)
            .await
            .context("certificates.mode=cert-manager")?;
        with_definitions_of_somebody_else(context)
            .await
            .context("crds.install=false")?;
        only_for_callers_of_an_authority(context)
            .await
            .context("certificates.clientCA")
    };
    let played = Box::pin(played).await;
    install(context)
        .await
        .context("putting the usual mode back")?;
    forget_cert_manager(context).await?;
    played?;
    comes_to_judge(context).await
}

async fn from_a_secret(context: &Context) -> Outcome {
    let authority = authority()?;
    let first = leaf(&authority, SERVER, hours(100))?;
    store(context, "own-tls", &first, &authority).await?;
    install_with(
        context,
        &[
            "--set",
            "certificates.mode=secret,certificates.secret.name=own-tls",
        ],
    )
    .await?;
    serves(context, &first).await?;
    comes_to_judge(context).await?;

    let before = pods(context).await?;
    let renewed = leaf(&authority, SERVER, hours(200))?;
    store(context, "own-tls", &renewed, &authority).await?;
    serves(context, &renewed)
        .await
        .context("after it was renewed")?;
    judges(context).await?;

    // For another name: told, not served.
    let bad = leaf(&authority, "elsewhere.example", hours(300))?;
    store(context, "own-tls", &bad, &authority).await?;
    for (pod, _) in &before {
        until_answer(
            "the bad certificate to be refused",
            Duration::from_millis(500),
            || async {
                let log = context
                    .kubectl(&["--namespace", OPERATOR_NAMESPACE, "logs", pod])
                    .await?
                    .ok()?;
                Ok(log.contains("certificate refused").then_some(()))
            },
        )
        .await?;
    }
    serves(context, &renewed)
        .await
        .context("after a bad one came")?;
    judges(context).await?;
    ensure!(
        before == pods(context).await?,
        "pods were restarted: {before:?}"
    );
    Ok(())
}

/// cert-manager itself is not here: its definitions are, empty ones; the Secret that it would make is made by hand, and its injector is
/// the loop below.
async fn from_cert_manager(context: &Context) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    for (kind, plural) in [("Certificate", "certificates"), ("Issuer", "issuers")] {
        let name = format!("{plural}.cert-manager.io");
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": "cert-manager.io",
                "names": {"kind": kind, "plural": plural},
                "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        }))?;
        let params = PatchParams::apply("tests").force();
        definitions
            .patch(&name, &params, &Patch::Apply(&definition))
            .await?;
        until(
            definitions.clone(),
            &name,
            "the definition to be served",
            |found| {
                let conditions = found.and_then(|one| one.status.as_ref()?.conditions.as_ref());
                conditions.is_some_and(|all| {
                    all.iter()
                        .any(|one| one.type_ == "Established" && one.status == "True")
                })
            },
        )
        .await?;
    }
    let authority = authority()?;
    let leaf = leaf(&authority, SERVER, hours(400))?;
    store(context, "etcd-operator-webhook-tls", &leaf, &authority).await?;
    let injector = tokio::spawn(inject(
        context.clone(),
        authority.certificate_pem().to_owned(),
    ));
    let installed = install_with(context, &["--set", "certificates.mode=cert-manager"]).await;
    injector.abort();
    installed?;
    serves(context, &leaf).await?;
    comes_to_judge(context).await?;
    converts(context).await
}

/// Puts the authority wherever the annotation asks for it, as cert-manager's injector does.
async fn inject(context: Context, authority: String) -> Outcome {
    const ASKS: &str = "cert-manager.io/inject-ca-from";
    let bundle = ByteString(authority.into_bytes());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(context.client());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(context.client());
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        ticks.tick().await;
        // Somebody else's write in between is met again at the next tick.
        if let Ok(mut found) = mutating.get(CONFIGURATION).await
            && found.annotations().contains_key(ASKS)
        {
            for webhook in found.webhooks.iter_mut().flatten() {
                webhook.client_config.ca_bundle = Some(bundle.clone());
            }
            let _again = mutating
                .replace(CONFIGURATION, &PostParams::default(), &found)
                .await;
        }
        if let Ok(mut found) = validating.get(CONFIGURATION).await
            && found.annotations().contains_key(ASKS)
        {
            for webhook in found.webhooks.iter_mut().flatten() {
                webhook.client_config.ca_bundle = Some(bundle.clone());
            }
            let _again = validating
                .replace(CONFIGURATION, &PostParams::default(), &found)
                .await;
        }
        if let Ok(found) = definitions.get(DEFINITION).await
            && found.annotations().contains_key(ASKS)
        {
            let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
            let _again = definitions
                .patch(DEFINITION, &PatchParams::default(), &Patch::Merge(patch))
                .await;
        }
    }
}

async fn forget_cert_manager(context: &Context) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    for plural in ["certificates", "issuers"] {
        let gone = definitions
            .delete(
                &format!("{plural}.cert-manager.io"),
                &DeleteParams::default(),
            )
            .await;
        match gone {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn converts(context: &Context) -> Outcome {
    context
        .kubectl(&[
            "get",
            "etcdclusters.v1alpha1.etcd.database.coreos.com",
            "--output=name",
        ])
        .await?
        .ok()?;
    Ok(())
}

/// The definitions are not the release's, but they convert here: their bundle is still kept right.
async fn with_definitions_of_somebody_else(context: &Context) -> Outcome {
    install_with(context, &["--set", "crds.install=false"]).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    let bundle = |found: &CustomResourceDefinition| {
        let conversion = found.spec.conversion.as_ref()?;
        let client = conversion.webhook.as_ref()?.client_config.as_ref()?;
        client.ca_bundle.clone()
    };
    let before = until(
        definitions.clone(),
        DEFINITION,
        "the authority in the definition",
        |found| found.is_some_and(|found| bundle(found).is_some()),
    )
    .await?
    .and_then(|found| bundle(&found));
    let none = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": null}}}}});
    definitions
        .patch(DEFINITION, &PatchParams::default(), &Patch::Merge(none))
        .await?;
    until(
        definitions,
        DEFINITION,
        "the authority to be put back",
        |found| found.is_some_and(|found| bundle(found) == before),
    )
    .await?;
    comes_to_judge(context).await
}

/// The local API server shows webhooks a certificate of the cluster's authority.
async fn only_for_callers_of_an_authority(context: &Context) -> Outcome {
    let configs: Api<ConfigMap> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let root = configs
        .get("kube-root-ca.crt")
        .await?
        .data
        .unwrap_or_default();
    let root = root
        .get("ca.crt")
        .context("the cluster publishes its authority")?;
    let publish = async |pem: &str| {
        let map: ConfigMap = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "callers"}, "data": {"ca.crt": pem},
        }))?;
        let params = PatchParams::apply("tests").force();
        configs
            .patch("callers", &params, &Patch::Apply(&map))
            .await?;
        anyhow::Ok(())
    };
    publish(authority()?.certificate_pem()).await?;
    install_with(
        context,
        &["--set", "certificates.clientCA.configMap=callers"],
    )
    .await?;
    // Connections to the pods of before are used on until these have drained.
    until_answer(
        "callers of a strange authority to be turned away",
        Duration::from_millis(500),
        || async {
            let refusal = judges(context).await.err();
            let words = refusal
                .map(|error| format!("{error:#}"))
                .unwrap_or_default();
            Ok(words.contains("failed calling webhook").then_some(()))
        },
    )
    .await?;
    let before = pods(context).await?;
    publish(root).await?;
    nudge(context).await?;
    until_answer(
        "the API server to be heard",
        Duration::from_millis(500),
        || async { judges(context).await.map(Some) },
    )
    .await?;
    ensure!(
        before == pods(context).await?,
        "pods were restarted: {before:?}"
    );
    Ok(())
}

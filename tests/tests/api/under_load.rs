//! What the webhook goes through in service, while fifty creations a second go through it: none may be judged otherwise than in peace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use etcd_operator_certs::certificates_in;
use etcd_operator_tests::{
    Admissions, Context, OPERATOR_NAMESPACE, Outcome, RELEASE, Scraped, install, install_with,
    until, until_all, until_answer,
};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{Pod, Secret},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt, api::DeleteParams, runtime::watcher};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const WEBHOOK: &str = "etcd-operator-webhook";
const AUTHORITY_SECRET: &str = "etcd-operator-webhook-ca";
const CONFIGURATION: &str = "etcd-operator.etcd-operator";
const DEFINITION: &str = "etcdclusters.etcd.database.coreos.com";
const SERVER: &str = "etcd-operator-webhook.etcd-operator.svc";
const PORT: u16 = 10250;
/// How often replicas are asked which certificate they have.
const LOOK: Duration = Duration::from_millis(250);
/// A machine that is busy starting pods may keep an answer waiting; that is no failed admission.
const PATIENT: &str = "webhook.timeoutSeconds=20";
/// A leaf is replaced 8 to 20 s after it was made, an authority 16 to 40 s; both are good for long after that.
const QUICK: &str = "webhook.extraArgs={--leaf-lifetime=1m,--authority-lifetime=2m,--announce-authority-for=10s,--retain-authority-for=15s}";

pub(crate) async fn a_rolling_restart_fails_no_admission(context: &Context) -> Outcome {
    install_with(context, &["--set", PATIENT]).await?;
    let before = names(&pods_are(context, "to be two", |pods| pods.len() == 2).await?);
    let load = Admissions::begin(context).await?;
    let restarted = restart(context, &before).await;
    let tally = load.end().await?;
    println!("  a rolling restart: {tally}");
    install(context).await.context("putting the chart back")?;
    restarted?;
    tally.is_flawless()
}

/// Returns when the last pod of before is gone: while it drains it may still fail somebody.
async fn restart(context: &Context, before: &BTreeSet<String>) -> Outcome {
    let deployment = format!("deployment/{WEBHOOK}");
    for verb in ["restart", "status"] {
        context
            .kubectl(&[
                "--namespace",
                OPERATOR_NAMESPACE,
                "rollout",
                verb,
                &deployment,
            ])
            .await?
            .ok()?;
    }
    pods_are(context, "to be two new ones", |pods| {
        pods.len() == 2 && names(pods).is_disjoint(before)
    })
    .await?;
    Ok(())
}

async fn pods_are(
    context: &Context,
    what: &str,
    condition: impl Fn(&[Pod]) -> bool,
) -> anyhow::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let of_webhook = watcher::Config::default().labels(&format!(
        "app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=webhook"
    ));
    until_all(
        pods,
        of_webhook,
        &format!("the webhook's pods {what}"),
        condition,
    )
    .await
}

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

pub(crate) async fn new_certificates_and_a_new_authority_fail_no_admission(
    context: &Context,
) -> Outcome {
    let played = async {
        install_with(context, &["--set", PATIENT, "--set", QUICK]).await?;
        new_authority(context).await?;
        let load = Admissions::begin(context).await?;
        let rotated = rotation(context).await;
        let tally = load.end().await?;
        println!("  new leaves and a new authority: {tally}");
        rotated?;
        tally.is_flawless()
    };
    let played = Box::pin(played).await;
    install(context).await.context("putting the chart back")?;
    new_authority(context)
        .await
        .context("an authority that lasts")?;
    played
}

/// Has the replicas of the release as it is now make the authority anew, of their own lifetime, and waits until both serve under it.
async fn new_authority(context: &Context) -> Outcome {
    pods_are(context, "to be two", |pods| pods.len() == 2).await?;
    let secrets: Api<Secret> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let old = key(&secrets.get(AUTHORITY_SECRET).await?, "ca.crt")?;
    secrets
        .delete(AUTHORITY_SECRET, &DeleteParams::default())
        .await?;
    let made = until(secrets, AUTHORITY_SECRET, "a new authority", |found| {
        found.is_some_and(|secret| key(secret, "ca.crt").is_ok_and(|new| new != old))
    })
    .await?
    .context("the Secret is there")?;
    serve_under(context, &key(&made, "ca.crt")?).await
}

/// A leaf renewed, then one authority following another: announced, signing, alone. Each seen where it shows.
async fn rotation(context: &Context) -> Outcome {
    every_replica_renews_its_leaf(context).await?;

    let secrets: Api<Secret> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let announced = until(secrets, AUTHORITY_SECRET, "the next authority", |found| {
        found.is_some_and(|secret| key(secret, "next.crt").is_ok())
    })
    .await?
    .context("the Secret is there")?;
    let (old, new) = (key(&announced, "ca.crt")?, key(&announced, "next.crt")?);
    ensure!(old != new, "the next authority is the current one");
    published(context, "both authorities", |bundle| {
        bundle.contains(&old) && bundle.contains(&new)
    })
    .await?;
    serve_under(context, &new).await?;
    published(context, "the new authority without the old", |bundle| {
        bundle.contains(&new) && !bundle.contains(&old)
    })
    .await
}

/// The first certificate under this key.
fn key(secret: &Secret, key: &str) -> anyhow::Result<Vec<u8>> {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    let pem = data.with_context(|| format!("the Secret has no {key}"))?;
    let all = certificates_in(&pem.0)?;
    Ok(all.first().context("it is empty")?.to_vec())
}

fn bundle(ca_bundle: Option<&ByteString>) -> Vec<Vec<u8>> {
    ca_bundle
        .and_then(|bundle| certificates_in(&bundle.0).ok())
        .map(|all| all.iter().map(|one| one.to_vec()).collect())
        .unwrap_or_default()
}

/// Waits until this holds of every bundle by which the API server knows the webhook.
async fn published(
    context: &Context,
    what: &str,
    holds: impl Fn(&[Vec<u8>]) -> bool + Copy,
) -> Outcome {
    let what = format!("{what} to be published");
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(context.client());
    until(mutating, CONFIGURATION, &what, |found| {
        let webhooks = found.and_then(|found| found.webhooks.as_ref());
        webhooks.is_some_and(|all| {
            all.iter()
                .all(|one| holds(&bundle(one.client_config.ca_bundle.as_ref())))
        })
    })
    .await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(context.client());
    until(validating, CONFIGURATION, &what, |found| {
        let webhooks = found.and_then(|found| found.webhooks.as_ref());
        webhooks.is_some_and(|all| {
            all.iter()
                .all(|one| holds(&bundle(one.client_config.ca_bundle.as_ref())))
        })
    })
    .await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client());
    until(definitions, DEFINITION, &what, |found| {
        let conversion = found.and_then(|found| found.spec.conversion.as_ref()?.webhook.as_ref());
        let client = conversion.and_then(|conversion| conversion.client_config.as_ref());
        client.is_some_and(|client| holds(&bundle(client.ca_bundle.as_ref())))
    })
    .await?;
    Ok(())
}

/// (pod, leaf) of every replica, each seen in a handshake that trusts this authority and no other.
async fn leaves(
    context: &Context,
    authority: &[u8],
) -> anyhow::Result<BTreeMap<String, CertificateDer<'static>>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.to_vec().into())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trusting = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(trusting));
    let mut all = BTreeMap::new();
    for (pod, address) in Scraped::pods(context, "webhook").await? {
        let stream = TcpStream::connect((address, PORT)).await?;
        let stream = connector
            .connect(ServerName::try_from(SERVER)?, stream)
            .await
            .with_context(|| format!("a handshake with {pod}"))?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let leaf = chain.first().context("a server shows its certificate")?;
        all.insert(pod, leaf.clone().into_owned());
    }
    ensure!(all.len() == 2, "not two replicas: {:?}", all.keys());
    Ok(all)
}

async fn every_replica_renews_its_leaf(context: &Context) -> Outcome {
    let secrets: Api<Secret> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
    let first = Mutex::new(None);
    until_answer("every replica to renew its leaf", LOOK, || async {
        let authority = key(&secrets.get(AUTHORITY_SECRET).await?, "ca.crt")?;
        let now = leaves(context, &authority).await?;
        let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
        match &*first {
            Some((of, before)) if *of == authority => {
                let before: &BTreeMap<_, _> = before;
                let renewed = now.iter().all(|(pod, leaf)| before.get(pod) != Some(leaf));
                Ok(renewed.then_some(()))
            }
            // A leaf of another authority is new for that reason, which is not the one looked for.
            _ => {
                *first = Some((authority, now));
                Ok(None)
            }
        }
    })
    .await
}

async fn serve_under(context: &Context, authority: &[u8]) -> Outcome {
    until_answer(
        "every replica to serve under the authority",
        LOOK,
        || async { leaves(context, authority).await.map(|_leaves| Some(())) },
    )
    .await
}

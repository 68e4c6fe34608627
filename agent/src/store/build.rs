//! Opens each kind of store with what its Secret holds.

use std::{sync::Arc, time::Duration};

use etcd_operator_api::{
    orders::{FailureReason, Store, mounts},
    v1beta2::{AbsStore, GcsStore, S3Store},
};
use object_store::{
    BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, local::LocalFileSystem,
};

use super::{Opened, aws_files::setting};
use crate::{failure::Failure, places::Places};

/// How long a store may take to accept a connection, and to take or give one part.
const CONNECT: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_mins(2);

/// A folder of a volume.
pub(super) fn folder(places: &Places, path: &str, patience: Duration) -> Result<Opened, Failure> {
    let root = places.at(mounts::VOLUME);
    let store = LocalFileSystem::new_with_prefix(&root).map_err(|error| {
        Failure::new(
            FailureReason::BucketNotFound,
            format!("the volume at {} cannot be used: {error}", root.display()),
        )
    })?;
    Ok(Opened {
        store: Arc::new(store.with_fsync(true)),
        place: "the volume".to_owned(),
        base: path.to_owned(),
        patience,
    })
}

pub(super) fn cloud(
    store: &Store,
    bucket: &str,
    base: &str,
    places: &Places,
    patience: Duration,
) -> Result<Opened, Failure> {
    let secrets = Secrets {
        places,
        name: store.credentials(),
    };
    let client = client_options(store, places)?;
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 100,
        retry_timeout: patience,
    };
    let (built, kind, endpoint) = match store {
        Store::S3(s3) => (
            self::s3(s3, bucket, &secrets, client, retry)?,
            "S3",
            &s3.endpoint,
        ),
        Store::GCS(gcs) => (
            self::gcs(gcs, bucket, &secrets, client, retry)?,
            "GCS",
            &gcs.endpoint,
        ),
        Store::ABS(abs) => (
            self::abs(abs, bucket, &secrets, client, retry)?,
            "Azure",
            &abs.endpoint,
        ),
        Store::PVC(_) => return folder(places, base, patience),
    };
    let at = endpoint.as_ref().map(|endpoint| format!(" at {endpoint}"));
    Ok(Opened {
        store: built,
        place: format!("bucket \"{bucket}\" of {kind}{}", at.unwrap_or_default()),
        base: base.to_owned(),
        patience,
    })
}

/// The Secret with credentials, mounted.
struct Secrets<'a> {
    places: &'a Places,
    name: Option<&'a str>,
}

impl Secrets<'_> {
    fn optional(&self, key: &str) -> Result<Option<String>, Failure> {
        self.places.secret(mounts::CREDENTIALS, key)
    }

    fn required(&self, key: &str) -> Result<String, Failure> {
        self.optional(key)?
            .ok_or_else(|| self.missing(&format!("the key `{key}`")))
    }

    fn missing(&self, what: &str) -> Failure {
        Failure::new(
            FailureReason::CredentialsMissing,
            format!(
                "the Secret \"{}\" lacks {what}",
                self.name.unwrap_or_default()
            ),
        )
    }
}

/// The public authorities are part of the program: the images of etcd do not all have them. One that is given is trusted too.
fn client_options(store: &Store, places: &Places) -> Result<ClientOptions, Failure> {
    let refused =
        |error: object_store::Error| Failure::internal(format!("a certificate authority: {error}"));
    let mut options = ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_timeout(REQUEST)
        .with_allow_http(true)
        .with_no_system_certificates(true);
    for root in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        options = options.with_root_certificate(Certificate::from_der(root).map_err(refused)?);
    }
    let Some(secret) = store.ca() else {
        return Ok(options);
    };
    let wrong = |what: &str| {
        Failure::new(
            FailureReason::CredentialsMissing,
            format!("the Secret \"{secret}\" {what}"),
        )
    };
    let pem = places
        .secret(mounts::STORE_CA, "ca.crt")?
        .ok_or_else(|| wrong("lacks the key `ca.crt`"))?;
    let bundle = Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default();
    if bundle.is_empty() {
        return Err(wrong("has no certificate (PEM) in `ca.crt`"));
    }
    Ok(bundle
        .into_iter()
        .fold(options, ClientOptions::with_root_certificate))
}

fn refused(error: &object_store::Error) -> Failure {
    Failure::new(
        FailureReason::CredentialsInvalid,
        format!("the store's settings cannot be used: {error}"),
    )
}

fn s3(
    store: &S3Store,
    bucket: &str,
    secrets: &Secrets<'_>,
    client: ClientOptions,
    retry: RetryConfig,
) -> Result<Arc<dyn ObjectStore>, Failure> {
    let mut builder = AmazonS3Builder::from_env();
    let mut region = store.region.clone();
    if secrets.name.is_some() {
        let file = secrets.required("credentials")?;
        let needed = |name: &str| {
            let missing =
                || secrets.missing(&format!("`{name}` under `[default]` in `credentials`"));
            setting(&file, name).map(str::to_owned).ok_or_else(missing)
        };
        builder = AmazonS3Builder::new()
            .with_access_key_id(needed("aws_access_key_id")?)
            .with_secret_access_key(needed("aws_secret_access_key")?);
        if let Some(token) = setting(&file, "aws_session_token") {
            builder = builder.with_token(token);
        }
        if region.is_none() {
            let config = secrets.optional("config")?.unwrap_or_default();
            region = setting(&config, "region").map(str::to_owned);
        }
    }
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    let path_style = store.force_path_style == Some(true);
    builder = builder
        .with_bucket_name(bucket)
        .with_virtual_hosted_style_request(!path_style)
        .with_client_options(client)
        .with_retry(retry);
    // TLS keeps what is sent from being changed on its way, so it is not hashed once more to be signed; a whole backup is, by its manifest.
    let plain = store
        .endpoint
        .as_deref()
        .is_some_and(|endpoint| endpoint.starts_with("http://"));
    builder = builder.with_unsigned_payload(!plain);
    if let Some(endpoint) = &store.endpoint {
        builder = builder.with_endpoint(if path_style {
            endpoint.clone()
        } else {
            hosted(endpoint, bucket)
        });
    }
    let built = builder.build().map_err(|error| refused(&error))?;
    Ok(Arc::new(built))
}

/// The bucket as the first label of the host.
fn hosted(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) => format!("{scheme}://{bucket}.{host}"),
        None => format!("https://{bucket}.{endpoint}"),
    }
}

fn gcs(
    store: &GcsStore,
    bucket: &str,
    secrets: &Secrets<'_>,
    client: ClientOptions,
    retry: RetryConfig,
) -> Result<Arc<dyn ObjectStore>, Failure> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(bucket)
        .with_client_options(client)
        .with_retry(retry);
    if secrets.name.is_some() {
        builder = match (
            secrets.optional("access-token")?,
            secrets.optional("credentials.json")?,
        ) {
            (Some(token), _) => builder.with_bearer_token(token.trim()),
            (None, Some(key)) => builder.with_service_account_key(key),
            (None, None) => {
                return Err(secrets.missing("the key `access-token` or `credentials.json`"));
            }
        };
    }
    if let Some(endpoint) = &store.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let built = builder.build().map_err(|error| refused(&error))?;
    Ok(Arc::new(built))
}

fn abs(
    store: &AbsStore,
    container: &str,
    secrets: &Secrets<'_>,
    client: ClientOptions,
    retry: RetryConfig,
) -> Result<Arc<dyn ObjectStore>, Failure> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    let mut account = store.storage_account.clone();
    let mut cloud = None;
    if secrets.name.is_some() {
        let named = secrets.required("storage-account")?;
        builder =
            MicrosoftAzureBuilder::new().with_access_key(secrets.required("storage-key")?.trim());
        account = Some(named.trim().to_owned());
        cloud = secrets.optional("cloud")?;
    }
    let account = account.filter(|account| !account.is_empty()).ok_or_else(|| {
        Failure::new(
            FailureReason::CredentialsMissing,
            "no storage account is named: set `abs.storageAccount`, or `abs.absSecret` with the key `storage-account`",
        )
    })?;
    let endpoint = match (&store.endpoint, cloud.as_deref().map(str::trim)) {
        (Some(endpoint), _) => Some(endpoint.clone()),
        (None, None | Some("")) => None,
        (None, Some(cloud)) => Some(format!("https://{account}.{}", azure_cloud(cloud)?)),
    };
    builder = builder
        .with_account(account)
        .with_container_name(container)
        .with_client_options(client)
        .with_retry(retry);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let built = builder.build().map_err(|error| refused(&error))?;
    Ok(Arc::new(built))
}

/// Where the clouds that `cloud` may name keep blobs.
fn azure_cloud(name: &str) -> Result<&'static str, Failure> {
    match name {
        "AzurePublicCloud" | "AzureCloud" => Ok("blob.core.windows.net"),
        "AzureChinaCloud" => Ok("blob.core.chinacloudapi.cn"),
        "AzureGermanCloud" => Ok("blob.core.cloudapi.de"),
        "AzureUSGovernmentCloud" | "AzureUSGovernment" => Ok("blob.core.usgovcloudapi.net"),
        other => Err(Failure::new(
            FailureReason::CredentialsInvalid,
            format!(
                "`cloud` is \"{other}\": it must be AzurePublicCloud, AzureChinaCloud, AzureGermanCloud or AzureUSGovernmentCloud"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_goes_before_the_host_with_its_port() {
        assert_eq!(
            hosted("https://s3.example.com:9000", "b"),
            "https://b.s3.example.com:9000"
        );
        assert_eq!(hosted("s3.example.com", "b"), "https://b.s3.example.com");
    }

    #[test]
    fn an_unknown_azure_cloud_is_refused_with_what_would_be_accepted() {
        assert_eq!(
            azure_cloud("AzureChinaCloud").unwrap(),
            "blob.core.chinacloudapi.cn"
        );
        let failure = azure_cloud("Mars").unwrap_err();
        assert!(
            failure.message.contains("AzureUSGovernmentCloud"),
            "{failure}"
        );
    }
}

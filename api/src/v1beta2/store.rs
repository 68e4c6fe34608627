//! Where backups are kept: the stores of EtcdBackup and EtcdRestore, with CoreOS's names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kinds of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageType {
    S3,
    GCS,
    ABS,
    PVC,
}

impl StorageType {
    /// The field that describes such a store.
    pub const fn field(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::GCS => "gcs",
            Self::ABS => "abs",
            Self::PVC => "pvc",
        }
    }
}

/// A bucket of S3, or of a store that speaks its language.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Store {
    /// `<bucket>/<path to the backup>`, such as `mybucket/etcd.backup`. Backups that repeat add revision and time to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,

    /// Secret with AWS's files `credentials` and, where needed, `config`; their profile `default` is used. Default: none, and
    /// the Pod's workload identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws_secret: Option<String>,

    /// Where the store listens, such as `https://s3.example.com`. Default: AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,

    /// Put the bucket into the path instead of the host name, for stores without a host name per bucket. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_path_style: Option<bool>,

    /// The bucket's region, such as `eu-central-1`. Default: the one in the Secret's `config`, else `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,

    /// Secret whose `ca.crt` holds the authority of the endpoint's certificate. Default: the public authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<String>,
}

/// A bucket of Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsStore {
    /// `<bucket>/<path to the backup>`, such as `mybucket/etcd.backup`. Backups that repeat add revision and time to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,

    /// Secret with either `access-token` or `credentials.json`. Default: none, and the Pod's workload identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcp_secret: Option<String>,

    /// Where the store listens, such as `https://gcs.example.com`. Default: Google.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,

    /// Secret whose `ca.crt` holds the authority of the endpoint's certificate. Default: the public authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<String>,
}

/// A container of Azure Blob Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbsStore {
    /// `<container>/<path to the backup>`, such as `mycontainer/etcd.backup`. Backups that repeat add revision and time to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,

    /// Secret with `storage-account`, `storage-key` and, outside of Azure's public cloud, `cloud`. Default: none, and the
    /// Pod's workload identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs_secret: Option<String>,

    /// The storage account, where no `absSecret` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_account: Option<String>,

    /// Where the store listens, such as `https://blobs.example.com`. Default: Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,

    /// Secret whose `ca.crt` holds the authority of the endpoint's certificate. Default: the public authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<String>,
}

/// A volume in the Kubernetes cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcStore {
    /// The PersistentVolumeClaim, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,

    /// Path to the backup in the volume, such as `etcd/etcd.backup`. Backups that repeat add revision and time to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

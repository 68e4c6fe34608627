//! `ValidatedCluster`: a cluster as it is meant, with every default applied and every rule held. The only input of the
//! controller's builders: what cannot be built cannot be written down here.

mod backup;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, PersistentVolumeClaimSpec, PodSecurityContext,
    ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::defaults::default_cluster;
use crate::policy::Policy;
use crate::size::ClusterSize;
use crate::v1beta2::{Accepted, ClientServiceType, EtcdCluster, LogLevel, MetricsLevel, Reclaim};
use crate::validation::{self, Violation};
use crate::versions::Version;

pub use backup::{
    Bucket, Provider, Recurrence, Retention, Source, Store, Subject, Target, ValidatedBackup,
    ValidatedRestore,
};

/// A cluster that holds every rule.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedCluster {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    pub size: ClusterSize,
    pub version: Version,
    /// `<repository>:v<version>`.
    pub image: String,
    pub repository: String,
    pub paused: bool,
    pub storage: Storage,
    pub peer_tls: PeerTls,
    pub client_tls: ClientTls,
    pub options: Options,
    /// Flags without a field of their own, without dashes; never one the operator owns.
    pub extra_args: BTreeMap<String, String>,
    /// Feature gates the user asked for; never one the operator sets itself.
    pub feature_gates: BTreeMap<String, bool>,
    pub pod: PodSettings,
    pub client_service: ClientService,
    pub unreachable_after: Duration,
    pub maintenance: Maintenance,
    /// The backups it relies on.
    pub backup: Option<Reliance>,
    /// `cluster.local`, where members are to be addressed with it.
    pub cluster_domain: Option<String>,
    pub deletion_protection: bool,
    /// What of it may not change freely once it was acted on.
    pub accepted: Accepted,
}

/// Where a member keeps its data.
#[derive(Clone, Debug, PartialEq)]
pub enum Storage {
    /// In the Pod's scratch space.
    Ephemeral { size_limit: Option<Quantity> },
    /// In a claim of its own.
    Claim(Box<ClaimSettings>),
}

/// The claim of each member.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimSettings {
    /// Ready to be put into a PersistentVolumeClaim.
    pub spec: PersistentVolumeClaimSpec,
    pub size: Quantity,
    pub size_bytes: u64,
    /// None: the cluster's default class.
    pub class: Option<String>,
    pub reclaim: Reclaim,
}

/// The keys under which a Secret holds a certificate, its key and the authority that signed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretKeys {
    pub certificate: &'static str,
    pub key: &'static str,
    pub authority: &'static str,
}

impl SecretKeys {
    /// Kubernetes' own layout.
    pub const STANDARD: Self = Self {
        certificate: "tls.crt",
        key: "tls.key",
        authority: "ca.crt",
    };
    /// CoreOS's `TLS.static.member.peerSecret`.
    pub const COREOS_PEER: Self = Self {
        certificate: "peer.crt",
        key: "peer.key",
        authority: "peer-ca.crt",
    };
    /// CoreOS's `TLS.static.member.serverSecret`.
    pub const COREOS_SERVER: Self = Self {
        certificate: "server.crt",
        key: "server.key",
        authority: "server-ca.crt",
    };
    /// CoreOS's `TLS.static.operatorSecret`.
    pub const COREOS_OPERATOR: Self = Self {
        certificate: "etcd-client.crt",
        key: "etcd-client.key",
        authority: "etcd-client-ca.crt",
    };
}

/// A Secret of the user's with a certificate in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSecret {
    pub name: String,
    pub keys: SecretKeys,
}

/// TLS between members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerTls {
    Off,
    /// The operator's own authority, a leaf per member.
    Auto,
    /// The user's certificate, one for all members.
    Secret(CertificateSecret),
}

impl PeerTls {
    /// `https` or `http`.
    pub const fn scheme(&self) -> &'static str {
        match self {
            Self::Off => "http",
            Self::Auto | Self::Secret(_) => "https",
        }
    }
}

/// TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientTls {
    Off,
    /// The operator's own authority.
    Auto {
        client_auth: bool,
    },
    /// The user's certificate, one for all members.
    Secret {
        server: CertificateSecret,
        /// What the operator itself shows to etcd. In `security` mode the server's own certificate serves.
        operator: CertificateSecret,
        client_auth: bool,
    },
}

impl ClientTls {
    /// `https` or `http`.
    pub const fn scheme(&self) -> &'static str {
        match self {
            Self::Off => "http",
            Self::Auto { .. } | Self::Secret { .. } => "https",
        }
    }

    /// Whether clients must show a certificate.
    pub const fn client_auth(&self) -> bool {
        match self {
            Self::Off => false,
            Self::Auto { client_auth } | Self::Secret { client_auth, .. } => *client_auth,
        }
    }
}

/// Settings of the etcd process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub quota_bytes: u64,
    pub heartbeat_ms: u32,
    pub election_ms: u32,
    pub auto_compaction: AutoCompaction,
    /// None: etcd's default.
    pub snapshot_count: Option<u64>,
    pub max_request_bytes: Option<u64>,
    pub max_txn_ops: Option<u64>,
    pub log_level: Option<LogLevel>,
    pub metrics: Option<MetricsLevel>,
}

/// What the operator does to the database by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// Files of which little is in use are made smaller.
    pub defragment: bool,
    /// A used-up quota is made room in, at the price of all old revisions.
    pub heal_no_space: bool,
}

/// The backups a cluster relies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reliance {
    /// The EtcdBackup, in the same namespace.
    pub name: String,
    /// A backup is taken before what cannot be taken back.
    pub before_risk: bool,
    /// How old the newest good one may be.
    pub max_age: Duration,
}

/// When old revisions are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    Off,
    /// What is older goes. Whole hours for etcd before 3.3.
    Periodic(Duration),
    /// All but the last so many go.
    Revision(u64),
}

/// How a member's Pod is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSettings {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Affinity>,
    /// No two members on one node.
    pub anti_affinity: bool,
    pub resources: Option<ResourceRequirements>,
    pub tolerations: Vec<Toleration>,
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// What of `etcdEnv` is not read into `options`: for the etcd container.
    pub environment: Vec<EnvVar>,
    pub security_context: Option<PodSecurityContext>,
    pub priority_class_name: Option<String>,
    pub service_account_name: Option<String>,
    pub image_pull_secrets: Vec<LocalObjectReference>,
    pub termination_grace_period: Duration,
}

/// The Service clients use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientService {
    pub type_: ClientServiceType,
    pub annotations: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
}

impl ValidatedCluster {
    /// Applies the defaults in memory, then every rule that speaks of one object alone, then those of what may not change since
    /// it was last acted on (`status.accepted`). Whether the step from what runs to this version is legal is asked of
    /// `judge_step` with what etcd says, not with what a status said.
    pub fn new(cluster: &EtcdCluster, policy: &Policy) -> Result<Self, Vec<Violation>> {
        let mut cluster = cluster.clone();
        default_cluster(&mut cluster, policy);
        validation::read_cluster(&cluster, policy)
    }
}

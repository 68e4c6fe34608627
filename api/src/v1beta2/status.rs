//! What the controller reports.
//!
//! Read leniently: a status written by another release of the operator (or by CoreOS's) may hold words this one does not
//! know, and one such object must not break the watch of all others.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::Seed;
use super::accepted::Accepted;

/// Types of the conditions in `status.conditions`.
pub mod condition {
    /// What the spec asks for is what runs.
    pub const READY: &str = "Ready";
    /// A quorum serves linearizable reads now.
    pub const AVAILABLE: &str = "Available";
    /// kstatus: work is under way.
    pub const RECONCILING: &str = "Reconciling";
    /// kstatus: a person must act.
    pub const STALLED: &str = "Stalled";
    /// Members are being added or removed.
    pub const SCALING: &str = "Scaling";
    /// Members are being moved to another version.
    pub const UPGRADING: &str = "Upgrading";
    /// A member is being brought back or replaced.
    pub const RECOVERING: &str = "Recovering";
    /// The last verified backup is not too old.
    pub const BACKUP_HEALTHY: &str = "BackupHealthy";
}

/// On an EtcdCluster that has lost its quorum for good: it is to go on from the best member left. The value is its cluster ID, as
/// `status.clusterID` has it.
pub const RECOVER_FROM_SURVIVOR: &str = "etcd.database.coreos.com/recover-from-survivor";

/// What the operator sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// The generation of the spec this status speaks of; -1 before the operator has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`, `Available`, `Reconciling`, `Stalled`, `Scaling`, `Upgrading`, `Recovering`, `BackupHealthy`.
    #[serde(
        default,
        deserialize_with = "well_formed_only",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,

    /// `Creating`, `Running` or `Failed`.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub phase: Option<Phase>,

    /// The state of the cluster in one word.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub summary: Option<Summary>,

    /// How many members etcd itself lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,

    /// How many members are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_members: Option<i32>,

    /// Members ready of members asked for, such as `2/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,

    /// The version that runs; while members differ, the one they come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,

    /// The version the members are being moved to; absent while none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,

    /// The versions to go through, one after the other, until one runs that etcd's maintainers still patch; absent where one does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upgrade_path: Vec<String>,

    /// etcd's cluster ID, in hexadecimal as etcdctl prints it.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,

    /// The name of the member that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,

    /// The Service clients use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,

    /// The port clients use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_port: Option<i32>,

    /// Where clients connect, such as `http://c-client.n.svc:2379`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_endpoint: Option<String>,

    /// Size of the largest member's database file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size: Option<Quantity>,

    /// The largest volume that any member's claim asks for: `storage.size` may be put back to it, where volumes did not grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<Quantity>,

    /// Label selector of the members' Pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The members by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<MemberNames>,

    /// The members one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub member_status: Vec<MemberStatus>,

    /// When the operator last dropped old revisions, because the quota was used up.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub compacted: Option<Time>,

    /// The newest minor that is known to be able to read every member's log; absent while that was not made sure of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_readable_by: Option<String>,

    /// The one bootstrap of this cluster, recorded before the first etcd starts and never changed: it is what keeps a second
    /// bootstrap from happening.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapRecord>,

    /// What the operator last acted on, of that which may not change freely afterwards: volumes and TLS modes. A spec that breaks with
    /// it is held, and putting it back is always allowed.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub accepted: Option<Accepted>,

    /// The recovery from one surviving member, recorded before its first step: it is done once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<SurvivorRecovery>,

    /// `CoreOS` where its operator made the cluster and this one has taken it over, or is about to; absent where it was made by this one.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub origin: Option<Origin>,
}

/// Whose cluster it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    CoreOS,
}

impl EtcdClusterStatus {
    /// CoreOS's operator made this cluster. Its status has a phase and nothing of what this operator writes beside one.
    pub fn is_of_coreos(&self) -> bool {
        let untouched = self.phase.is_some()
            && self.summary.is_none()
            && self.bootstrap.is_none()
            && self.cluster_id.is_none();
        untouched || self.origin == Some(Origin::CoreOS)
    }

    /// Where the data are may still be chosen: CoreOS's operator made the cluster, and what it left in its pods' scratch space has
    /// not all been moved.
    pub fn may_choose_storage(&self) -> bool {
        self.is_of_coreos() && self.accepted.as_ref().is_none_or(Accepted::is_ephemeral)
    }
}

/// CoreOS's phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    Creating,
    Running,
    Failed,
}

/// The state of the cluster in one word, for `kubectl get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Summary {
    /// The first members are being started.
    Creating,
    /// All is as the spec asks.
    Healthy,
    /// A quorum serves, but not every member is healthy.
    Degraded,
    /// No quorum: no linearizable read, no write.
    Unavailable,
    /// Members are being added or removed.
    Scaling,
    /// Members are being moved to another version.
    Upgrading,
    /// Members are being restarted with another configuration.
    Updating,
    /// A member is being brought back or replaced.
    Recovering,
    /// The data are being put back from a backup.
    Restoring,
    /// `spec.paused`: no step is taken.
    Paused,
    /// A person must act.
    Stalled,
    /// The resource is being deleted.
    Deleting,
}

/// The members by name, as CoreOS listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberNames {
    /// Members that serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ready: Vec<String>,

    /// Members that do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unready: Vec<String>,
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Its name, which is its Pod's and its claim's.
    pub name: String,

    /// etcd's member ID, in hexadecimal as etcdctl prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,

    /// `Leader`, `Follower` or `Learner`; absent while unknown.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub role: Option<MemberRole>,

    /// The etcd version it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Whether it serves.
    #[serde(default)]
    pub healthy: bool,

    /// Size of its database file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size: Option<Quantity>,

    /// What of it is in use; the rest is freed by a defragmentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_in_use: Option<Quantity>,

    /// Its raft index when last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_index: Option<i64>,

    /// The node it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,

    /// Since when it is as it is (healthy, or not).
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub since: Option<Time>,

    /// When the operator last defragmented it.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub defragmented: Option<Time>,
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberRole {
    Leader,
    Follower,
    Learner,
}

/// The one bootstrap of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapRecord {
    /// The `initial-cluster-token` of this incarnation.
    pub token: String,

    /// The first members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<BootstrapMember>,

    /// The snapshot they start from; absent where they start empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Seed>,

    /// Who the members were before a restore in place; their volumes are kept until it has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerMembers>,
}

/// The members of a cluster before a restore in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerMembers {
    /// Their `initial-cluster-token`.
    pub token: String,

    /// etcd's cluster ID as it was, in hexadecimal.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,

    /// The members whose volumes are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

/// The recovery of a cluster that has lost its majority, from one member that is left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurvivorRecovery {
    /// etcd's cluster ID that the request named, in hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,

    /// The member that goes on alone.
    pub survivor: String,

    /// The UID of its claim.
    #[serde(rename = "claimUID", default, skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,

    /// The raft index it had committed when it was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_index: Option<i64>,

    /// Members that are left as well and hold less; their volumes are kept until the cluster is whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,

    /// When it was chosen.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub started: Option<Time>,

    /// When etcd had made it the only member.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub alone: Option<Time>,

    /// When the cluster was whole again.
    #[serde(
        default,
        deserialize_with = "known_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub finished: Option<Time>,
}

/// One of the first members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapMember {
    /// Its name.
    pub name: String,

    /// The UID of the claim it was given: another claim of the same name is not its data.
    #[serde(rename = "claimUID", default, skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
}

pub(super) fn known_or_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

/// CoreOS wrote conditions without a transition time; they are of no use to us and are dropped.
pub(super) fn well_formed_only<'de, D>(deserializer: D) -> Result<Vec<Condition>, D::Error>
where
    D: Deserializer<'de>,
{
    let values = Option::<Vec<serde_json::Value>>::deserialize(deserializer)?;
    Ok(values
        .unwrap_or_default()
        .into_iter()
        .filter_map(|value| serde_json::from_value(value).ok())
        .collect())
}

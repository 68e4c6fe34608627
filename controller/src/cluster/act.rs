//! Takes the one step of a plan.
//!
//! Every write that takes something away names exactly what it means (a UID, a member ID), so that acting on an old look
//! at the cluster fails instead of hitting something newer.

mod adopt;
mod alone;
mod asks;
mod writes;

use etcd_operator_api::{
    ValidatedCluster,
    v1beta2::{BootstrapMember, BootstrapRecord, EtcdCluster},
};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
    core::response::StatusCause,
};
use serde_json::json;

use super::{
    Context,
    certificates::{self, CertificateError},
    children::{self, claim, labels, pod, seeding},
    names, observe,
    observed::{Member, Observed},
    plan::{
        goes_on_alone,
        rollout::{comes_back_as, newcomer_version, taken_back_from},
    },
    step::{Reason, Step, Why},
};
use crate::{FIELD_MANAGER, agents::BadOrder, etcd::EtcdError};
use writes::{adjust, create, delete, evict, grow, patch_claim, reclaim, request_backup};

#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error("{what} could not be written")]
    Api { what: String, source: kube::Error },
    #[error(
        "{what} exists and belongs to something else: rename or delete it, or give this cluster another name"
    )]
    NameTaken { what: String },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Order(#[from] BadOrder),
    #[error("etcd would not {what}")]
    Etcd { what: String, source: EtcdError },
    #[error("no member of the cluster can be reached to {what}")]
    NobodyToAsk { what: String },
    #[error("{what} is not needed any more: the cluster has changed since it was looked at")]
    OutOfDate { what: String },
    #[error(
        "{what} cannot grow: put storage.size back, or let its storage class allow volume expansion"
    )]
    CannotGrow { what: String, source: kube::Error },
    #[error("{what} may not be evicted now: the disruption budget is used up")]
    BudgetUsedUp { what: String },
    #[error("the lease is not held: another controller may act")]
    NotLeader,
}

impl ActError {
    /// The condition's reason, the Event's and the metric's label.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Api { .. } | Self::Order(_) => Reason::KubernetesError,
            Self::NameTaken { .. } => Reason::NameTaken,
            Self::CannotGrow { .. } => Reason::VolumesCannotGrow,
            Self::Certificate(_) => Reason::CertificateError,
            Self::Etcd { .. } if self.is_patience() => Reason::EtcdNotReadyYet,
            Self::Etcd { .. } => Reason::EtcdError,
            Self::NobodyToAsk { .. } => Reason::NobodyToAsk,
            Self::OutOfDate { .. } => Reason::OutOfDate,
            Self::BudgetUsedUp { .. } => Reason::BudgetUsedUp,
            Self::NotLeader => Reason::NotLeader,
        }
    }

    /// Trying again will not help.
    pub(crate) fn needs_a_person(&self) -> bool {
        match self {
            Self::NameTaken { .. } | Self::CannotGrow { .. } => true,
            Self::Certificate(error) => error.needs_a_person(),
            _ => false,
        }
    }

    /// etcd asks for patience: it changes its membership only when all members have been connected for some seconds, and
    /// promotes a learner only when it has caught up in the leader's eyes.
    /// Kubernetes asks for it while somebody else uses the disruption budget.
    pub(crate) fn is_patience(&self) -> bool {
        if matches!(self, Self::BudgetUsedUp { .. }) {
            return true;
        }
        let Self::Etcd { source, .. } = self else {
            return false;
        };
        let words = source.to_string();
        [
            "unhealthy cluster",
            "in sync with leader",
            "not enough started members",
            "too many learner",
        ]
        .iter()
        .any(|known| words.contains(known))
    }

    /// Nothing of this cluster can be written any more, and nothing is wrong.
    pub(crate) fn is_the_end(&self) -> bool {
        match self {
            Self::Api { source, .. } => is_the_end(source),
            Self::Certificate(error) => error.is_the_end(),
            _ => false,
        }
    }

    /// Somebody else wrote in between: no fault, the next look sees it.
    pub(crate) fn is_conflict(&self) -> bool {
        let (Self::Api { source, .. } | Self::Certificate(CertificateError::Api { source, .. })) =
            self
        else {
            return false;
        };
        matches!(source, kube::Error::Api(status) if status.code == 409)
    }
}

/// What the API server says where a namespace is being deleted, and where it or the EtcdCluster is gone.
pub(crate) fn is_the_end(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let Some(details) = &status.details else {
        return false;
    };
    let terminating = |cause: &StatusCause| cause.reason == "NamespaceTerminating";
    match status.code {
        403 => details.causes.iter().any(terminating),
        404 => matches!(
            details.kind.as_str(),
            "namespaces" | "etcdclusters" | "etcdbackups"
        ),
        _ => false,
    }
}

/// Takes the step. Bookkeeping steps return the record to write; the caller owns the status.
pub(crate) async fn perform(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    step: &Step,
) -> Result<Option<BootstrapRecord>, ActError> {
    guard(context)?;
    let founding = seen.cluster_id.is_none();
    match step {
        Step::RecordBootstrap {
            token,
            members,
            seed,
        } => {
            let members = members
                .iter()
                .map(|name| BootstrapMember {
                    name: name.clone(),
                    claim_uid: None,
                })
                .collect();
            return Ok(Some(BootstrapRecord {
                token: token.clone(),
                members,
                seed: seed.as_deref().cloned(),
                former: None,
            }));
        }
        Step::RecordClaims { members } => {
            return Ok(Some(BootstrapRecord {
                members: members.clone(),
                ..seen.bootstrap.clone().unwrap_or_default()
            }));
        }
        Step::Adopt { .. } => {
            adopt::take_over(context, cluster, seen).await?;
            // Nobody founds it: its members have started long ago.
            return Ok(Some(BootstrapRecord {
                token: names::token(cluster),
                ..BootstrapRecord::default()
            }));
        }
        Step::SwapImage { name, pod_uid } => {
            adopt::swap_image(context, cluster, name, pod_uid).await?;
        }
        // These are of the status alone, which is written next.
        Step::RecordRecovery { recovery } => {
            if recovery.alone.is_none() && recovery.finished.is_none() {
                nobody_else_is_left(context, cluster, seen, step).await?;
            }
        }
        Step::ForgetRecovery | Step::ForgetReadableLog => {}
        Step::ReleaseFormer => {
            return Ok(Some(BootstrapRecord {
                former: None,
                ..seen.bootstrap.clone().unwrap_or_default()
            }));
        }
        Step::Prepare { members } => {
            let claims = async {
                try_join_all(
                    members
                        .iter()
                        .filter(|member| {
                            seen.members
                                .get(*member)
                                .is_none_or(|known| known.claim.is_none())
                        })
                        .filter_map(|member| {
                            claim::claim(cluster, member, newcomer_version(cluster, seen))
                        })
                        .map(|claim| create(context, cluster, claim)),
                )
                .await
            };
            let certificates = async {
                certificates::issue(context, cluster, members, seen.now, founding)
                    .await
                    .map_err(ActError::from)
            };
            futures::try_join!(claims, certificates)?;
        }
        Step::RotateAuthorities { authorities } => {
            let request = seen.rotation_request.as_ref();
            let moved = certificates::rotate(context, cluster, authorities, request, seen.now);
            if !moved.await? {
                return Err(ActError::OutOfDate {
                    what: step.to_string(),
                });
            }
        }
        Step::Renew { members } => {
            certificates::issue(context, cluster, members, seen.now, founding).await?;
        }
        Step::Start { members, why } => {
            if *why == Why::ToGoOnAlone {
                still_to_go_alone(context, cluster, seen, step).await?;
            }
            let pods = members
                .iter()
                .map(|member| pod_of(context, cluster, seen, member))
                .collect::<Result<Vec<Pod>, ActError>>()?;
            try_join_all(pods.into_iter().map(|pod| create(context, cluster, pod))).await?;
        }
        Step::RequestBackup { backup, word } => {
            request_backup(context, cluster, backup, word).await?;
        }
        Step::Await { name } => alone::make_a_place(context, cluster, seen, name).await?,
        Step::GiveWord { name, pod_uid } => {
            alone::give_the_word(context, cluster, name, pod_uid).await?;
        }
        Step::AddVoter { name } if seen.voter_count() == 1 => {
            Box::pin(alone::add(context, cluster, seen, name, step)).await?;
        }
        Step::AddLearner { .. }
        | Step::AddVoter { .. }
        | Step::Promote { .. }
        | Step::MoveLeader { .. }
        | Step::EnableDowngrade { .. }
        | Step::CancelDowngrade
        | Step::LogIsReadable { .. }
        | Step::Compact { .. }
        | Step::Defragment { .. }
        | Step::Disarm { .. } => Box::pin(asks::ask(context, cluster, seen, step)).await?,
        Step::Remove { name, why, .. } => {
            let nothing_left = seen
                .members
                .get(name)
                .is_none_or(|member| member.pod.is_none() && member.claim.is_none());
            still_beyond_hope(context, cluster, name, *why, step).await?;
            Box::pin(asks::ask(context, cluster, seen, step)).await?;
            if nothing_left {
                // No pod or claim will be cleared away later, and the Secrets with them.
                certificates::forget(context, cluster, name).await?;
            }
        }
        Step::GrowClaims { members, size } => {
            let claims = members.iter().filter_map(|name| {
                let claim = seen.members.get(name)?.claim.as_ref()?;
                Some(grow(context, cluster, name, &claim.uid, size))
            });
            try_join_all(claims).await?;
        }
        Step::Reclaim { members, retain } => {
            let claims = members.iter().filter_map(|name| {
                let claim = seen.members.get(name)?.claim.as_ref()?;
                Some(reclaim(context, cluster, name, &claim.uid, *retain))
            });
            try_join_all(claims).await?;
        }
        Step::Adjust { name, pod_uid } => {
            let Some(pod) = seen
                .members
                .get(name)
                .and_then(|member| member.pod.as_ref())
            else {
                return Ok(None);
            };
            adjust(context, cluster, name, pod_uid, &pod.in_place).await?;
        }
        Step::Restart { name, pod_uid, why } => {
            remember_version(context, cluster, seen, name, *why).await?;
            let serves = seen.members.get(name).is_some_and(Member::healthy);
            if serves {
                evict(context, cluster, name, pod_uid).await?;
            } else {
                // Nobody misses it, and a budget that counts it as missing already would keep it for ever.
                delete::<Pod>(context, cluster, name, pod_uid).await?;
            }
        }
        Step::KeepVersion { name, version } => {
            let Some(claim) = seen
                .members
                .get(name)
                .and_then(|known| known.claim.as_ref())
            else {
                return Ok(None);
            };
            let annotations = json!({labels::CLAIM_VERSION: version.to_string()});
            let change = json!({"metadata": {"uid": claim.uid, "annotations": annotations}});
            patch_claim(context, cluster, name, change).await?;
        }
        Step::DeletePod { name, pod_uid, why } => {
            delete::<Pod>(context, cluster, name, pod_uid).await?;
            if *why == Why::NotAMember {
                certificates::forget(context, cluster, name).await?;
            }
        }
        Step::DeleteClaim { name, claim_uid } => {
            delete::<PersistentVolumeClaim>(context, cluster, name, claim_uid).await?;
            certificates::forget(context, cluster, name).await?;
        }
    }
    Ok(None)
}

/// A member is removed because of what a cache said of its pod or claim: the API server itself must say so too.
async fn still_beyond_hope(
    context: &Context,
    cluster: &ValidatedCluster,
    name: &str,
    why: Why,
    step: &Step,
) -> Result<(), ActError> {
    let unread = |what: &str, source| ActError::Api {
        what: format!("{what} {name}"),
        source,
    };
    let back = match why {
        Why::DataLost => {
            let pods: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
            let pod = pods
                .get_opt(name)
                .await
                .map_err(|source| unread("Pod", source))?;
            let in_itself = pod.is_some_and(|pod| {
                let facts = observe::pod_facts(&pod);
                facts.scratch && !facts.finished
            });
            let claims: Api<PersistentVolumeClaim> =
                Api::namespaced(context.client.clone(), &cluster.namespace);
            let claim = claims
                .get_opt(name)
                .await
                .map_err(|source| unread("PersistentVolumeClaim", source))?;
            in_itself || claim.is_some_and(|claim| !observe::claim_facts(&claim).lost)
        }
        Why::Unreachable => {
            let pods: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
            let pod = pods
                .get_opt(name)
                .await
                .map_err(|source| unread("Pod", source))?;
            pod.is_some_and(|pod| observe::pod_facts(&pod).ready)
        }
        _ => false,
    };
    if back {
        Err(ActError::OutOfDate {
            what: step.to_string(),
        })
    } else {
        Ok(())
    }
}

/// A recovery gives up whatever is not left, by the word of a cache: the API server itself must know of nobody else.
async fn nobody_else_is_left(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    step: &Step,
) -> Result<(), ActError> {
    let ours = ListParams::default().labels(&format!("{}={}", labels::CLUSTER, cluster.name));
    let unread = |source| ActError::Api {
        what: format!("what is left of {}", cluster.name),
        source,
    };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(context.client.clone(), &cluster.namespace);
    let (pods, claims) =
        futures::try_join!(pods.list(&ours), claims.list(&ours)).map_err(unread)?;
    let pods = pods.items.iter().map(|pod| &pod.metadata);
    let claims = claims.items.iter().map(|claim| &claim.metadata);
    let unknown = pods
        .chain(claims)
        .filter(|meta| labels::belongs(meta, cluster))
        .filter_map(|meta| meta.name.as_ref())
        .any(|name| !seen.members.contains_key(name) && !seen.aside.contains_key(name));
    if unknown {
        return Err(ActError::OutOfDate {
            what: step.to_string(),
        });
    }
    Ok(())
}

/// A survivor strikes the others out when it starts: whether that is still what is recorded is not a matter for a cache.
async fn still_to_go_alone(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    step: &Step,
) -> Result<(), ActError> {
    let api: Api<EtcdCluster> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let live = api.get(&cluster.name).await;
    let live = live.map_err(|source| ActError::Api {
        what: format!("EtcdCluster {}", cluster.name),
        source,
    })?;
    let recorded = live.status.and_then(|status| status.recovery);
    if live.metadata.uid.as_ref() == Some(&cluster.uid) && recorded == seen.recovery {
        return Ok(());
    }
    Err(ActError::OutOfDate {
        what: step.to_string(),
    })
}

/// A member comes back as the version its claim says: only a deliberate restart moves it to another.
fn pod_of(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    name: &str,
) -> Result<Pod, ActError> {
    let claimed = seen
        .members
        .get(name)
        .and_then(|member| member.claim.as_ref()?.version);
    let version = claimed.unwrap_or_else(|| newcomer_version(cluster, seen));
    let cluster = &children::at_version(cluster, version);
    let mut pod = pod::pod(cluster, name);
    if seen
        .members
        .get(name)
        .is_some_and(|member| member.claim.is_some())
    {
        // Wherever new members are to have theirs: its data are in its claim.
        pod::on_claim(&mut pod, name);
    }
    if goes_on_alone(seen, name) {
        pod::force_new_cluster(&mut pod);
    }
    if let Some((record, seed)) = seeding::wanted(seen, name) {
        seeding::add(&mut pod, &context.agent_image, cluster, name, record, seed)?;
    }
    // What its Secrets hold now: should they change before it starts, it is only restarted once more.
    if let Some(known) = seen
        .certificates
        .as_ref()
        .and_then(|known| known.members.get(name))
    {
        pod.annotations_mut()
            .insert(labels::LOADS.to_owned(), known.loads.clone());
    }
    Ok(pod)
}

/// Writes down, before its pod goes, which version a member is to come back as.
async fn remember_version(
    context: &Context,
    cluster: &ValidatedCluster,
    seen: &Observed,
    name: &str,
    why: Why,
) -> Result<(), ActError> {
    let member = seen.members.get(name);
    let Some(claim) = member.and_then(|member| member.claim.as_ref()) else {
        return Ok(());
    };
    let pod = member.and_then(|member| member.pod.as_ref());
    let taken_back_from = pod.and_then(|pod| taken_back_from(cluster, seen, pod));
    let version = comes_back_as(cluster, pod, why);
    let mut annotations = json!({labels::CLAIM_VERSION: version.to_string()});
    if why == Why::Upgrade {
        annotations[labels::TAKEN_BACK_FROM] = json!(taken_back_from.map(|was| was.to_string()));
    }
    let change = json!({"metadata": {"uid": claim.uid, "annotations": annotations}});
    patch_claim(context, cluster, name, change).await
}

/// Asked before every write: a controller that lost its lease must not act.
pub(crate) fn guard(context: &Context) -> Result<(), ActError> {
    if context.leadership.held() {
        Ok(())
    } else {
        Err(ActError::NotLeader)
    }
}

/// Writes the status as a whole, against the very version of the object that was looked at. Returns what is stored.
pub(crate) async fn write_status(
    context: &Context,
    object: &EtcdCluster,
) -> Result<EtcdCluster, ActError> {
    guard(context)?;
    let name = object.name_any();
    let api: Api<EtcdCluster> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    api.replace_status(&name, &parameters, object)
        .await
        .map_err(|source| ActError::Api {
            what: format!("the status of {name}"),
            source,
        })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn answer(status: Value) -> ActError {
        ActError::Api {
            what: "Pod c-a".to_owned(),
            source: kube::Error::Api(serde_json::from_value(status).unwrap()),
        }
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_the_end_and_a_missing_permission_is_not() {
        let refused = |causes: Value| {
            answer(json!({
                "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "pods \"c-a\" is forbidden",
                "details": {"name": "c-a", "kind": "pods", "causes": causes},
            }))
        };
        let terminating =
            json!([{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]);
        assert!(refused(terminating).is_the_end());
        assert!(!refused(json!([])).is_the_end());
    }

    #[test]
    fn a_cluster_that_is_gone_is_the_end_and_a_child_that_is_gone_is_not() {
        let missing = |kind: &str| {
            answer(json!({
                "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "not found", "details": {"name": "c", "kind": kind},
            }))
        };
        assert!(missing("etcdclusters").is_the_end());
        assert!(missing("namespaces").is_the_end());
        assert!(!missing("persistentvolumeclaims").is_the_end());
    }
}

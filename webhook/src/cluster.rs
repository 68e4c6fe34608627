//! EtcdClusters on their way in: defaults first, then judgement; and on their way out: deletion protection. Pure.
//!
//! The mutating step already refuses, and with everything that is wrong: the API server checks its own schema and CEL between the two
//! steps, and would otherwise show only its part of the story.

use etcd_operator_api::v1beta2::EtcdCluster;
use etcd_operator_api::{Judgement, Policy, default_cluster, default_update, judge, judge_delete};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::fill::fill;
use crate::review::{AdmissionRequest, Operation, Refusal, ReviewError, Verdict};

const GROUP: &str = "etcd.database.coreos.com";

/// Fills what is unset and refuses what is unsound.
///
/// What our types cannot even decode is let through as it is: the API server's schema, which comes next, says better what is wrong.
pub fn mutate(request: &AdmissionRequest<'_>, policy: &Policy) -> Result<Verdict, ReviewError> {
    expect_cluster(request)?;
    let Some(object) = request.object else {
        return Ok(Verdict::allowed());
    };
    if is_being_deleted(object) {
        return Ok(Verdict::allowed());
    }
    let Ok(mut cluster) = decode(object) else {
        return Ok(Verdict::allowed());
    };
    let old = old_cluster(request);
    if old.as_ref().is_some_and(|old| old.spec == cluster.spec) {
        return Ok(Verdict::allowed());
    }
    let before = serde_json::to_value(&cluster)?;
    match &old {
        Some(old) => default_update(&mut cluster, old, policy),
        None => default_cluster(&mut cluster, policy),
    }
    let judgement = judge(&cluster, old.as_ref(), policy);
    if !judgement.allowed() {
        return Ok(refused(judgement));
    }
    let raw: Value = serde_json::from_str(object.get())?;
    Ok(Verdict::Allowed {
        patch: fill(&raw, &before, &serde_json::to_value(&cluster)?),
        warnings: Vec::new(),
    })
}

/// Judges what is about to be stored, or deleted.
pub fn validate(request: &AdmissionRequest<'_>, policy: &Policy) -> Result<Verdict, ReviewError> {
    expect_cluster(request)?;
    if request.operation == Operation::Delete {
        return Ok(validate_delete(request));
    }
    let Some(object) = request.object else {
        return Ok(Verdict::allowed());
    };
    // Whatever is wrong with it, its finalizer must be removable.
    if is_being_deleted(object) {
        return Ok(Verdict::allowed());
    }
    let old = old_cluster(request);
    let cluster = match decode(object) {
        Ok(cluster) => cluster,
        // It passed the schema and is still not what our types hold. Stored, it would be unreadable to the controller as well.
        Err(error) => {
            return Ok(Verdict::Refused {
                refusals: vec![Refusal {
                    field: String::new(),
                    reason: "Undecodable".into(),
                    message: format!("must be readable as an EtcdCluster of v1beta2: {error}"),
                }],
                warnings: Vec::new(),
            });
        }
    };
    if old.as_ref().is_some_and(|old| old.spec == cluster.spec) {
        return Ok(Verdict::allowed());
    }
    Ok(verdict(judge(&cluster, old.as_ref(), policy)))
}

fn validate_delete(request: &AdmissionRequest<'_>) -> Verdict {
    match request.old_object.map(decode) {
        Some(Ok(cluster)) => verdict(judge_delete(&cluster)),
        // Unreadable is no reason to keep it.
        Some(Err(_)) | None => Verdict::allowed(),
    }
}

/// The cluster a request would store, where our types can read it.
pub fn cluster_of(request: &AdmissionRequest<'_>) -> Option<EtcdCluster> {
    request.object.and_then(|object| decode(object).ok())
}

fn expect_cluster(request: &AdmissionRequest<'_>) -> Result<(), ReviewError> {
    let kind = &request.kind;
    if kind.group == GROUP && kind.version == "v1beta2" && kind.kind == "EtcdCluster" {
        return Ok(());
    }
    Err(ReviewError::WrongObject {
        expected: "EtcdCluster of etcd.database.coreos.com/v1beta2",
        found: format!("{} of {}/{}", kind.kind, kind.group, kind.version),
    })
}

fn decode(object: &RawValue) -> serde_json::Result<EtcdCluster> {
    serde_json::from_str(object.get())
}

/// Only an update has an old self to be compared with. One our types cannot read gives no comparison.
fn old_cluster(request: &AdmissionRequest<'_>) -> Option<EtcdCluster> {
    if request.operation != Operation::Update {
        return None;
    }
    request.old_object.and_then(|object| decode(object).ok())
}

fn is_being_deleted(object: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        deletion_timestamp: Option<&'a RawValue>,
    }
    serde_json::from_str::<Object<'_>>(object.get())
        .is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
}

/// A judgement as an answer, without a patch.
pub(crate) fn verdict(judgement: Judgement) -> Verdict {
    if judgement.allowed() {
        Verdict::Allowed {
            patch: Vec::new(),
            warnings: warnings(&judgement),
        }
    } else {
        refused(judgement)
    }
}

fn refused(judgement: Judgement) -> Verdict {
    Verdict::Refused {
        warnings: warnings(&judgement),
        refusals: judgement
            .violations
            .into_iter()
            .map(|violation| Refusal {
                field: violation.field,
                reason: violation.reason.as_str().into(),
                message: violation.message,
            })
            .collect(),
    }
}

fn warnings(judgement: &Judgement) -> Vec<String> {
    judgement.warnings.iter().map(ToString::to_string).collect()
}

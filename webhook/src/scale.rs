//! The scale subresource: `kubectl scale` is judged like an apply, an autoscaler's wish is rounded up to a size etcd can have. Pure.

use std::collections::BTreeSet;

use etcd_operator_api::{judge_scale, round_up_size};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::object::verdict;
use crate::review::{AdmissionRequest, ReviewError, Verdict};

#[derive(Deserialize)]
struct Scale {
    #[serde(default)]
    spec: ScaleSpec,
}

#[derive(Default, Deserialize)]
struct ScaleSpec {
    /// Kubernetes leaves a zero out.
    #[serde(default)]
    replicas: i32,
}

/// Rounds an autoscaler's wish up; everyone else's is left for the judgement.
pub fn mutate(
    request: &AdmissionRequest<'_>,
    autoscalers: &BTreeSet<String>,
) -> Result<Verdict, ReviewError> {
    expect_scale(request)?;
    if !autoscalers.contains(&request.user_info.username) {
        return Ok(Verdict::allowed());
    }
    let Some(wish) = replicas(request.object)? else {
        return Ok(Verdict::allowed());
    };
    let size = i32::try_from(round_up_size(wish).members()).unwrap_or(wish);
    if size == wish {
        return Ok(Verdict::allowed());
    }
    Ok(Verdict::Allowed {
        patch: vec![json!({"op": "add", "path": "/spec/replicas", "value": size})],
        warnings: vec![format!(
            "spec.replicas: {wish} was rounded up to {size}: etcd wants an odd size of at most 7"
        )],
    })
}

/// Judges the size that is about to be stored.
pub fn validate(request: &AdmissionRequest<'_>) -> Result<Verdict, ReviewError> {
    expect_scale(request)?;
    let (new, old) = (replicas(request.object)?, replicas(request.old_object)?);
    match new {
        Some(new) if old != Some(new) => Ok(verdict(judge_scale(new))),
        _ => Ok(Verdict::allowed()),
    }
}

fn replicas(object: Option<&RawValue>) -> Result<Option<i32>, ReviewError> {
    let scale: Option<Scale> = object
        .map(|object| serde_json::from_str(object.get()))
        .transpose()?;
    Ok(scale.map(|scale| scale.spec.replicas))
}

fn expect_scale(request: &AdmissionRequest<'_>) -> Result<(), ReviewError> {
    let kind = &request.kind;
    if kind.kind == "Scale" && request.sub_resource.as_deref() == Some("scale") {
        return Ok(());
    }
    Err(ReviewError::WrongObject {
        expected: "Scale",
        found: format!("{} of {}/{}", kind.kind, kind.group, kind.version),
    })
}

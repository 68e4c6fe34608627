//! Our objects on their way in: defaults first, then judgement; and on their way out: deletion protection. Pure.
//!
//! The mutating step already refuses, and with everything that is wrong: the API server checks its own schema and CEL between the two
//! steps, and would otherwise show only its part of the story.

use std::collections::BTreeMap;

use etcd_operator_api::{AS_WRITTEN, Judgement, Policy, Warning, judge_unknown};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::fill::fill;
use crate::review::{AdmissionRequest, Operation, Refusal, ReviewError, Verdict};

const GROUP: &str = "etcd.database.coreos.com";
const VERSION: &str = "v1beta2";

/// A kind that is judged here.
pub trait Judged: Serialize + Sized {
    const KIND: &'static str;
    type Spec: DeserializeOwned;
    type Status: DeserializeOwned;

    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self;
    fn metadata(&self) -> &ObjectMeta;

    fn is_being_deleted(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// Whether both ask for the same, whatever else changed.
    fn same_spec(&self, other: &Self) -> bool;
    /// Whether both ask for the same beside their spec, by annotation.
    fn same_requests(&self, _other: &Self) -> bool {
        true
    }

    /// Fills what is unset; `old` is there on an update.
    fn fill_in(&mut self, old: Option<&Self>, policy: &Policy);
    fn judge(&self, old: Option<&Self>, policy: &Policy) -> Judgement;

    /// Most may go at any time.
    fn judge_delete(&self) -> Judgement {
        Judgement::default()
    }
}

/// Fills what is unset and refuses what is unsound.
///
/// What our types cannot even decode is let through as it is: the API server's schema, which comes next, says better what is wrong.
pub fn mutate<K: Judged>(
    request: &AdmissionRequest<'_>,
    policy: &Policy,
) -> Result<Verdict, ReviewError> {
    expect::<K>(request)?;
    let Some(object) = request.object else {
        return Ok(Verdict::allowed());
    };
    let Ok(mut new) = decode::<K>(object) else {
        return Ok(Verdict::allowed());
    };
    if new.is_being_deleted() {
        return Ok(Verdict::allowed());
    }
    let old = old::<K>(request);
    if old.as_ref().is_some_and(|old| old.same_spec(&new)) {
        return Ok(Verdict::allowed());
    }
    let before = serde_json::to_value(&new)?;
    new.fill_in(old.as_ref(), policy);
    let mut judgement = new.judge(old.as_ref(), policy);
    if !judgement.allowed() {
        // A field that was meant and is not known is often why.
        judgement.warnings.extend(unknown(&new, old.as_ref()));
        return Ok(refused(judgement));
    }
    let raw: Value = serde_json::from_str(object.get())?;
    Ok(Verdict::Allowed {
        patch: fill(&raw, &before, &serde_json::to_value(&new)?),
        warnings: Vec::new(),
    })
}

/// What was judged, for those who have more to say of it: reading it is most of an admission's work, and done once.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<K> {
    pub new: K,
    /// What an update would replace, where our types can read it.
    pub old: Option<K>,
}

/// Judges what is about to be stored, or deleted. Where it would be stored with another spec, also returns what was asked for.
pub fn validate<K: Judged>(
    request: &AdmissionRequest<'_>,
    policy: &Policy,
) -> Result<(Verdict, Option<Asked<K>>), ReviewError> {
    expect::<K>(request)?;
    if request.operation == Operation::Delete {
        return Ok((validate_delete::<K>(request), None));
    }
    let Some(object) = request.object else {
        return Ok((Verdict::allowed(), None));
    };
    let new: K = match decode::<K>(object) {
        // Whatever is wrong with it, its finalizer must be removable.
        Ok(new) if new.is_being_deleted() => return Ok((Verdict::allowed(), None)),
        Ok(new) => new,
        Err(_) if is_being_deleted(object) => return Ok((Verdict::allowed(), None)),
        // It passed the schema and is still not what our types hold. Stored, it would be unreadable to the controller as well.
        Err(error) => {
            let refused = Verdict::Refused {
                refusals: vec![Refusal {
                    field: String::new(),
                    reason: "Undecodable".into(),
                    message: format!("must be readable as an {} of {VERSION}: {error}", K::KIND),
                }],
                warnings: Vec::new(),
            };
            return Ok((refused, None));
        }
    };
    let old = old::<K>(request);
    let unknown = unknown(&new, old.as_ref());
    // A finalizer, a label: nothing that is judged or looked for can have changed.
    let same = |old: &K| old.same_spec(&new) && old.same_requests(&new);
    if old.as_ref().is_some_and(same) {
        let mut judgement = Judgement::default();
        judgement.warnings.extend(unknown);
        return Ok((verdict(judgement), None));
    }
    let mut judgement = new.judge(old.as_ref(), policy);
    judgement.warnings.extend(unknown);
    Ok((verdict(judgement), Some(Asked { new, old })))
}

/// Fields of the manifest that the API server has dropped. Told when the manifest is new: whoever writes a label later has not
/// misspelt anything.
fn unknown<K: Judged>(new: &K, old: Option<&K>) -> Vec<Warning> {
    match as_written(new) {
        Some(manifest) if old.and_then(as_written) != Some(manifest) => {
            judge_unknown(K::KIND, manifest)
        }
        _ => Vec::new(),
    }
}

fn as_written<K: Judged>(object: &K) -> Option<&str> {
    let annotations = object.metadata().annotations.as_ref()?;
    annotations.get(AS_WRITTEN).map(String::as_str)
}

fn validate_delete<K: Judged>(request: &AdmissionRequest<'_>) -> Verdict {
    match request.old_object.map(decode::<K>) {
        Some(Ok(old)) => verdict(old.judge_delete()),
        // Unreadable is no reason to keep it.
        Some(Err(_)) | None => Verdict::allowed(),
    }
}

fn expect<K: Judged>(request: &AdmissionRequest<'_>) -> Result<(), ReviewError> {
    let kind = &request.kind;
    if kind.group == GROUP && kind.version == VERSION && kind.kind == K::KIND {
        return Ok(());
    }
    Err(ReviewError::WrongObject {
        expected: K::KIND,
        found: format!("{} of {}/{}", kind.kind, kind.group, kind.version),
    })
}

fn decode<K: Judged>(object: &RawValue) -> serde_json::Result<K> {
    let Parts::<K::Spec, K::Status> {
        metadata,
        spec,
        status,
    } = serde_json::from_str(object.get())?;
    Ok(K::from_parts(metadata.into(), spec, status))
}

/// An object as far as it is judged.
#[derive(Deserialize)]
struct Parts<Spec, Status> {
    metadata: Metadata,
    spec: Spec,
    #[serde(default = "Option::default")]
    status: Option<Status>,
}

/// What the rules ask of the metadata. `managedFields`, which is most of it in a stored object, is skipped over.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    generate_name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<Time>,
}

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        let Metadata {
            name,
            generate_name,
            namespace,
            uid,
            generation,
            labels,
            annotations,
            deletion_timestamp,
        } = metadata;
        Self {
            name,
            generate_name,
            namespace,
            uid,
            generation,
            labels,
            annotations,
            deletion_timestamp,
            ..Self::default()
        }
    }
}

/// Only an update has an old self to be compared with. One our types cannot read gives no comparison.
fn old<K: Judged>(request: &AdmissionRequest<'_>) -> Option<K> {
    if request.operation != Operation::Update {
        return None;
    }
    request.old_object.and_then(|object| decode(object).ok())
}

/// Asked of what our types cannot read.
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

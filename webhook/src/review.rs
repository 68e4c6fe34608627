//! AdmissionReview on the wire: what is read of a request and how an answer is written. Pure.
//!
//! kube's own types decode the object into one type or fail as a whole, and their `deny` sets only a message; here the object stays
//! raw text until someone needs it, and an answer always carries uid, code, reason and one cause per field.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Why a body is no review we can answer.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error("must be {KIND} of {API_VERSION}, not `{kind}` of `{api_version}`")]
    Unknown { api_version: String, kind: String },
    #[error("the review has no request")]
    NoRequest,
    #[error("this path judges {expected}, not {found}")]
    WrongObject {
        expected: &'static str,
        found: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<AdmissionRequest<'a>>,
}

/// What the API server asks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<'a> {
    pub uid: String,
    pub kind: Kind,
    #[serde(default)]
    pub sub_resource: Option<String>,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub namespace: Option<String>,
    pub operation: Operation,
    #[serde(default)]
    pub user_info: UserInfo,
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
    #[serde(default)]
    pub dry_run: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Kind {
    #[serde(default)]
    pub group: String,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct UserInfo {
    #[serde(default)]
    pub username: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl<'a> AdmissionRequest<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        let review: Review<'a> = serde_json::from_slice(body)?;
        if review.api_version != API_VERSION || review.kind != KIND {
            return Err(ReviewError::Unknown {
                api_version: review.api_version.into_owned(),
                kind: review.kind.into_owned(),
            });
        }
        review.request.ok_or(ReviewError::NoRequest)
    }

    /// For logs: `namespace/name`.
    pub fn full_name(&self) -> String {
        format!(
            "{}/{}",
            self.namespace.as_deref().unwrap_or_default(),
            self.name.as_deref().unwrap_or_default()
        )
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Allowed {
        /// JSON Patch operations; empty changes nothing.
        patch: Vec<Value>,
        warnings: Vec<String>,
    },
    Refused {
        refusals: Vec<Refusal>,
        warnings: Vec<String>,
    },
}

/// How many faults, and how many warnings, are named.
const MOST_NAMED: usize = 50;
/// The most bytes of a text that is answered: what is wrong may quote what was sent, and that may be long.
const LONGEST_TEXT: usize = 1024;

impl Verdict {
    pub fn allowed() -> Self {
        Self::Allowed {
            patch: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The same with the first faults and warnings alone, and a count of the others: an answer must not grow with the faults of a
    /// request, nor must a log line.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Self::Refused { refusals, .. } = &mut self {
            if let Some(more) = cut_off(refusals) {
                refusals.push(Refusal {
                    field: String::new(),
                    reason: "More".into(),
                    message: format!("and {more} more faults"),
                });
            }
            for refusal in refusals {
                shorten(&mut refusal.field);
                shorten(&mut refusal.message);
            }
        }
        let (Self::Allowed { warnings, .. } | Self::Refused { warnings, .. }) = &mut self;
        if let Some(more) = cut_off(warnings) {
            warnings.push(format!("and {more} more warnings"));
        }
        self
    }
}

/// Leaves what may be named; how many were more.
fn cut_off<T>(named: &mut Vec<T>) -> Option<usize> {
    let more = named.len().checked_sub(MOST_NAMED).filter(|more| *more > 0);
    named.truncate(MOST_NAMED);
    more
}

/// Cuts a text that is too long to be answered.
pub(crate) fn shorten(text: &mut String) {
    if text.len() > LONGEST_TEXT {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
        text.push('…');
    }
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub field: String,
    pub reason: Cow<'static, str>,
    pub message: String,
}

/// What the refused object is called in the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    pub kind: &'a Kind,
    pub name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewAnswer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ResponseAnswer<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseAnswer<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Invalid<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Invalid<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    details: Details<'a>,
}

#[derive(Serialize)]
struct Details<'a> {
    name: &'a str,
    group: &'a str,
    kind: &'a str,
    causes: Vec<Cause<'a>>,
}

#[derive(Serialize)]
struct Cause<'a> {
    reason: &'a str,
    message: &'a str,
    field: &'a str,
}

/// The answer as JSON.
pub fn answer(uid: &str, subject: &Subject<'_>, verdict: &Verdict) -> serde_json::Result<Vec<u8>> {
    let response = match verdict {
        Verdict::Allowed { patch, warnings } => {
            let patch = if patch.is_empty() {
                None
            } else {
                Some(STANDARD.encode(serde_json::to_vec(patch)?))
            };
            ResponseAnswer {
                uid,
                allowed: true,
                status: None,
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch,
                warnings,
            }
        }
        Verdict::Refused { refusals, warnings } => ResponseAnswer {
            uid,
            allowed: false,
            status: Some(invalid(subject, refusals)),
            patch_type: None,
            patch: None,
            warnings,
        },
    };
    serde_json::to_vec(&ReviewAnswer {
        api_version: API_VERSION,
        kind: KIND,
        response,
    })
}

/// 422 Invalid, in the words the API server itself uses for a schema violation.
fn invalid<'a>(subject: &Subject<'a>, refusals: &'a [Refusal]) -> Invalid<'a> {
    Invalid {
        status: "Failure",
        code: 422,
        reason: "Invalid",
        message: message(subject, refusals),
        details: Details {
            name: subject.name,
            group: &subject.kind.group,
            kind: &subject.kind.kind,
            causes: refusals
                .iter()
                .map(|refusal| Cause {
                    reason: &refusal.reason,
                    message: &refusal.message,
                    field: &refusal.field,
                })
                .collect(),
        },
    }
}

fn message(subject: &Subject<'_>, refusals: &[Refusal]) -> String {
    let mut message = format!("{} \"{}\" is invalid: ", subject.kind.kind, subject.name);
    let several = refusals.len() > 1;
    if several {
        message.push('[');
    }
    for (index, refusal) in refusals.iter().enumerate() {
        if index > 0 {
            message.push_str(", ");
        }
        if !refusal.field.is_empty() {
            message.push_str(&refusal.field);
            message.push_str(": ");
        }
        message.push_str(&refusal.message);
    }
    if several {
        message.push(']');
    }
    message
}

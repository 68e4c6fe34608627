//! Conversion between API versions: every object of a batch in order, or none, and then the one that failed is named. Pure.

use std::borrow::Cow;
use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::review::ReviewError;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    request: Option<Request>,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    objects: Vec<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewAnswer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    converted_objects: &'a [Value],
    result: Outcome<'a>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// What a batch came to, for metrics and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    pub answer: Vec<u8>,
    pub objects: usize,
    pub failure: Option<String>,
}

/// Answers a ConversionReview; `with` converts one object to the API version named.
pub fn convert<E: Display>(
    body: &[u8],
    with: impl Fn(Value, &str) -> Result<Value, E>,
) -> Result<Converted, ReviewError> {
    let review: Review<'_> = serde_json::from_slice(body)?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(ReviewError::Unknown {
            api_version: review.api_version.into_owned(),
            kind: review.kind.into_owned(),
        });
    }
    let Request {
        uid,
        desired,
        objects,
    } = review.request.ok_or(ReviewError::NoRequest)?;
    let asked = objects.len();
    let converted: Result<Vec<Value>, String> = objects
        .into_iter()
        .enumerate()
        .map(|(index, object)| one(index, object, &desired, &with))
        .collect();
    let (converted, failure) = match converted {
        Ok(converted) => (converted, None),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    let answer = serde_json::to_vec(&ReviewAnswer {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid: &uid,
            converted_objects: &converted,
            result: Outcome {
                status: if failure.is_none() {
                    "Success"
                } else {
                    "Failure"
                },
                message: failure.as_deref(),
            },
        },
    })?;
    Ok(Converted {
        answer,
        objects: asked,
        failure,
    })
}

fn one<E: Display>(
    index: usize,
    object: Value,
    desired: &str,
    with: impl Fn(Value, &str) -> Result<Value, E>,
) -> Result<Value, String> {
    let metadata = object.get("metadata").cloned();
    let called = called(metadata.as_ref());
    let mut converted =
        with(object, desired).map_err(|error| format!("objects[{index}] ({called}): {error}"))?;
    keep_metadata(&mut converted, metadata);
    Ok(converted)
}

/// The API server refuses a conversion that changes metadata beyond labels and annotations; so it is not left to chance.
fn keep_metadata(converted: &mut Value, before: Option<Value>) {
    let (Some(Value::Object(before)), Some(after)) = (
        before,
        converted.get_mut("metadata").and_then(Value::as_object_mut),
    ) else {
        return;
    };
    let free = |key: &String| key == "labels" || key == "annotations";
    after.retain(|key, _| free(key));
    after.extend(before.into_iter().filter(|(key, _)| !free(key)));
}

fn called(metadata: Option<&Value>) -> String {
    let part = |key| {
        metadata
            .and_then(|metadata| metadata.get(key))
            .and_then(Value::as_str)
            .unwrap_or("?")
    };
    format!("{}/{}", part("namespace"), part("name"))
}

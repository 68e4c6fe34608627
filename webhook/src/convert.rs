//! Conversion between API versions: every object of a batch in order, or none, and then the one that failed is named. Pure.
//!
//! One object at a time is a tree in memory; the others are text, of the request or of the answer. A list may be long.

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::review::{ReviewError, shorten};

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

/// The longest object that is converted: twice what etcd takes in one request, so that none that was ever stored is refused, also where
/// its text is longer here than there.
pub const LARGEST_OBJECT: usize = 3 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    #[serde(borrow)]
    objects: &'a RawValue,
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
    converted_objects: &'a RawValue,
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
    let mut batch = Batch {
        desired: &desired,
        with,
        converted: String::with_capacity(objects.get().len()),
        objects: 0,
        failure: None,
    };
    batch.deserialize(&mut serde_json::Deserializer::from_str(objects.get()))?;
    let Batch {
        converted,
        objects,
        failure,
        ..
    } = batch;
    let (status, list) = match failure {
        None => ("Success", RawValue::from_string(converted)?),
        Some(_) => ("Failure", RawValue::from_string("[]".to_owned())?),
    };
    let answer = serde_json::to_vec(&ReviewAnswer {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid: &uid,
            converted_objects: &list,
            result: Outcome {
                status,
                message: failure.as_deref(),
            },
        },
    })?;
    Ok(Converted {
        answer,
        objects,
        failure,
    })
}

/// The objects of a review as they are read, each converted and written before the next is looked at.
struct Batch<'a, F> {
    desired: &'a str,
    with: F,
    /// A JSON list.
    converted: String,
    objects: usize,
    failure: Option<String>,
}

impl<'de, F, E> DeserializeSeed<'de> for &mut Batch<'_, F>
where
    F: Fn(Value, &str) -> Result<Value, E>,
    E: Display,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, F, E> Visitor<'de> for &mut Batch<'_, F>
where
    F: Fn(Value, &str) -> Result<Value, E>,
    E: Display,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.converted.push('[');
        while let Some(object) = list.next_element::<&RawValue>()? {
            let index = self.objects;
            self.objects += 1;
            if self.failure.is_some() {
                continue;
            }
            match one(object, self.desired, &self.with) {
                Ok(object) => {
                    if index > 0 {
                        self.converted.push(',');
                    }
                    let text = serde_json::to_string(&object).map_err(A::Error::custom)?;
                    self.converted.push_str(&text);
                }
                Err(why) => {
                    let mut failure = format!("objects[{index}] ({}): {why}", called(object));
                    shorten(&mut failure);
                    self.failure = Some(failure);
                }
            }
        }
        self.converted.push(']');
        Ok(())
    }
}

fn one<E: Display>(
    object: &RawValue,
    desired: &str,
    with: impl Fn(Value, &str) -> Result<Value, E>,
) -> Result<Value, String> {
    if object.get().len() > LARGEST_OBJECT {
        return Err(format!(
            "must not be larger than {LARGEST_OBJECT} bytes: nothing larger can be stored"
        ));
    }
    let object: Value = serde_json::from_str(object.get()).map_err(|error| error.to_string())?;
    let metadata = object.get("metadata").cloned();
    let mut converted = with(object, desired).map_err(|error| error.to_string())?;
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

/// `namespace/name`, read over all the rest.
fn called(object: &RawValue) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named<'a> {
        #[serde(borrow)]
        metadata: Names<'a>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Names<'a> {
        #[serde(borrow)]
        namespace: Option<Cow<'a, str>>,
        #[serde(borrow)]
        name: Option<Cow<'a, str>>,
    }
    let Names { namespace, name } = serde_json::from_str::<Named<'_>>(object.get())
        .unwrap_or_default()
        .metadata;
    let shown = |part: Option<Cow<'_, str>>| part.map_or_else(|| "?".to_owned(), Cow::into_owned);
    format!("{}/{}", shown(namespace), shown(name))
}

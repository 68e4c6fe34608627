//! Between `v1alpha1` and `v1beta2`, on raw JSON, losing nothing in either direction.
//!
//! `replicas` ↔ `size`, `storage` ↔ `storage.size`, `version` ↔ `version`. What the target cannot say is kept in an annotation
//! and put back on the way home; nothing else in the metadata is touched, and the status is the same in both.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{v1alpha1, v1beta2};

/// Annotation on a v1alpha1 object: what of its spec only v1beta2 can say.
pub const KEPT_FROM_BETA: &str = "etcd.database.coreos.com/v1beta2-spec";
/// Annotation on a v1beta2 object: what of its spec only v1alpha1 can say.
pub const KEPT_FROM_ALPHA: &str = "etcd.database.coreos.com/v1alpha1-spec";

/// Why an object cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    #[error("the object is not a JSON object with a string `apiVersion`")]
    NotAnObject,
    #[error("`{0}` must be an object")]
    NotAMap(&'static str),
    #[error(
        "cannot convert from `{from}` to `{to}`: v1alpha1 and v1beta2 of etcd.database.coreos.com are known"
    )]
    UnknownVersion { from: String, to: String },
    #[error(
        "annotation `{annotation}` must hold what the operator wrote into it; remove it or restore it: {source}"
    )]
    Annotation {
        annotation: &'static str,
        source: serde_json::Error,
    },
}

/// What is kept in an annotation.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// The fields of the spec.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    spec: Map<String, Value>,
    /// Such an annotation that was there before, of whatever origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shadowed: Option<Value>,
}

/// Converts `object` to `desired_api_version`.
pub fn convert(object: Value, desired_api_version: &str) -> Result<Value, ConversionError> {
    let Value::Object(mut object) = object else {
        return Err(ConversionError::NotAnObject);
    };
    let Some(from) = object
        .get("apiVersion")
        .and_then(Value::as_str)
        .map(ToOwned::to_owned)
    else {
        return Err(ConversionError::NotAnObject);
    };
    match (from.as_str(), desired_api_version) {
        (v1beta2::API_VERSION, v1beta2::API_VERSION)
        | (v1alpha1::API_VERSION, v1alpha1::API_VERSION) => {
            return Ok(Value::Object(object));
        }
        (v1beta2::API_VERSION, v1alpha1::API_VERSION) => {
            translate(&mut object, KEPT_FROM_ALPHA, KEPT_FROM_BETA, beta_to_alpha)?;
        }
        (v1alpha1::API_VERSION, v1beta2::API_VERSION) => {
            translate(&mut object, KEPT_FROM_BETA, KEPT_FROM_ALPHA, alpha_to_beta)?;
        }
        _ => {
            return Err(ConversionError::UnknownVersion {
                from,
                to: desired_api_version.to_owned(),
            });
        }
    }
    object.insert("apiVersion".to_owned(), desired_api_version.into());
    Ok(Value::Object(object))
}

type Fields = Map<String, Value>;

/// Takes what an earlier translation kept, translates the spec, and keeps what is left over.
fn translate(
    object: &mut Fields,
    take_from: &'static str,
    keep_in: &'static str,
    fields: fn(Fields, Fields) -> (Fields, Fields),
) -> Result<(), ConversionError> {
    let earlier = take_kept(object, take_from)?;
    match object.remove("spec") {
        Some(Value::Object(spec)) => {
            let (translated, left_over) = fields(spec, earlier);
            object.insert("spec".to_owned(), Value::Object(translated));
            keep(object, keep_in, left_over)
        }
        None if earlier.is_empty() => keep(object, keep_in, Fields::new()),
        None => {
            let (translated, left_over) = fields(Fields::new(), earlier);
            object.insert("spec".to_owned(), Value::Object(translated));
            keep(object, keep_in, left_over)
        }
        Some(_) => Err(ConversionError::NotAMap("spec")),
    }
}

/// (what v1alpha1 says, what it cannot say).
fn beta_to_alpha(mut beta: Fields, earlier: Fields) -> (Fields, Fields) {
    let mut alpha = earlier;
    move_field(&mut beta, "size", &mut alpha, "replicas");
    move_field(&mut beta, "version", &mut alpha, "version");
    if let Some(Value::Object(storage)) = beta.get_mut("storage") {
        move_field(storage, "size", &mut alpha, "storage");
        // An empty `storage` is worth keeping only where the size does not stand for it.
        if storage.is_empty() && alpha.contains_key("storage") {
            beta.remove("storage");
        }
    }
    (alpha, beta)
}

/// (what v1beta2 says, what it cannot say).
fn alpha_to_beta(mut alpha: Fields, earlier: Fields) -> (Fields, Fields) {
    let mut beta = earlier;
    move_field(&mut alpha, "replicas", &mut beta, "size");
    move_field(&mut alpha, "version", &mut beta, "version");
    if let Some(size) = alpha.remove("storage") {
        let storage = beta
            .entry("storage")
            .or_insert_with(|| Value::Object(Fields::new()));
        match storage {
            Value::Object(storage) => {
                storage.insert("size".to_owned(), size);
            }
            // Nothing the schema lets in; what v1alpha1 says now wins.
            other => *other = Value::Object(Fields::from_iter([("size".to_owned(), size)])),
        }
    }
    (beta, alpha)
}

fn move_field(from: &mut Fields, name: &str, to: &mut Fields, as_name: &str) {
    if let Some(value) = from.remove(name) {
        to.insert(as_name.to_owned(), value);
    }
}

/// Takes what was kept for the target, and puts back an annotation it had shadowed.
fn take_kept(object: &mut Fields, annotation: &'static str) -> Result<Fields, ConversionError> {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Ok(Fields::new());
    };
    let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    else {
        return Ok(Fields::new());
    };
    let Some(value) = annotations.remove(annotation) else {
        return Ok(Fields::new());
    };
    let refuse = |source| ConversionError::Annotation { annotation, source };
    let kept: Kept = match &value {
        Value::String(text) => serde_json::from_str(text).map_err(refuse)?,
        other => serde_json::from_value(other.clone()).map_err(refuse)?,
    };
    if let Some(shadowed) = kept.shadowed {
        annotations.insert(annotation.to_owned(), shadowed);
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Ok(kept.spec)
}

/// Keeps what the target cannot say, and beside it an annotation of that name which stands there already.
fn keep(
    object: &mut Fields,
    annotation: &'static str,
    spec: Fields,
) -> Result<(), ConversionError> {
    let shadowed = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations")?.get(annotation))
        .cloned();
    if spec.is_empty() && shadowed.is_none() {
        return Ok(());
    }
    let refuse = |source| ConversionError::Annotation { annotation, source };
    let text = serde_json::to_string(&Kept { spec, shadowed }).map_err(refuse)?;
    let metadata = child(object, "metadata", "metadata")?;
    child(metadata, "annotations", "metadata.annotations")?
        .insert(annotation.to_owned(), text.into());
    Ok(())
}

fn child<'a>(
    parent: &'a mut Fields,
    name: &str,
    path: &'static str,
) -> Result<&'a mut Fields, ConversionError> {
    let child = parent
        .entry(name)
        .or_insert_with(|| Value::Object(Fields::new()));
    if child.is_null() {
        *child = Value::Object(Fields::new());
    }
    child.as_object_mut().ok_or(ConversionError::NotAMap(path))
}

#[cfg(test)]
mod tests;

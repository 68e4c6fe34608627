//! Fields that no schema knows, in a manifest as it was written: each is told of, and what was probably meant.
//!
//! The API server drops such fields before anyone is asked. `kubectl apply` leaves the manifest in an annotation, which still has
//! them. It is read as a stream against the schema of the CRD: nothing of it is kept but the names that are told.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::finding::{LONGEST_WARNING, Warning};
use super::nearest::nearest;
use crate::crd::all_crds;
use crate::v1beta2::GROUP;

/// Where `kubectl apply` leaves the manifest.
pub const AS_WRITTEN: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How many fields are named; the rest is counted.
const MOST: usize = 3;
/// All annotations of an object together are not longer: a longer text was not stored by an API server.
const LONGEST_MANIFEST: usize = 256 << 10;
/// No field of ours has a longer name.
const LONGEST_NAME: usize = 64;

/// Warns of the fields of `manifest`, the JSON of an object of that kind, that the schema of its version does not know.
///
/// Silent where there is nothing to compare: what is no JSON, and a version that is not ours.
pub fn judge_unknown(kind: &str, manifest: &str) -> Vec<Warning> {
    if manifest.len() > LONGEST_MANIFEST {
        return Vec::new();
    }
    let Ok(head) = serde_json::from_str::<Head<'_>>(manifest) else {
        return Vec::new();
    };
    let Some(fields) = fields_of(kind, &head.api_version) else {
        return Vec::new();
    };
    let mut found = Found::default();
    let mut json = serde_json::Deserializer::from_str(manifest);
    let compare = Compare {
        fields,
        path: &mut String::new(),
        found: &mut found,
    };
    match compare.deserialize(&mut json).and_then(|()| json.end()) {
        Ok(()) => found.into_warnings(),
        Err(_) => Vec::new(),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
}

/// What may stand at one place of a manifest.
#[derive(Debug)]
enum Fields {
    /// These, and no others.
    Named(BTreeMap<String, Fields>),
    /// Every entry of a list, or every value of a map, alike.
    Each(Box<Fields>),
    /// Nothing that has fields, or fields that are not ours to know.
    Any,
}

impl Fields {
    fn of(schema: JSONSchemaProps) -> Self {
        if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
            return Self::Any;
        }
        if let Some(properties) = schema.properties {
            let named = properties
                .into_iter()
                .map(|(name, schema)| (name, Self::of(schema)));
            return Self::Named(named.collect());
        }
        let each = match (schema.items, schema.additional_properties) {
            (Some(JSONSchemaPropsOrArray::Schema(each)), _)
            | (_, Some(JSONSchemaPropsOrBool::Schema(each))) => Self::of(*each),
            _ => return Self::Any,
        };
        match each {
            Self::Any => Self::Any,
            each => Self::Each(Box::new(each)),
        }
    }

    /// A whole object. Its metadata is not the schema's to know, and nobody writes a status.
    fn of_object(schema: JSONSchemaProps) -> Self {
        let mut object = Self::of(schema);
        if let Self::Named(fields) = &mut object {
            for name in ["apiVersion", "kind", "metadata", "status"] {
                fields.insert(name.to_owned(), Self::Any);
            }
        }
        object
    }
}

/// Read from the CRDs once, when the first manifest is looked at.
fn fields_of(kind: &str, api_version: &str) -> Option<&'static Fields> {
    static KNOWN: LazyLock<Vec<(String, String, Fields)>> = LazyLock::new(|| {
        let mut known = Vec::new();
        for crd in all_crds() {
            for version in crd.spec.versions {
                let schema = version.schema.and_then(|schema| schema.open_api_v3_schema);
                if let Some(schema) = schema {
                    let api_version = format!("{GROUP}/{}", version.name);
                    let kind = crd.spec.names.kind.clone();
                    known.push((kind, api_version, Fields::of_object(schema)));
                }
            }
        }
        known
    });
    KNOWN
        .iter()
        .find(|(known, version, _)| known == kind && version == api_version)
        .map(|(_, _, fields)| fields)
}

/// What is told.
#[derive(Default)]
struct Found {
    named: Vec<Warning>,
    more: usize,
}

impl Found {
    fn unknown(&mut self, path: &str, name: &str, known: &BTreeMap<String, Fields>) {
        if self.named.len() == MOST {
            self.more += 1;
            return;
        }
        let meant = nearest(name, known.keys().map(String::as_str));
        self.named.push(warning(path, &shown(name), meant));
    }

    fn into_warnings(self) -> Vec<Warning> {
        let mut warnings = self.named;
        if self.more > 0 {
            warnings.push(Warning {
                field: format!("{} more", self.more),
                message: "unknown fields, ignored".to_owned(),
            });
        }
        warnings
    }
}

/// With its whole path where that fits a warning, else by its name alone: the end of the line is what helps.
fn warning(path: &str, name: &str, meant: Option<&str>) -> Warning {
    let message = |meant: Option<String>| match meant {
        Some(meant) => format!("unknown field, ignored; did you mean {meant}?"),
        None => "unknown field, ignored".to_owned(),
    };
    let at = |name: &str| joined(path, name);
    let forms = [
        (at(name), message(meant.map(at))),
        (at(name), message(meant.map(ToOwned::to_owned))),
    ];
    let fits = |(field, message): &(String, String)| {
        field.chars().count() + message.chars().count() + 2 <= LONGEST_WARNING
    };
    let (field, message) = forms
        .into_iter()
        .find(fits)
        .unwrap_or_else(|| (format!("….{name}"), message(meant.map(ToOwned::to_owned))));
    Warning { field, message }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// A name as it can stand in a line: without what would break it, and not longer than any that was meant.
fn shown(name: &str) -> String {
    let clean = |letter: char| if letter.is_control() { '?' } else { letter };
    let mut shown: String = name.chars().take(LONGEST_NAME).map(clean).collect();
    if name.chars().nth(LONGEST_NAME).is_some() {
        shown.push('…');
    }
    shown
}

/// Reads one value of a manifest against what may stand there.
struct Compare<'a> {
    fields: &'static Fields,
    /// Of the value, for people.
    path: &'a mut String,
    found: &'a mut Found,
}

impl Compare<'_> {
    /// The same for a value within this one.
    fn within(&mut self, fields: &'static Fields) -> Compare<'_> {
        Compare {
            fields,
            path: self.path,
            found: self.found,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Compare<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match self.fields {
            // Passed over without recursion, however deep it is.
            Fields::Any => json.deserialize_ignored_any(IgnoredAny).map(drop),
            Fields::Named(_) | Fields::Each(_) => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Compare<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let fields = match self.fields {
                Fields::Named(known) => known.get(name.as_ref()).unwrap_or_else(|| {
                    self.found.unknown(self.path, &name, known);
                    &Fields::Any
                }),
                Fields::Each(fields) => fields,
                Fields::Any => &Fields::Any,
            };
            let parent = self.path.len();
            if !matches!(fields, Fields::Any) {
                let name = shown(&name);
                if parent > 0 {
                    self.path.push('.');
                }
                self.path.push_str(&name);
            }
            map.next_value_seed(self.within(fields))?;
            self.path.truncate(parent);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let fields = match self.fields {
            Fields::Each(fields) => fields,
            // A list where an object must be: the schema refuses it.
            Fields::Named(_) | Fields::Any => &Fields::Any,
        };
        let parent = self.path.len();
        for index in 0_usize.. {
            write!(self.path, "[{index}]").map_err(A::Error::custom)?;
            let more = list.next_element_seed(self.within(fields))?;
            self.path.truncate(parent);
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    // A plain value has no fields; whether it may stand there is the schema's to say.

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;

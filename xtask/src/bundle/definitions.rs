//! The definitions as OLM wants them, and what consoles are told of their fields. Pure.

use anyhow::{Context, Result};
use serde_json::{Value as Json, json};

/// OLM itself writes how objects are converted: where to, and whom to trust.
pub(super) fn for_olm(definition: &Json) -> Json {
    let mut definition = definition.clone();
    definition["spec"]["conversion"] = json!({"strategy": "None"});
    definition
}

/// Whether the chart has the webhook convert it.
pub(super) fn converts(definition: &Json) -> bool {
    definition["spec"]["conversion"]["strategy"] == "Webhook"
}

/// The entry of a definition in `customresourcedefinitions.owned`.
pub(super) fn owned(definition: &Json) -> Result<Json> {
    let spec = &definition["spec"];
    let stored = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .context("a definition stores one version")?;
    let schema = &stored["schema"]["openAPIV3Schema"];
    let kind = spec["names"]["kind"].as_str().context("a kind")?;
    Ok(json!({
        "name": definition["metadata"]["name"],
        "version": stored["name"],
        "kind": kind,
        "displayName": spaced(kind),
        "description": schema["description"],
        "resources": resources(kind),
        "specDescriptors": descriptors(&schema["properties"]["spec"], spec_hint),
        "statusDescriptors": descriptors(&schema["properties"]["status"], status_hint),
    }))
}

/// What a person looks at when something is wrong.
fn resources(kind: &str) -> Json {
    let named = |kinds: &[(&str, &str)]| {
        kinds
            .iter()
            .map(|(kind, version)| json!({"kind": kind, "name": "", "version": version}))
            .collect::<Json>()
    };
    match kind {
        "EtcdCluster" => named(&[
            ("Pod", "v1"),
            ("PersistentVolumeClaim", "v1"),
            ("Service", "v1"),
            ("ConfigMap", "v1"),
            ("Secret", "v1"),
            ("PodDisruptionBudget", "v1"),
        ]),
        _ => named(&[("EtcdCluster", "v1beta2"), ("Secret", "v1")]),
    }
}

/// One for each field that stands at the top and says what it is.
fn descriptors(schema: &Json, hint: impl Fn(&str) -> Option<&'static str>) -> Json {
    schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, field)| field["description"].is_string())
        .map(|(name, field)| {
            let mut descriptor = json!({
                "path": name,
                "displayName": spaced(name),
                "description": field["description"],
            });
            if let Some(hint) = hint(name) {
                descriptor["x-descriptors"] = json!([hint]);
            }
            descriptor
        })
        .collect()
}

fn spec_hint(field: &str) -> Option<&'static str> {
    Some(match field {
        "size" => "urn:alm:descriptor:com.tectonic.ui:podCount",
        "version" | "repository" => "urn:alm:descriptor:com.tectonic.ui:text",
        "paused" | "deletionProtection" => "urn:alm:descriptor:com.tectonic.ui:booleanSwitch",
        _ => return None,
    })
}

fn status_hint(field: &str) -> Option<&'static str> {
    Some(match field {
        "conditions" => "urn:alm:descriptor:io.kubernetes.conditions",
        "phase" => "urn:alm:descriptor:io.kubernetes.phase",
        "members" => "urn:alm:descriptor:com.tectonic.ui:podStatuses",
        "serviceName" => "urn:alm:descriptor:io.kubernetes:Service",
        "summary" | "currentVersion" | "targetVersion" | "leader" | "clientEndpoint" => {
            "urn:alm:descriptor:text"
        }
        _ => return None,
    })
}

/// `deletionProtection` → `Deletion Protection`, `clientTLS` → `Client TLS`, `EtcdCluster` → `Etcd Cluster`
fn spaced(name: &str) -> String {
    let mut words = String::new();
    let mut before_lower = false;
    for (at, letter) in name.char_indices() {
        if at == 0 {
            words.extend(letter.to_uppercase());
        } else {
            if letter.is_uppercase() && before_lower {
                words.push(' ');
            }
            words.push(letter);
        }
        before_lower = letter.is_lowercase() || letter.is_ascii_digit();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_become_words() {
        assert_eq!(spaced("deletionProtection"), "Deletion Protection");
        assert_eq!(spaced("clientTLS"), "Client TLS");
        assert_eq!(spaced("EtcdCluster"), "Etcd Cluster");
        assert_eq!(spaced("TLS"), "TLS");
    }

    #[test]
    fn a_definition_is_described_from_its_stored_version() {
        let version = |name: &str, storage: bool| {
            json!({"name": name, "storage": storage, "schema": {"openAPIV3Schema": {
                "description": format!("of {name}"),
                "properties": {"spec": {"properties": {"size": {"description": "How many."}, "silent": {}}}},
            }}})
        };
        let definition = json!({
            "metadata": {"name": "etcdclusters.x"},
            "spec": {"names": {"kind": "EtcdCluster"}, "versions": [version("a", false), version("b", true)]},
        });
        let owned = owned(&definition).unwrap();
        assert_eq!(owned["version"], "b");
        assert_eq!(owned["description"], "of b");
        let size = &owned["specDescriptors"][0];
        assert_eq!(size["path"], "size");
        assert_eq!(
            size["x-descriptors"],
            json!(["urn:alm:descriptor:com.tectonic.ui:podCount"])
        );
        assert_eq!(owned["specDescriptors"].as_array().unwrap().len(), 1);
    }
}

//! A CustomResourceDefinition as a template of the chart. Pure.

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::yaml;

/// The chart's template for one definition: its switch, its metadata and its conversion come from the chart, the rest
/// from the types.
pub(super) fn template(definition: &CustomResourceDefinition) -> anyhow::Result<String> {
    let mut definition = definition.clone();
    let name = definition
        .metadata
        .name
        .clone()
        .context("a CRD without a name")?;
    let names = &mut definition.spec.names;
    // The API server would fill this in; written out, no tool sees a difference.
    names
        .list_kind
        .get_or_insert_with(|| format!("{}List", names.kind));
    let conversion = if converts(&definition) {
        "\n    {{- include \"etcd-operator.conversion\" . | nindent 4 }}"
    } else {
        "\n    strategy: None"
    };
    definition.spec.conversion = None;
    let spec =
        serde_json::to_value(&definition.spec).with_context(|| format!("{name} is not JSON"))?;
    let spec = yaml::text(&spec).with_context(|| name.clone())?;
    Ok(format!(
        "{{{{- /* Generated from the api crate by `cargo xtask generate`. Do not edit. */}}}}
{{{{- if .Values.crds.install }}}}
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {name}
  {{{{- include \"etcd-operator.crdMetadata\" . | nindent 2 }}}}
spec:
  conversion:{conversion}
{spec}{{{{- end }}}}
",
        spec = indented(&literal(&spec)),
    ))
}

/// The chart's list of the definitions whose conversion the webhook serves.
pub(super) fn names(definitions: &[CustomResourceDefinition]) -> String {
    let mut list = String::new();
    for definition in definitions.iter().filter(|definition| converts(definition)) {
        if let Some(name) = &definition.metadata.name {
            list.push_str("- ");
            list.push_str(name);
            list.push('\n');
        }
    }
    format!(
        "{{{{/* Generated from the api crate by `cargo xtask generate`. Do not edit. */}}}}
{{{{- define \"etcd-operator.crdNames\" -}}}}
{list}{{{{- end }}}}
"
    )
}

/// With one version there is nothing to convert, and so nothing that could fail.
fn converts(definition: &CustomResourceDefinition) -> bool {
    definition.spec.versions.len() > 1
}

/// Text that Helm must not read as a template.
fn literal(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

fn indented(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines() {
        if !line.is_empty() {
            out.push_str("  ");
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    fn definition(versions: &[&str]) -> CustomResourceDefinition {
        let versions: Vec<Json> = versions
            .iter()
            .map(|name| {
                serde_json::json!({
                    "name": name, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "description": "holds {{ braces }}\n\nand lines"}},
                })
            })
            .collect();
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things"},
                "versions": versions,
            },
        }))
        .unwrap()
    }

    #[test]
    fn one_version_is_never_converted() {
        let one = definition(&["v1"]);
        assert!(
            template(&one)
                .unwrap()
                .contains("  conversion:\n    strategy: None\n")
        );
        assert!(!names(&[one]).contains("things.example.com"));
    }

    #[test]
    fn several_versions_are_converted_by_the_webhook() {
        let two = definition(&["v1", "v2"]);
        assert!(
            template(&two)
                .unwrap()
                .contains("include \"etcd-operator.conversion\"")
        );
        assert!(names(&[two]).contains("- things.example.com\n"));
    }

    #[test]
    fn braces_of_a_description_are_not_a_template() {
        let text = template(&definition(&["v1"])).unwrap();
        assert!(text.contains("holds {{ \"{{\" }} braces }}"), "{text}");
    }

    #[test]
    fn what_the_api_server_would_fill_in_is_written_out() {
        assert!(
            template(&definition(&["v1"]))
                .unwrap()
                .contains("listKind: ThingList")
        );
    }
}

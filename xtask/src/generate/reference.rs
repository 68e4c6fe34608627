//! The API reference for people, from the schemas of the CRDs. Pure.

use std::fmt::Write as _;

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::Value as Json;

use super::sorted;

/// Fields whose type is Kubernetes' own: named, not unfolded, because Kubernetes documents them better.
const KUBERNETES: [(&str, &str); 9] = [
    ("affinity", "Affinity"),
    ("conditions", "[]Condition"),
    ("etcdEnv", "[]EnvVar"),
    ("imagePullSecrets", "[]LocalObjectReference"),
    ("persistentVolumeClaimSpec", "PersistentVolumeClaimSpec"),
    ("resources", "ResourceRequirements"),
    ("securityContext", "PodSecurityContext"),
    ("tolerations", "[]Toleration"),
    ("topologySpreadConstraints", "[]TopologySpreadConstraint"),
];

pub(super) fn page(definitions: &[CustomResourceDefinition]) -> anyhow::Result<String> {
    let mut page = "# API reference\n\n\
        <!-- Generated from the api crate by `cargo xtask generate`. Do not edit. -->\n\n\
        The same words answer `kubectl explain etcdcluster.spec --recursive`. Every field of a `spec` is optional.\n"
        .to_owned();
    for definition in definitions {
        let names = &definition.spec.names;
        let short = names
            .short_names
            .iter()
            .flatten()
            .map(|name| format!("`{name}`"));
        let short: Vec<String> = short.collect();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(page, "\n## {}\n", names.kind);
        let _ = write!(
            page,
            "Group `{}`, plural `{}`",
            definition.spec.group, names.plural
        );
        if !short.is_empty() {
            let _ = write!(page, ", short names {}", short.join(", "));
        }
        page.push_str(".\n");
        let mut versions: Vec<&CustomResourceDefinitionVersion> =
            definition.spec.versions.iter().collect();
        versions.sort_by_key(|version| !version.storage);
        for version in versions {
            describe_version(&mut page, definition, version)?;
        }
    }
    Ok(page)
}

fn describe_version(
    page: &mut String,
    definition: &CustomResourceDefinition,
    version: &CustomResourceDefinitionVersion,
) -> anyhow::Result<()> {
    let kind = &definition.spec.names.kind;
    let schema = version
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    let schema = schema.with_context(|| format!("{kind} {} has no schema", version.name))?;
    let schema = sorted(serde_json::to_value(schema)?);
    let stored = if version.storage { " (stored)" } else { "" };
    let _ = writeln!(page, "\n### {kind} {}{stored}", version.name);
    if let Some(description) = schema["description"].as_str() {
        let _ = writeln!(page, "\n{}", paragraph(description));
    }
    rules(page, &schema);
    for part in ["spec", "status"] {
        if let Some(schema) = schema["properties"].get(part) {
            describe_object(page, part, schema);
        }
    }
    Ok(())
}

/// A table of the fields at `path`, then one for each object below it.
fn describe_object(page: &mut String, path: &str, schema: &Json) {
    let _ = writeln!(page, "\n#### `{path}`");
    if let Some(description) = schema["description"].as_str() {
        let _ = writeln!(page, "\n{}", paragraph(description));
    }
    page.push_str("\n| field | type | description |\n|---|---|---|\n");
    let mut below = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == name));
        let mut words = field["description"]
            .as_str()
            .map(paragraph)
            .unwrap_or_default();
        if required {
            words = format!("Required. {words}");
        }
        let limits = limits(field);
        if !limits.is_empty() {
            let _ = write!(words, " ({})", limits.join(", "));
        }
        let elsewhere = is_cluster_spec(path, name);
        let kind = if elsewhere {
            "`spec` of an [EtcdCluster](#etcdcluster)".to_owned()
        } else {
            kind_of(name, field)
        };
        let _ = writeln!(
            page,
            "| `{name}` | {kind} | {} |",
            words.trim().replace('|', "\\|")
        );
        if !is_of_kubernetes(name) && !elsewhere {
            below.extend(object_below(&format!("{path}.{name}"), field));
        }
    }
    rules(page, schema);
    for (path, schema) in below {
        describe_object(page, &path, schema);
    }
}

/// A cluster's spec inside another resource: described once, where it belongs.
fn is_cluster_spec(path: &str, name: &str) -> bool {
    path == "spec.newCluster" && name == "spec"
}

/// The object that a field is, or holds a list or a map of.
fn object_below<'a>(path: &str, field: &'a Json) -> Option<(String, &'a Json)> {
    if field["properties"].is_object() {
        Some((path.to_owned(), field))
    } else if field["items"].is_object() {
        object_below(&format!("{path}[]"), &field["items"])
    } else if field["additionalProperties"].is_object() {
        object_below(&format!("{path}.*"), &field["additionalProperties"])
    } else {
        None
    }
}

fn is_of_kubernetes(name: &str) -> bool {
    KUBERNETES.iter().any(|(field, _)| *field == name)
}

fn kind_of(name: &str, field: &Json) -> String {
    if let Some((_, kind)) = KUBERNETES.iter().find(|(field, _)| *field == name) {
        return format!("Kubernetes `{kind}`");
    }
    if let Some(allowed) = field["enum"].as_array() {
        let allowed: Vec<String> = allowed
            .iter()
            .filter_map(Json::as_str)
            .map(|one| format!("`{one}`"))
            .collect();
        return allowed.join(", ");
    }
    plain_kind(field)
}

fn plain_kind(field: &Json) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "quantity".to_owned();
    }
    match field["type"].as_str() {
        Some("array") => format!("list of {}", plain_kind(&field["items"])),
        Some("object") if field["additionalProperties"].is_object() => {
            format!("map to {}", plain_kind(&field["additionalProperties"]))
        }
        Some("string") if field["format"] == "date-time" => "time".to_owned(),
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}

fn limits(field: &Json) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(default) = field.get("default").filter(|default| !default.is_null()) {
        limits.push(format!("default `{default}`"));
    }
    // Lengths are bounded only to keep the API server's own checks cheap; nobody meets those bounds.
    let named = [("minimum", "at least"), ("maximum", "at most")];
    for (key, words) in named {
        if let Some(limit) = field[key].as_f64() {
            limits.push(format!("{words} {limit}"));
        }
    }
    if let Some(pattern) = field["pattern"].as_str() {
        limits.push(format!("pattern `{pattern}`"));
    }
    limits
}

/// What the API server itself refuses at this object and its plain fields, in its own words.
fn rules(page: &mut String, schema: &Json) {
    let mut lines = said_by(None, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if is_of_kubernetes(name) || object_below("", field).is_none() {
            lines.extend(said_by(Some(name), field));
        }
    }
    if lines.is_empty() {
        return;
    }
    page.push_str("\nChecked by the API server itself, also while no webhook runs:\n\n");
    for line in lines {
        let _ = writeln!(page, "- {line}");
    }
}

/// The messages of the rules on one schema, each led by the field it is about.
fn said_by(field: Option<&str>, schema: &Json) -> Vec<String> {
    let rules = schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten();
    rules
        .map(|rule| {
            let words = rule["message"].as_str().map_or_else(
                || spoken(rule["messageExpression"].as_str().unwrap_or_default()),
                str::to_owned,
            );
            let path = rule["fieldPath"]
                .as_str()
                .map(|path| path.trim_start_matches('.'));
            let field = field
                .or(path)
                .map(|field| format!("`{field}` "))
                .unwrap_or_default();
            format!("{field}{}", paragraph(&words))
        })
        .collect()
}

/// A CEL message, `'at most %s'.format([self.x])` or `'at most ' + self.x`, as words: what is computed becomes an ellipsis.
fn spoken(expression: &str) -> String {
    let (template, _) = expression
        .split_once(".format(")
        .unwrap_or((expression, ""));
    let mut words = String::new();
    let mut in_literal = false;
    // What stands in brackets is part of a computation, also where it is a literal.
    let mut depth = 0_u32;
    let mut letters = template.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => in_literal = !in_literal,
            '\\' if in_literal && depth == 0 => words.extend(letters.next()),
            '\\' if in_literal => drop(letters.next()),
            _ if in_literal && depth == 0 => words.push(letter),
            '(' | '[' if !in_literal => depth += 1,
            ')' | ']' if !in_literal => depth = depth.saturating_sub(1),
            ' ' | '+' => {}
            _ if words.ends_with('…') => {}
            _ => words.push('…'),
        }
    }
    words
        .replace("%s", "…")
        .replace("%d", "…")
        .replace("%%", "%")
}

/// One paragraph, safe in a table's cell: outside code, `<` would start a tag.
fn paragraph(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut in_code = false;
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        in_code ^= letter == '`';
        if letter == '<' && !in_code {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(spec: &Json) -> String {
        let definition = serde_json::json!({
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things", "shortNames": ["th"]},
                "versions": [
                    {"name": "v1alpha1", "served": true, "storage": false,
                     "schema": {"openAPIV3Schema": {"type": "object"}}},
                    {"name": "v1", "served": true, "storage": true,
                     "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}},
                ],
            },
        });
        page(&[serde_json::from_value(definition).unwrap()]).unwrap()
    }

    #[test]
    fn a_field_shows_its_type_limits_and_words() {
        let page = page_of(&serde_json::json!({"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 7, "description": "How many\nmembers."},
            "mode": {"type": "string", "enum": ["Auto", "Off"]},
        }}));
        assert!(
            page.contains("| `size` | integer | How many members. (at least 1, at most 7) |"),
            "{page}"
        );
        assert!(page.contains("| `mode` | `Auto`, `Off` |  |"), "{page}");
    }

    #[test]
    fn objects_are_unfolded_but_those_of_kubernetes_are_not() {
        let page = page_of(&serde_json::json!({"type": "object", "properties": {
            "affinity": {"type": "object", "properties": {"deep": {"type": "string"}}},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        }}));
        assert!(
            page.contains("| `affinity` | Kubernetes `Affinity` |"),
            "{page}"
        );
        assert!(!page.contains("deep"), "{page}");
        assert!(page.contains("#### `spec.parts[]`"), "{page}");
    }

    #[test]
    fn a_clusters_spec_elsewhere_is_not_told_again() {
        let page = page_of(&serde_json::json!({"type": "object", "properties": {
            "newCluster": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"deep": {"type": "string"}}},
            }},
        }}));
        assert!(
            page.contains("| `spec` | `spec` of an [EtcdCluster](#etcdcluster) |"),
            "{page}"
        );
        assert!(!page.contains("deep"), "{page}");
    }

    #[test]
    fn the_stored_version_comes_first() {
        let page = page_of(&serde_json::json!({"type": "object"}));
        assert!(page.find("Thing v1 (stored)").unwrap() < page.find("Thing v1alpha1").unwrap());
    }

    #[test]
    fn rules_of_the_api_server_are_listed() {
        let page = page_of(
            &serde_json::json!({"type": "object", "x-kubernetes-validations": [
                {"rule": "self.size % 2 == 1", "message": "must be odd"},
            ]}),
        );
        assert!(page.contains("- must be odd\n"), "{page}");
    }

    #[test]
    fn a_computed_message_is_spoken_with_ellipses() {
        assert_eq!(
            spoken("'not ' + string(self) + ' but ' + (self > 1 ? 'a' : 'b')"),
            "not … but …"
        );
        assert_eq!(
            spoken("'not %s of %s, it\\'s 5 %%'.format([string(self), 'x'])"),
            "not … of …, it's 5 %"
        );
    }

    #[test]
    fn angle_brackets_outside_code_do_not_become_tags() {
        assert_eq!(
            paragraph("image is <repo>, `<repo>`"),
            "image is \\<repo>, `<repo>`"
        );
    }
}

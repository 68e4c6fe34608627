//! The chart's `values.yaml`: its comments become the README's table, and its keys must be those of the schema. Pure.
//!
//! A comment directly above a key describes that key. A described key is one row, unless something below it is
//! described too: then it is a heading of those.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use serde_json::Value as Json;

use super::sorted;

const BEGIN: &str = "<!-- values: begin (generated from values.yaml by `cargo xtask generate`) -->";
const END: &str = "<!-- values: end -->";

/// Keys the schema allows for the sake of a parent chart, and this chart never reads.
const OF_A_PARENT_CHART: [&str; 2] = ["enabled", "global"];

#[derive(Debug)]
pub(super) struct Values {
    rows: Vec<Row>,
    defaults: Json,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Dotted path, `webhook.replicas`.
    key: String,
    default: String,
    description: String,
}

struct Entry {
    path: Vec<String>,
    comment: String,
}

pub(super) fn parse(text: &str) -> anyhow::Result<Values> {
    let defaults = sorted(serde_yaml_ng::from_str(text).context("not YAML")?);
    let entries = entries(text);
    let mut rows: Vec<Row> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let key = entry.path.join(".");
        let Some(default) = at(&defaults, &entry.path) else {
            bail!("`{key}` was read as a key but is not one: write lists of maps on one line");
        };
        let below = &entries[index + 1..];
        let below = below
            .iter()
            .take_while(|other| other.path.starts_with(&entry.path));
        let covered = rows
            .iter()
            .any(|row| key.starts_with(&format!("{}.", row.key)));
        if covered || below.clone().any(|other| !other.comment.is_empty()) {
            continue;
        }
        if entry.comment.is_empty() {
            bail!("`{key}` has no comment above it");
        }
        rows.push(Row {
            key,
            default: default.to_string(),
            description: entry.comment.clone(),
        });
    }
    Ok(Values { rows, defaults })
}

/// The keys in the order of the file, each with the comment directly above it.
fn entries(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut path: Vec<String> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(words) = content.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let above = std::mem::take(&mut comment);
        let Some((key, _)) = content
            .split_once(':')
            .filter(|_| !content.starts_with('-'))
        else {
            continue;
        };
        path.truncate((line.len() - content.len()) / 2);
        path.push(key.to_owned());
        entries.push(Entry {
            path: path.clone(),
            comment: above.join(" "),
        });
    }
    entries
}

fn at<'a>(defaults: &'a Json, path: &[String]) -> Option<&'a Json> {
    path.iter().try_fold(defaults, |value, key| value.get(key))
}

impl Values {
    /// The README with its table made anew.
    pub(super) fn put_into(&self, readme: &str) -> anyhow::Result<String> {
        let (before, rest) = readme
            .split_once(BEGIN)
            .with_context(|| format!("no line `{BEGIN}`"))?;
        let (_, after) = rest
            .split_once(END)
            .with_context(|| format!("no line `{END}`"))?;
        Ok(format!("{before}{BEGIN}\n{}{END}{after}", self.table()))
    }

    fn table(&self) -> String {
        let mut table = "| value | default | meaning |\n|---|---|---|\n".to_owned();
        for row in &self.rows {
            let default = row.default.replace('|', "\\|");
            let description = row.description.replace('|', "\\|");
            // Writing to a String cannot fail.
            let _ = writeln!(table, "| `{}` | `{default}` | {description} |", row.key);
        }
        table
    }

    /// Where the schema and the values do not name the same keys.
    pub(super) fn disagreements(&self, schema: &str) -> anyhow::Result<Vec<String>> {
        let schema: Json = serde_json::from_str(schema).context("not JSON")?;
        let mut found = Vec::new();
        self.compare("", &self.defaults, &schema, &schema, &mut found);
        found.sort();
        Ok(found)
    }

    fn compare(
        &self,
        path: &str,
        value: &Json,
        schema: &Json,
        root: &Json,
        found: &mut Vec<String>,
    ) {
        // A described key is the user's to fill; what may stand below it is not in values.yaml.
        if self.rows.iter().any(|row| row.key == path) {
            return;
        }
        let Json::Object(value) = value else { return };
        let below = |key: &str| {
            if path.is_empty() {
                key.to_owned()
            } else {
                format!("{path}.{key}")
            }
        };
        if schema["additionalProperties"] != Json::Bool(false) {
            let place = if path.is_empty() { "the top" } else { path };
            found.push(format!("the schema lets any key pass at {place}"));
        }
        for (key, value) in value {
            let path = below(key);
            match schema["properties"].get(key) {
                Some(schema) => self.compare(&path, value, resolved(schema, root), root, found),
                None => found.push(format!("the schema does not know `{path}`")),
            }
        }
        for key in schema["properties"]
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::keys)
        {
            let for_a_parent = path.is_empty() && OF_A_PARENT_CHART.contains(&key.as_str());
            if !value.contains_key(key) && !for_a_parent {
                found.push(format!("values.yaml lacks `{}`", below(key)));
            }
        }
    }
}

fn resolved<'a>(schema: &'a Json, root: &'a Json) -> &'a Json {
    let target = schema["$ref"]
        .as_str()
        .and_then(|target| target.strip_prefix('#'));
    target
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &str = "\
# What the file is.

# How many.
replicas: 2

pod:
  # Labels | of the pod.
  labels: {}
  # CPU and
  # memory.
  resources:
    limits:
      cpu: 1
  # Who.
  accounts:
    - a:b
";

    #[test]
    fn a_comment_above_a_key_becomes_its_row() {
        let values = parse(VALUES).unwrap();
        let rows: Vec<(&str, &str, &str)> = values
            .rows
            .iter()
            .map(|row| {
                (
                    row.key.as_str(),
                    row.default.as_str(),
                    row.description.as_str(),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("replicas", "2", "How many."),
                ("pod.labels", "{}", "Labels | of the pod."),
                (
                    "pod.resources",
                    r#"{"limits":{"cpu":1}}"#,
                    "CPU and memory."
                ),
                ("pod.accounts", r#"["a:b"]"#, "Who."),
            ]
        );
    }

    #[test]
    fn a_key_without_a_comment_is_refused() {
        let error = parse("# One.\na: 1\n\nb: 2\n").unwrap_err();
        assert_eq!(error.to_string(), "`b` has no comment above it");
    }

    #[test]
    fn the_table_replaces_what_stood_between_the_marks() {
        let readme = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nfoot\n");
        let once = parse(VALUES).unwrap().put_into(&readme).unwrap();
        assert!(!once.contains("old"));
        assert!(once.contains("| `pod.labels` | `{}` | Labels \\| of the pod. |"));
        assert!(once.ends_with(&format!("{END}\n\nfoot\n")));
        assert_eq!(parse(VALUES).unwrap().put_into(&once).unwrap(), once);
    }

    #[test]
    fn keys_that_only_one_of_values_and_schema_has_are_named() {
        let schema = r##"{
            "additionalProperties": false,
            "properties": {"global": {}, "size": {}, "pod": {"$ref": "#/definitions/pod"}},
            "definitions": {"pod": {"properties": {"labels": {}, "resources": {}, "accounts": {}}}}
        }"##;
        assert_eq!(
            parse(VALUES).unwrap().disagreements(schema).unwrap(),
            [
                "the schema does not know `replicas`",
                "the schema lets any key pass at pod",
                "values.yaml lacks `size`",
            ]
        );
    }
}

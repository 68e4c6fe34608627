//! YAML as every reader of Kubernetes manifests understands it, and the same bytes each time. Pure.

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;

/// One document, its keys in order.
pub(crate) fn text(object: &Json) -> Result<String> {
    let object = sorted(object.clone());
    let text = quoted(&serde_yaml_ng::to_string(&object).context("not YAML")?);
    // The quotes are put in line by line; a line of a longer text must not have changed with them.
    let read: Json = serde_yaml_ng::from_str(&text).context("not YAML any more")?;
    ensure!(
        read == object,
        "quoting changed what the YAML says: {object}"
    );
    Ok(text)
}

/// Several documents in one file.
pub(crate) fn documents(objects: &[Json]) -> Result<String> {
    let texts = objects.iter().map(text).collect::<Result<Vec<_>>>()?;
    Ok(texts.join("---\n"))
}

/// Every document of a file; empty ones are none.
pub(crate) fn read(text: &str) -> Result<Vec<Json>> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    let objects = documents.map(|document| {
        serde::Deserialize::deserialize(document).context("not a document of YAML")
    });
    let objects = objects.collect::<Result<Vec<Json>>>()?;
    Ok(objects
        .into_iter()
        .filter(|object| !object.is_null())
        .collect())
}

/// Keys in order. serde_json keeps them in order, or as they came, as the features of any crate in the build decide; what
/// is generated must not depend on that.
pub(crate) fn sorted(json: Json) -> Json {
    match json {
        Json::Object(object) => {
            let mut entries: Vec<(String, Json)> = object.into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Json::Object(
                entries
                    .into_iter()
                    .map(|(key, value)| (key, sorted(value)))
                    .collect(),
            )
        }
        Json::Array(items) => Json::Array(items.into_iter().map(sorted).collect()),
        plain => plain,
    }
}

/// Words that YAML 1.1, which Helm and kubectl read, takes for booleans: `mode: Off` would arrive as false.
fn quoted(yaml: &str) -> String {
    const BOOLEANS: [&str; 6] = ["y", "n", "yes", "no", "on", "off"];
    let mut text = String::with_capacity(yaml.len());
    for line in yaml.lines() {
        let start = line
            .rfind(": ")
            .or_else(|| line.rfind("- "))
            .map(|at| at + 2);
        match start.map(|start| line.split_at(start)) {
            Some((key, word)) if BOOLEANS.contains(&word.to_ascii_lowercase().as_str()) => {
                text.push_str(key);
                text.push('"');
                text.push_str(word);
                text.push('"');
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_that_older_yaml_takes_for_booleans_are_quoted() {
        let yaml = "enum:\n- Auto\n- Off\ndefault: on\ntext: switch it off\n";
        assert_eq!(
            quoted(yaml),
            "enum:\n- Auto\n- \"Off\"\ndefault: \"on\"\ntext: switch it off\n"
        );
    }

    #[test]
    fn what_is_written_is_read_again_as_it_was() {
        let objects = [json!({"b": ["Off"], "a": 1}), json!({"c": "two\nlines\n"})];
        let text = documents(&objects).unwrap();
        assert!(text.starts_with("a: 1\nb:\n- \"Off\"\n---\n"), "{text}");
        assert_eq!(read(&text).unwrap(), objects);
    }

    #[test]
    fn a_text_that_quoting_would_change_is_refused() {
        assert!(text(&json!({"text": "switch\nit: off\n"})).is_err());
    }

    #[test]
    fn empty_documents_are_none() {
        assert_eq!(
            read("---\n# nothing\n---\na: 1\n").unwrap(),
            [json!({"a": 1})]
        );
    }
}

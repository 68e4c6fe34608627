//! The chart as Helm renders it, as objects, with nothing left in them that only means something to Helm. Runs `helm template`.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use crate::{
    cache::Cache,
    command,
    operator::{CHART, RELEASE, checkout},
    programs::{self, Program},
    yaml,
};

/// Labels and annotations that say "Helm made this": whoever applies the objects without Helm did.
const MARKS: [&str; 3] = [
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "helm.sh/resource-policy",
];
const HOOK: &str = "helm.sh/hook";

/// What a release in that namespace consists of, in the order in which Helm would make it; hooks are no part of it.
pub(crate) fn objects(namespace: &str, arguments: &[String]) -> Result<Vec<Json>> {
    Ok(with_hooks(namespace, arguments)?
        .into_iter()
        .filter(|object| object["metadata"]["annotations"].get(HOOK).is_none())
        .map(without_marks)
        .collect())
}

/// Everything that Helm renders, as it renders it.
pub(crate) fn with_hooks(namespace: &str, arguments: &[String]) -> Result<Vec<Json>> {
    let helm = programs::ensure(&Cache::open()?, std::slice::from_ref(&Program::Helm4))?
        .file(&Program::Helm4)?;
    let mut template = Command::new(helm);
    template
        .current_dir(checkout())
        .args(["template", RELEASE, CHART, "--namespace", namespace])
        .args(arguments);
    let text = command::output(&mut template)?;
    yaml::read(&text).context("what Helm renders")
}

/// Removes Helm's marks wherever labels and annotations stand, also those of a pod template.
fn without_marks(mut object: Json) -> Json {
    match &mut object {
        Json::Object(fields) => {
            for key in ["labels", "annotations"] {
                if let Some(Json::Object(words)) = fields.get_mut(key) {
                    for mark in MARKS {
                        words.remove(mark);
                    }
                    if words.is_empty() {
                        fields.remove(key);
                    }
                }
            }
            for value in fields.values_mut() {
                *value = without_marks(value.take());
            }
        }
        Json::Array(items) => {
            for item in items {
                *item = without_marks(item.take());
            }
        }
        _ => {}
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_marks_of_helm_go_and_all_else_stays() {
        let object = json!({
            "metadata": {
                "labels": {"app.kubernetes.io/managed-by": "Helm", "app": "x"},
                "annotations": {"helm.sh/resource-policy": "keep"},
            },
            "spec": {"template": {"metadata": {"labels": {"helm.sh/chart": "x-1", "app": "x"}}}, "list": [1]},
        });
        assert_eq!(
            without_marks(object),
            json!({
                "metadata": {"labels": {"app": "x"}},
                "spec": {"template": {"metadata": {"labels": {"app": "x"}}}, "list": [1]},
            })
        );
    }
}

//! `cargo xtask manifests`: the operator as one file for `kubectl apply -f`, and beside it a base for kustomize, both from the chart.

use anyhow::{Result, ensure};
use serde_json::{Value as Json, json};

use crate::{
    committed::{self, Wanted},
    operator::{NAMESPACE, RELEASE, checkout},
    rendered, yaml,
};

const FOLDER: &str = "deploy";
const FILE: &str = "etcd-operator.yaml";
const HEADER: &str = "\
# etcd-operator without Helm: `kubectl apply -f` this file, or build on the folder with kustomize.
# Rendered from charts/etcd-operator by `cargo xtask manifests`. Do not edit.
";
const KUSTOMIZATION: &str = "\
# A base for kustomize. Rendered by `cargo xtask manifests`. Do not edit.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- etcd-operator.yaml
";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write nothing; fail when the committed files are not what would be written
    #[arg(long, conflicts_with = "stdout")]
    check: bool,
    /// Print the file instead of writing it, for another namespace or other values
    #[arg(long)]
    stdout: bool,
    /// The namespace to install into; it is part of many names, so a later edit or kustomize's `namespace` would not do
    #[arg(long, default_value = NAMESPACE, requires = "stdout")]
    namespace: String,
    /// What `helm template` is to be told: `-- --set webhook.replicas=3`
    #[arg(last = true, requires = "stdout")]
    values: Vec<String>,
}

#[allow(clippy::needless_pass_by_value)] // As every command is called.
pub fn run(args: Args) -> Result<()> {
    if args.stdout {
        print!("{}", file(&args.namespace, &args.values)?);
        return Ok(());
    }
    write(args.check)
}

pub(crate) fn write(check: bool) -> Result<()> {
    let files = vec![
        Wanted::new(format!("{FOLDER}/{FILE}"), file(NAMESPACE, &[])?),
        Wanted::new(format!("{FOLDER}/kustomization.yaml"), KUSTOMIZATION),
    ];
    committed::keep(&checkout(), files, check, "cargo xtask manifests")
}

fn file(namespace: &str, values: &[String]) -> Result<String> {
    let mut objects = vec![own_namespace(namespace)];
    objects.extend(rendered::objects(namespace, values)?);
    sound(&objects)?;
    Ok(format!("{HEADER}{}", yaml::documents(&objects)?))
}

/// Helm makes the namespace itself; here it must be the first of the objects.
fn own_namespace(name: &str) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/instance": RELEASE,
                "app.kubernetes.io/part-of": "etcd-operator",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    })
}

/// What must hold of a file that nobody looks at before it is applied.
fn sound(objects: &[Json]) -> Result<()> {
    for kind in [
        "Namespace",
        "CustomResourceDefinition",
        "Deployment",
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
    ] {
        ensure!(
            objects.iter().any(|object| object["kind"] == kind),
            "no {kind} is rendered"
        );
    }
    for object in objects {
        // Of one who is not told, kubectl takes the user's current namespace.
        let name = &object["metadata"]["name"];
        let namespaced = [
            "Deployment",
            "Service",
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "ConfigMap",
        ]
        .iter()
        .any(|kind| object["kind"] == *kind);
        ensure!(
            !namespaced || object["metadata"]["namespace"].is_string(),
            "{} {name} names no namespace",
            object["kind"]
        );
        let text = object.to_string();
        ensure!(
            !text.contains("helm.sh/"),
            "{} {name} still speaks to Helm",
            object["kind"]
        );
        ensure!(
            !text.contains("caBundle"),
            "{} {name} holds a caBundle, which is the webhook's to write",
            object["kind"]
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn committed_objects() -> Vec<Json> {
        let text = fs::read_to_string(checkout().join(FOLDER).join(FILE)).unwrap();
        yaml::read(&text).unwrap()
    }

    #[test]
    fn the_committed_file_is_sound_and_begins_with_the_namespace() {
        let objects = committed_objects();
        assert_eq!(objects[0]["kind"], "Namespace");
        assert_eq!(objects[0]["metadata"]["name"], NAMESPACE);
        sound(&objects).unwrap();
    }

    #[test]
    fn what_is_not_sound_is_refused() {
        let mut strays = committed_objects();
        for object in &mut strays {
            if object["kind"] == "Service" {
                object["metadata"]["namespace"] = Json::Null;
            }
        }
        let refused = sound(&strays).unwrap_err().to_string();
        assert!(refused.contains("names no namespace"), "{refused}");
        let refused = sound(&committed_objects()[1..]).unwrap_err().to_string();
        assert_eq!(refused, "no Namespace is rendered");
    }
}

//! `cargo xtask bundle`: the operator for OLM and OperatorHub, made from the chart, the definitions and the examples, and judged by the
//! operator-framework's own validators.

mod csv;
mod definitions;
mod install;
mod webhooks;

use std::{fs, process::Command};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value as Json, json};

use crate::{
    cache::Cache,
    command,
    committed::{self, Wanted},
    operator::{NAMESPACE, checkout},
    programs::{self, Program},
    rendered, yaml,
};

const FOLDER: &str = "bundle";
/// As CoreOS's package is called: who has subscribed to that finds us.
const PACKAGE: &str = "etcd";
/// OLM keeps the certificate: it mounts it, and tells the API server of it. The Secret's name is never read.
const CERTIFICATES: [&str; 6] = [
    "--set",
    "certificates.mode=secret",
    "--set",
    "certificates.secret.name=kept-by-olm",
    "--set",
    "certificates.secret.publishCA=false",
];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write nothing; fail when the committed bundle is not what would be written
    #[arg(long)]
    check: bool,
}

#[allow(clippy::needless_pass_by_value)] // As every command is called.
pub fn run(args: Args) -> Result<()> {
    write(args.check)?;
    validate()
}

pub(crate) fn write(check: bool) -> Result<()> {
    let root = checkout();
    let mut files = wanted()?;
    files.extend(orphans(&files)?);
    committed::keep(&root, files, check, "cargo xtask bundle")
}

/// Asks the operator-framework what it thinks of the bundle that is on the disk.
pub(crate) fn validate() -> Result<()> {
    let cache = Cache::open()?;
    let check = Program::BundleCheck;
    let check = programs::ensure(&cache, std::slice::from_ref(&check))?.file(&check)?;
    let said = command::output(Command::new(check).arg(checkout().join(FOLDER)))?;
    println!("{said}");
    Ok(())
}

/// Channels promise a maturity, and say which of CoreOS's they continue: `clusterwide-alpha`.
fn channel(version: &str) -> String {
    let maturity = if version.starts_with("0.") {
        "candidate"
    } else {
        "stable"
    };
    format!("{maturity}-clusterwide")
}

/// The parts of the rendered chart, by what becomes of them in a bundle.
#[derive(Debug, Default)]
struct Parts {
    deployments: Vec<Json>,
    roles: Vec<Json>,
    bindings: Vec<Json>,
    webhooks: Vec<Json>,
    definitions: Vec<Json>,
    /// What OLM takes as it is.
    plain: Vec<Json>,
}

fn sort(objects: Vec<Json>) -> Result<Parts> {
    let mut parts = Parts::default();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        match kind {
            "Deployment" => parts.deployments.push(object),
            "ClusterRole" | "Role" => parts.roles.push(object),
            "ClusterRoleBinding" | "RoleBinding" => parts.bindings.push(object),
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                parts.webhooks.push(object);
            }
            "CustomResourceDefinition" => parts.definitions.push(object),
            // OLM makes accounts from permissions; policies are not among the kinds that a bundle may hold.
            "ServiceAccount" | "NetworkPolicy" => {}
            // OLM makes its own from the webhooks.
            "Service" if object["metadata"]["name"] == install::SERVICE_OF_THE_CHART => {}
            "Service"
            | "PodDisruptionBudget"
            | "ConfigMap"
            | "ServiceMonitor"
            | "PrometheusRule" => parts.plain.push(object),
            other => bail!("nobody knows what becomes of a {other} in a bundle"),
        }
    }
    Ok(parts)
}

fn wanted() -> Result<Vec<Wanted>> {
    let version = env!("CARGO_PKG_VERSION");
    let root = checkout();
    let text = |path: &str| {
        fs::read_to_string(root.join(path)).with_context(|| format!("could not read {path}"))
    };
    let objects = rendered::objects(NAMESPACE, &CERTIFICATES.map(str::to_owned))?;
    let parts = sort(objects)?;
    let words = csv::Words {
        version,
        description: &text("xtask/olm/description.md")?,
        icon: &text("xtask/olm/icon.svg")?,
        examples: examples()?,
    };
    let mut files = vec![manifest(
        "etcdoperator.clusterserviceversion",
        &csv::cluster_service_version(&parts, &words)?,
    )?];
    for definition in &parts.definitions {
        let name = definition["metadata"]["name"]
            .as_str()
            .context("a definition has a name")?;
        files.push(manifest(name, &definitions::for_olm(definition))?);
    }
    for object in &parts.plain {
        let mut object = object.clone();
        // OLM puts it beside the operator, wherever that is.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let name = format!(
            "{}.{}",
            object["metadata"]["name"].as_str().unwrap_or_default(),
            object["kind"]
                .as_str()
                .unwrap_or_default()
                .to_ascii_lowercase()
        );
        files.push(manifest(&name, &object)?);
    }
    let annotations = annotations(&channel(version));
    files.push(file("metadata/annotations.yaml", &annotations)?);
    files.push(file("tests/scorecard/config.yaml", &scorecard())?);
    files.push(Wanted::new(
        format!("{FOLDER}/bundle.Dockerfile"),
        dockerfile(&annotations),
    ));
    Ok(files)
}

fn manifest(name: &str, object: &Json) -> Result<Wanted> {
    file(&format!("manifests/{name}.yaml"), object)
}

fn file(path: &str, object: &Json) -> Result<Wanted> {
    Ok(Wanted::new(
        format!("{FOLDER}/{path}"),
        format!(
            "# Made from the chart by `cargo xtask bundle`. Do not edit.\n{}",
            yaml::text(object).with_context(|| path.to_owned())?
        ),
    ))
}

/// Manifests of a bundle that was made before: OLM would apply them.
fn orphans(known: &[Wanted]) -> Result<Vec<Wanted>> {
    let folder = format!("{FOLDER}/manifests");
    let Ok(entries) = fs::read_dir(checkout().join(&folder)) else {
        return Ok(Vec::new());
    };
    let mut orphans = Vec::new();
    for entry in entries {
        let path = format!("{folder}/{}", entry?.file_name().to_string_lossy());
        if !known.iter().any(|file| file.path == path) {
            orphans.push(Wanted {
                path,
                contents: None,
            });
        }
    }
    Ok(orphans)
}

/// The examples of this repository, in the order of their names.
fn examples() -> Result<Vec<Json>> {
    let mut paths: Vec<_> = fs::read_dir(checkout().join("examples"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    paths.sort();
    let mut examples = Vec::new();
    for path in paths {
        let read =
            yaml::read(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
        examples.extend(read.into_iter().filter(|object| {
            object["apiVersion"]
                .as_str()
                .is_some_and(|version| version.starts_with("etcd.database.coreos.com/"))
        }));
    }
    ensure!(!examples.is_empty(), "there are no examples");
    Ok(examples)
}

fn annotations(channel: &str) -> Json {
    json!({"annotations": {
        "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
        "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
        "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
        "operators.operatorframework.io.bundle.package.v1": PACKAGE,
        "operators.operatorframework.io.bundle.channels.v1": channel,
        "operators.operatorframework.io.bundle.channel.default.v1": channel,
        "operators.operatorframework.io.test.mediatype.v1": "scorecard+v1",
        "operators.operatorframework.io.test.config.v1": "tests/scorecard/",
    }})
}

fn dockerfile(annotations: &Json) -> String {
    let mut labels: Vec<String> = annotations["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("LABEL {key}={value}\n"))
        .collect();
    labels.sort();
    format!(
        "# Made from the chart by `cargo xtask bundle`. Do not edit.\nFROM scratch\n{}COPY manifests /manifests/\nCOPY metadata /metadata/\nCOPY tests/scorecard /tests/scorecard/\n",
        labels.concat()
    )
}

fn scorecard() -> Json {
    let test = |name: &str, suite: &str| {
        json!({
            "entrypoint": ["scorecard-test", name],
            "image": "quay.io/operator-framework/scorecard-test:v1.39.2",
            "labels": {"suite": suite, "test": format!("{name}-test")},
        })
    };
    json!({
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": true, "tests": [
            test("basic-check-spec", "basic"),
            test("olm-bundle-validation", "olm"),
            test("olm-crds-have-validation", "olm"),
            test("olm-crds-have-resources", "olm"),
            test("olm-spec-descriptors", "olm"),
            test("olm-status-descriptors", "olm"),
        ]}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_tells_its_maturity_and_what_it_continues() {
        assert_eq!(channel("0.1.0"), "candidate-clusterwide");
        assert_eq!(channel("1.0.0"), "stable-clusterwide");
    }

    #[test]
    fn a_kind_that_nobody_thought_of_is_not_dropped_in_silence() {
        let refused = sort(vec![json!({"kind": "Job"})]).unwrap_err();
        assert!(refused.to_string().contains("a Job"), "{refused}");
    }

    #[test]
    fn every_example_of_the_repository_is_in_the_bundle() {
        let examples = examples().unwrap();
        assert!(
            examples
                .iter()
                .any(|example| example["metadata"]["name"] == "example")
        );
    }
}

//! The ClusterServiceVersion: what OLM installs, and what OperatorHub shows. Pure.

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value as Json, json};

use super::{Parts, definitions, install, webhooks};
use crate::{operator::NAMESPACE, yaml};

const REPOSITORY: &str = "https://github.com/etcd-operator/etcd-operator";
/// CoreOS's last one for all namespaces. Its sibling for one namespace is not replaced: its OperatorGroup would not suit us.
const REPLACES: &str = "etcdoperator.v0.9.4-clusterwide";

/// What is not in the chart.
pub(super) struct Words<'a> {
    pub(super) version: &'a str,
    pub(super) description: &'a str,
    /// SVG
    pub(super) icon: &'a str,
    pub(super) examples: Vec<Json>,
}

pub(super) fn cluster_service_version(parts: &Parts, words: &Words) -> Result<Json> {
    let deployments = install::deployments(&parts.deployments)?;
    let (everywhere, here) = install::permissions(&parts.roles, &parts.bindings, NAMESPACE)?;
    let webhook = parts
        .deployments
        .iter()
        .find(|deployment| install::serves(deployment))
        .context("no Deployment serves")?;
    let image = &webhook["spec"]["template"]["spec"]["containers"][0]["image"];
    let owned = parts
        .definitions
        .iter()
        .map(definitions::owned)
        .collect::<Result<Vec<_>>>()?;
    let version = words.version;
    let examples = Json::Array(words.examples.iter().cloned().map(yaml::sorted).collect());
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("etcdoperator.v{version}"),
            // OLM replaces it by the operator's own.
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": serde_json::to_string_pretty(&examples)?,
                "capabilities": "Seamless Upgrades",
                "categories": "Database",
                "certified": "false",
                "containerImage": image,
                "description": "Creates, heals, scales and upgrades etcd clusters, and lets only sound ones in.",
                "operatorframework.io/suggested-namespace": NAMESPACE,
                "repository": REPOSITORY,
                "support": "The etcd-operator authors",
            },
            "labels": {
                "operatorframework.io/arch.amd64": "supported",
                "operatorframework.io/arch.arm64": "supported",
                "operatorframework.io/os.linux": "supported",
            },
        },
        "spec": {
            "displayName": "etcd",
            "version": version,
            "replaces": REPLACES,
            "maturity": if version.starts_with("0.") { "beta" } else { "stable" },
            "minKubeVersion": "1.30.0",
            "description": words.description,
            "icon": [{"base64data": STANDARD.encode(words.icon), "mediatype": "image/svg+xml"}],
            "keywords": ["etcd", "key-value", "database", "coreos", "consensus"],
            "provider": {"name": "The etcd-operator authors", "url": REPOSITORY},
            "links": [
                {"name": "Documentation", "url": format!("{REPOSITORY}/tree/main/docs")},
                {"name": "Source", "url": REPOSITORY},
            ],
            // A conversion webhook is one for the whole cluster.
            "installModes": [
                {"type": "OwnNamespace", "supported": false},
                {"type": "SingleNamespace", "supported": false},
                {"type": "MultiNamespace", "supported": false},
                {"type": "AllNamespaces", "supported": true},
            ],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": everywhere,
                    "permissions": here,
                    "deployments": deployments,
                },
            },
            "customresourcedefinitions": {"owned": owned},
            "webhookdefinitions": webhooks::all(&parts.webhooks, &parts.definitions, webhook)?,
            "relatedImages": [{"name": "etcd-operator", "image": image}],
        },
    }))
}

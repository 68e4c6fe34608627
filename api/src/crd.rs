//! The CustomResourceDefinitions as they are installed: the derived schemas, bounded, with the CEL rules put in their places.
//!
//! How conversion is reached (the webhook's address) is the installer's to add; here are names, versions and schemas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSON, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;
use serde_json::json;

use crate::validation::{
    CelMessage, CelRule, alpha_cel_rules, backup_cel_rules, cluster_cel_rules, restore_cel_rules,
};
use crate::{v1alpha1, v1beta2};

/// Every CRD of the operator.
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    vec![etcdcluster_crd(), etcdbackup_crd(), etcdrestore_crd()]
}

/// EtcdCluster: `v1beta2` stored, `v1alpha1` served.
pub fn etcdcluster_crd() -> CustomResourceDefinition {
    let mut crd = v1beta2::EtcdCluster::crd();
    let mut alpha = v1alpha1::EtcdCluster::crd().spec.versions;
    for version in &mut crd.spec.versions {
        finish(version, &cluster_cel_rules());
    }
    for version in &mut alpha {
        finish(version, &alpha_cel_rules());
        version.storage = false;
    }
    crd.spec.versions.append(&mut alpha);
    crd
}

/// EtcdBackup: one version, nothing to convert.
pub fn etcdbackup_crd() -> CustomResourceDefinition {
    let mut crd = v1beta2::EtcdBackup::crd();
    for version in &mut crd.spec.versions {
        finish(version, &backup_cel_rules());
    }
    crd
}

/// EtcdRestore: one version, nothing to convert.
pub fn etcdrestore_crd() -> CustomResourceDefinition {
    let mut crd = v1beta2::EtcdRestore::crd();
    for version in &mut crd.spec.versions {
        finish(version, &restore_cel_rules());
    }
    crd
}

/// Fields that are Kubernetes' own types: their descriptions are Kubernetes' documentation, and would be most of the CRD.
const FOREIGN: &[&str] = &[
    "pod.affinity",
    "pod.etcdEnv",
    "pod.imagePullSecrets",
    "pod.persistentVolumeClaimSpec",
    "pod.resources",
    "pod.securityContext",
    "pod.tolerations",
    "pod.topologySpreadConstraints",
    "conditions",
    "accepted.persistentVolumeClaimSpec",
];

/// Where such fields are: in a cluster's spec, wherever it stands, and in a status.
const PLACES: &[&str] = &["spec", "spec.newCluster.spec", "status"];

/// Lists whose entries have a name of their own, so that several writers can each own some.
const KEYED_LISTS: &[(&str, &str)] = &[
    ("pod.etcdEnv", "name"),
    ("conditions", "type"),
    ("memberStatus", "name"),
    ("bootstrap.members", "name"),
    ("history", "name"),
];

fn finish(version: &mut CustomResourceDefinitionVersion, rules: &[CelRule]) {
    let Some(root) = version
        .schema
        .as_mut()
        .and_then(|schema| schema.open_api_v3_schema.as_mut())
    else {
        return;
    };
    tidy(root);
    for place in PLACES {
        if let Some(place) = at(root, place) {
            finish_lists_and_foreign(place);
        }
    }
    // kstatus takes -1 for "the controller has not looked yet", also before it has written anything.
    if let Some(status) = at(root, "status") {
        status.default = Some(JSON(json!({"observedGeneration": -1})));
    }
    if let Some(generation) = at(root, "status.observedGeneration") {
        generation.default = Some(JSON(json!(-1)));
    }
    for rule in rules {
        if let Some(node) = at(root, &rule.at) {
            node.x_kubernetes_validations
                .get_or_insert_default()
                .push(validation_rule(rule));
        }
    }
}

fn finish_lists_and_foreign(place: &mut JSONSchemaProps) {
    for path in FOREIGN {
        if let Some(node) = at(place, path) {
            for_each_child(node, &mut drop_descriptions);
        }
    }
    for (path, key) in KEYED_LISTS {
        if let Some(node) = at(place, path) {
            node.x_kubernetes_list_type = Some("map".to_owned());
            node.x_kubernetes_list_map_keys = Some(vec![(*key).to_owned()]);
        }
    }
}

fn validation_rule(rule: &CelRule) -> ValidationRule {
    let (message, message_expression) = match &rule.message {
        CelMessage::Fixed(message) => (Some(message.clone()), None),
        CelMessage::Expression(expression) => (None, Some(expression.clone())),
    };
    ValidationRule {
        field_path: rule.field_path.map(ToOwned::to_owned),
        message,
        message_expression,
        rule: rule.rule.clone(),
        ..ValidationRule::default()
    }
}

/// The node at `spec.pod.labels`; the root for an empty path.
fn at<'a>(root: &'a mut JSONSchemaProps, path: &str) -> Option<&'a mut JSONSchemaProps> {
    path.split('.')
        .filter(|part| !part.is_empty())
        .try_fold(root, |node, part| node.properties.as_mut()?.get_mut(part))
}

/// Longest text, list and map the API server lets in where nothing tighter is said: far above what anyone needs, so that the
/// cost of every CEL rule is finite.
const LONGEST_TEXT: i64 = 4096;
const LONGEST_ANNOTATION: i64 = 16_384;
const LONGEST_LIST: i64 = 64;
const LARGEST_MAP: i64 = 64;

fn tidy(node: &mut JSONSchemaProps) {
    // Without it a null is dropped before it is stored: null and absent then mean the same everywhere.
    node.nullable = None;
    if let Some(description) = &mut node.description {
        // The source breaks its lines for its reader; `kubectl explain` breaks them anew for its own.
        *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    if node.x_kubernetes_int_or_string == Some(true) {
        node.max_length.get_or_insert(64);
    }
    match node.type_.as_deref() {
        Some("string") if node.enum_.is_none() && node.format.is_none() => {
            node.max_length.get_or_insert(LONGEST_TEXT);
        }
        Some("array") => {
            node.max_items.get_or_insert(LONGEST_LIST);
        }
        Some("object") if node.additional_properties.is_some() => {
            node.max_properties.get_or_insert(LARGEST_MAP);
        }
        _ => {}
    }
    // Kubernetes lets an annotation be long; people put JSON there.
    if let Some(properties) = &mut node.properties
        && let Some(annotations) = properties.get_mut("annotations")
        && let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut annotations.additional_properties
    {
        value.max_length = Some(LONGEST_ANNOTATION);
    }
    for_each_child(node, &mut tidy);
}

fn drop_descriptions(node: &mut JSONSchemaProps) {
    node.description = None;
    for_each_child(node, &mut drop_descriptions);
}

fn for_each_child(node: &mut JSONSchemaProps, visit: &mut dyn FnMut(&mut JSONSchemaProps)) {
    for child in node
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        visit(child);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut node.items {
        visit(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut node.additional_properties {
        visit(values);
    }
}

#[cfg(test)]
pub(crate) mod tests;

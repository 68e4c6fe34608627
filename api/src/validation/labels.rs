//! Labels and annotations people add: well formed, and not the operator's own.

use std::collections::BTreeMap;

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::names;
use super::text::Text;

/// Prefix of the operator's own labels and annotations.
const OWN: &str = "etcd.database.coreos.com/";
/// Recommended labels that the operator sets, the selectors among them.
const RECOMMENDED: [&str; 5] = [
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
];

const RESERVED_LABEL: Text = Text(
    "must not set the operator's own labels (`app`, `etcd_*`, app.kubernetes.io/name and the like, etcd.database.coreos.com/*): its selectors rest on them",
);
const RESERVED_ANNOTATION: Text = Text(
    "must not set the operator's own annotations (`etcd.version`, etcd.database.coreos.com/*)",
);
const INVALID_LABEL: &str = "must be a label Kubernetes accepts: `name` or `prefix/name`, with a value of at most 63 letters, digits, `-`, `_` and `.`";
const INVALID_ANNOTATION: &str = "must have a key Kubernetes accepts: `name` or `prefix/name` of letters, digits, `-`, `_` and `.`";

fn is_reserved_label(key: &str) -> bool {
    key == "app" || key.starts_with("etcd_") || key.starts_with(OWN) || RECOMMENDED.contains(&key)
}

fn is_reserved_annotation(key: &str) -> bool {
    key == "etcd.version" || key.starts_with(OWN)
}

pub(super) fn check_labels(
    labels: Option<&BTreeMap<String, String>>,
    field: &str,
    judgement: &mut Judgement,
) {
    for (key, value) in labels.into_iter().flatten() {
        let field = format!("{field}[{key}]");
        if is_reserved_label(key) {
            judgement.refuse(field, Reason::LabelReserved, RESERVED_LABEL.0);
        } else if !names::is_label_key(key) || !names::is_label_value(value) {
            judgement.refuse(field, Reason::LabelInvalid, INVALID_LABEL);
        }
    }
}

/// A selector of nodes: others' labels, so none is reserved.
pub(super) fn check_selector(
    labels: Option<&BTreeMap<String, String>>,
    field: &str,
    judgement: &mut Judgement,
) {
    for (key, value) in labels.into_iter().flatten() {
        if !names::is_label_key(key) || !names::is_label_value(value) {
            judgement.refuse(
                format!("{field}[{key}]"),
                Reason::LabelInvalid,
                INVALID_LABEL,
            );
        }
    }
}

pub(super) fn check_annotations(
    annotations: Option<&BTreeMap<String, String>>,
    field: &str,
    judgement: &mut Judgement,
) {
    for key in annotations.into_iter().flatten().map(|(key, _)| key) {
        let field = format!("{field}[{key}]");
        if is_reserved_annotation(key) {
            judgement.refuse(field, Reason::AnnotationReserved, RESERVED_ANNOTATION.0);
        // Annotations' prefixes may be written in capitals, as the API server reads them in lower case.
        } else if !names::is_label_key(&key.to_ascii_lowercase()) {
            judgement.refuse(field, Reason::AnnotationInvalid, INVALID_ANNOTATION);
        }
    }
}

pub(super) fn cel() -> Vec<CelRule> {
    let labels = format!(
        "self.all(k, k != 'app' && !k.startsWith('etcd_') && !k.startsWith('{OWN}') && !(k in {}))",
        super::text::list(RECOMMENDED)
    );
    let annotations = format!("self.all(k, k != 'etcd.version' && !k.startsWith('{OWN}'))");
    vec![
        rule(
            Reason::LabelReserved,
            "spec.pod.labels",
            labels.clone(),
            RESERVED_LABEL,
        ),
        rule(
            Reason::LabelReserved,
            "spec.service.client.labels",
            labels,
            RESERVED_LABEL,
        ),
        rule(
            Reason::AnnotationReserved,
            "spec.pod.annotations",
            annotations.clone(),
            RESERVED_ANNOTATION,
        ),
        rule(
            Reason::AnnotationReserved,
            "spec.service.client.annotations",
            annotations,
            RESERVED_ANNOTATION,
        ),
    ]
}

//! CEL rules for the CRD: what the API server itself refuses when the webhook is not there.

use std::borrow::Cow;

use super::finding::Reason;
use super::text::{CelMessage, Text};

/// One rule at one place of the schema.
#[derive(Clone, Debug)]
pub(crate) struct CelRule {
    /// Which rule of ours it repeats.
    #[cfg_attr(not(test), allow(dead_code))] // Read by the test that compares both.
    pub(crate) reason: Reason,
    /// Path of the schema node: `spec.size`; empty for the root.
    pub(crate) at: Cow<'static, str>,
    pub(crate) rule: String,
    pub(crate) message: CelMessage,
    /// Which field the refusal names, relative to `at`.
    pub(crate) field_path: Option<&'static str>,
}

pub(crate) fn rule(
    reason: Reason,
    at: &'static str,
    rule: impl Into<String>,
    text: Text,
) -> CelRule {
    CelRule {
        reason,
        at: Cow::Borrowed(at),
        rule: rule.into(),
        message: text.cel(&[]),
        field_path: None,
    }
}

impl CelRule {
    /// With holes of the text given as CEL expressions.
    pub(crate) fn holes(mut self, text: Text, holes: &[(&str, &str)]) -> Self {
        self.message = text.cel(holes);
        self
    }

    /// With the field the refusal names.
    pub(crate) fn field(mut self, path: &'static str) -> Self {
        self.field_path = Some(path);
        self
    }
}

/// Every rule of an EtcdCluster that CEL can say.
pub(crate) fn cluster() -> Vec<CelRule> {
    [
        super::name::cel(),
        super::size::cel(),
        super::version::cel(),
        super::image::cel(),
        super::storage::cel(),
        super::claim::cel(),
        super::options::cel(),
        super::flags::cel(),
        super::tls::cel(),
        super::pod::cel(),
        super::labels::cel(),
        super::recovery::cel(),
        super::reliance::cel(),
    ]
    .concat()
}

/// The same rules for what `v1alpha1` can say: the API server validates a request in the version it was made in.
pub(crate) fn alpha() -> Vec<CelRule> {
    let shared = [
        ("spec.size", "spec.replicas"),
        ("spec.version", "spec.version"),
        ("spec.storage.size", "spec.storage"),
        ("", ""),
    ];
    // They speak of fields that v1alpha1 does not have, or has elsewhere.
    let of_beta_alone = [
        Reason::TlsImmutable,
        Reason::StorageImmutable,
        Reason::StorageShrinks,
        Reason::ClaimImmutable,
    ];
    let mut rules = Vec::new();
    for rule in cluster() {
        let place = shared
            .iter()
            .find(|(beta, _)| *beta == rule.at && !of_beta_alone.contains(&rule.reason));
        if let Some((_, alpha)) = place {
            rules.push(CelRule {
                at: Cow::Borrowed(alpha),
                ..rule
            });
        }
    }
    rules.push(super::storage::alpha_growth());
    rules
}

/// The rules of an EtcdCluster's spec that speak of one object alone, for a place elsewhere that holds such a spec.
pub(super) fn cluster_spec_at(place: &str) -> Vec<CelRule> {
    cluster()
        .into_iter()
        .filter(|rule| !rule.rule.contains("oldSelf"))
        .filter_map(|rule| {
            let at = format!("{place}{}", rule.at.strip_prefix("spec")?);
            Some(CelRule {
                at: Cow::Owned(at),
                ..rule
            })
        })
        .collect()
}

//! The resource's own name: every child's name and label is made from it.

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::text::Text;
use crate::v1beta2::EtcdCluster;

/// So that `<cluster>-<suffix>` and `<member>.<cluster>.<namespace>.svc` fit, and the name fits into labels.
pub const LONGEST: usize = 40;
/// What the API server appends to `generateName`.
const GENERATED_SUFFIX: usize = 5;

const TOO_LONG: Text = Text(
    "must have a name of at most 40 characters, so that the names of Pods and Services made from it fit",
);
const NOT_A_LABEL: Text = Text(
    "must have a name made of lower-case letters, digits and `-` that begins with a letter and ends with a letter or digit, because Services carry it",
);

pub(super) fn check(cluster: &EtcdCluster, judgement: &mut Judgement) {
    let metadata = &cluster.metadata;
    match (metadata.name.as_deref(), metadata.generate_name.as_deref()) {
        (Some(name), _) if !name.is_empty() => {
            fits(name, LONGEST, "metadata.name", judgement);
            is_a_label(name, "metadata.name", judgement);
        }
        // The name itself is not there yet when a mutating webhook sees a generated one.
        (_, Some(prefix)) => {
            fits(
                prefix,
                LONGEST - GENERATED_SUFFIX,
                "metadata.generateName",
                judgement,
            );
            is_a_label(&format!("{prefix}x"), "metadata.generateName", judgement);
        }
        _ => {}
    }
}

fn fits(name: &str, longest: usize, field: &str, judgement: &mut Judgement) {
    if name.len() > longest {
        judgement.refuse(field, Reason::NameTooLong, TOO_LONG.0);
    }
}

fn is_a_label(name: &str, field: &str, judgement: &mut Judgement) {
    let sound = name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !sound {
        judgement.refuse(field, Reason::NameNotALabel, NOT_A_LABEL.0);
    }
}

pub(super) fn cel() -> Vec<CelRule> {
    let label = "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')";
    vec![
        rule(
            Reason::NameTooLong,
            "",
            "self.metadata.name.size() <= 40",
            TOO_LONG,
        ),
        rule(Reason::NameNotALabel, "", label, NOT_A_LABEL),
    ]
}

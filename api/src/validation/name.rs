//! The resource's own name: every child's name and label is made from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::text::Text;

/// So that `<cluster>-<suffix>` and `<member>.<cluster>.<namespace>.svc` fit, and the name fits into labels.
pub const LONGEST: usize = 40;
/// What a CronJob's name may have, so that `<backup>-<suffix>` is a Job's name.
const LONGEST_OF_JOBS: usize = 52;
/// What the API server appends to `generateName`.
const GENERATED_SUFFIX: usize = 5;

const TOO_LONG: Text = Text(
    "must have a name of at most 40 characters, so that the names of Pods and Services made from it fit",
);
const TOO_LONG_FOR_JOBS: Text =
    Text("must have a name of at most 52 characters, so that the names of Jobs made from it fit");
const NOT_A_LABEL: Text = Text(
    "must have a name made of lower-case letters, digits and `-` that begins with a letter and ends with a letter or digit, because Services carry it",
);

pub(super) fn check(metadata: &ObjectMeta, judgement: &mut Judgement) {
    match (metadata.name.as_deref(), metadata.generate_name.as_deref()) {
        (Some(name), _) if !name.is_empty() => {
            check_cluster_name(name, "metadata.name", judgement);
        }
        // The name itself is not there yet when a mutating webhook sees a generated one.
        (_, Some(prefix)) => {
            if prefix.len() > LONGEST - GENERATED_SUFFIX {
                judgement.refuse("metadata.generateName", Reason::NameTooLong, TOO_LONG.0);
            }
            is_a_label(&format!("{prefix}x"), "metadata.generateName", judgement);
        }
        _ => {}
    }
}

/// The name of an EtcdCluster, wherever it stands.
pub(super) fn check_cluster_name(name: &str, field: &str, judgement: &mut Judgement) {
    if name.len() > LONGEST {
        judgement.refuse(field, Reason::NameTooLong, TOO_LONG.0);
    }
    is_a_label(name, field, judgement);
}

/// The name of a resource whose work is done in Jobs.
pub(super) fn check_for_jobs(metadata: &ObjectMeta, judgement: &mut Judgement) {
    let too_long = match (&metadata.name, &metadata.generate_name) {
        (Some(name), _) if !name.is_empty() => {
            (name.len() > LONGEST_OF_JOBS).then_some("metadata.name")
        }
        (_, Some(prefix)) => {
            (prefix.len() > LONGEST_OF_JOBS - GENERATED_SUFFIX).then_some("metadata.generateName")
        }
        _ => None,
    };
    if let Some(field) = too_long {
        judgement.refuse(field, Reason::NameTooLong, TOO_LONG_FOR_JOBS.0);
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
    cluster_name_rules("", "self.metadata.name")
}

/// The rules of an EtcdCluster's name, for a schema node where `name` yields it.
pub(super) fn cluster_name_rules(at: &'static str, name: &str) -> Vec<CelRule> {
    vec![
        rule(
            Reason::NameTooLong,
            at,
            format!("{name}.size() <= 40"),
            TOO_LONG,
        ),
        rule(
            Reason::NameNotALabel,
            at,
            format!("{name}.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"),
            NOT_A_LABEL,
        ),
    ]
}

pub(super) fn cel_for_jobs() -> CelRule {
    rule(
        Reason::NameTooLong,
        "",
        "self.metadata.name.size() <= 52",
        TOO_LONG_FOR_JOBS,
    )
}

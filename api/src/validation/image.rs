//! `spec.repository`: an image name without tag and digest.

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason, Violation, violation};
use super::text::{Text, literal};

const FIELD: &str = "spec.repository";
const INVALID: Text = Text(
    "must be an image name without tag and digest, such as gcr.io/etcd-development/etcd: the tag is made from `version`",
);
/// What registries accept, as far as a name of ours needs it: a host with an optional port, then lower-case path parts.
const PATTERN: &str = r"^([a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]{1,5})?/)?[a-z0-9]+(([.]|_{1,2}|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_{1,2}|-+)[a-z0-9]+)*)*$";
const LONGEST: usize = 255;

/// The name, or why it is none.
pub(crate) fn repository(text: &str) -> Result<&str, Violation> {
    let (host, path) = match text.split_once('/') {
        // The first part is a host only where it looks like one; else it is a part of the path.
        Some((first, rest)) if is_host(first) => (Some(first), rest),
        _ => (None, text),
    };
    let sound =
        text.len() <= LONGEST && host.is_none_or(is_host) && path.split('/').all(is_path_part);
    if sound {
        Ok(text)
    } else {
        Err(violation(FIELD, Reason::RepositoryInvalid, INVALID.0))
    }
}

fn is_host(text: &str) -> bool {
    let (name, port) = text
        .split_once(':')
        .map_or((text, None), |(name, port)| (name, Some(port)));
    let port_sound = port.is_none_or(|port| {
        (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit())
    });
    port_sound
        && name.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
}

/// Runs of lower-case letters and digits, joined by `.`, `_`, `__` or dashes.
fn is_path_part(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !text.starts_with(is_word) || !text.ends_with(is_word) {
        return false;
    }
    text.split(is_word)
        .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

pub(super) fn read(text: Option<&str>, judgement: &mut Judgement) -> Option<String> {
    judgement.keep(repository(text?)).map(ToOwned::to_owned)
}

pub(super) fn cel() -> Vec<CelRule> {
    vec![rule(
        Reason::RepositoryInvalid,
        FIELD,
        format!(
            "self == '' || (self.size() <= {LONGEST} && self.matches({}))",
            literal(PATTERN)
        ),
        INVALID,
    )]
}

#[cfg(test)]
mod tests {
    use super::repository;

    #[test]
    fn accepts_image_names() {
        for name in [
            "gcr.io/etcd-development/etcd",
            "quay.io/coreos/etcd",
            "etcd",
            "library/etcd",
            "registry.local:5000/mirror/etcd",
            "localhost:5000/etcd",
            "a.b/c__d/e--f",
        ] {
            assert!(repository(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn rejects_tags_digests_and_nonsense() {
        for name in [
            "",
            "quay.io/coreos/etcd:v3.5.0",
            "quay.io/coreos/etcd@sha256:abc",
            "https://quay.io/coreos/etcd",
            "quay.io/CoreOS/etcd",
            "quay.io//etcd",
            "etcd/",
            "-etcd",
            "etcd:latest",
            "a b",
        ] {
            assert!(repository(name).is_err(), "{name}");
        }
    }
}

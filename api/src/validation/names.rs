//! Names of other objects, labels and annotations, as Kubernetes spells them.

use super::finding::{Judgement, Reason};

const OBJECT_NAME: &str = "must be the name of an object: lower-case letters, digits, `-` and `.`, at most 253 characters, not `{name}`";

/// A DNS subdomain, which most objects' names are.
pub(crate) fn is_object_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}

pub(super) fn check_object_name(name: &str, field: &str, judgement: &mut Judgement) {
    if !is_object_name(name) {
        judgement.refuse(
            field,
            Reason::NameInvalid,
            OBJECT_NAME.replace("{name}", name),
        );
    }
}

/// The name part of a label's key, or a label's value that is not empty.
fn is_label_word(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric();
    let (Some(first), Some(last)) = (text.bytes().next(), text.bytes().last()) else {
        return false;
    };
    text.len() <= 63
        && word(first)
        && word(last)
        && text
            .bytes()
            .all(|b| word(b) || matches!(b, b'-' | b'_' | b'.'))
}

/// The key of a label or annotation: `name` or `prefix/name`.
pub(crate) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_object_name(prefix) && is_label_word(name),
        None => is_label_word(key),
    }
}

/// The value of a label.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_word(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_are_dns_subdomains() {
        for name in ["a", "tls-peer", "a.b-c.d", "0"] {
            assert!(is_object_name(name), "{name}");
        }
        for name in ["", "A", "a_b", "-a", "a-", "a..b", "a/b", &"a".repeat(254)] {
            assert!(!is_object_name(name), "{name}");
        }
    }

    #[test]
    fn label_keys_and_values_are_kubernetes_own() {
        for key in ["a", "a.b/c", "team_x", "example.com/Team.Name"] {
            assert!(is_label_key(key), "{key}");
        }
        for key in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "-a",
            "Upper.Prefix/a",
            &"a".repeat(64),
        ] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("a_B.c") && !is_label_value("a b"));
    }
}

//! A store's error as a reason and as words that say what to do. Pure.

use std::{error::Error as _, io};

use etcd_operator_api::orders::FailureReason;
use object_store::Error;

use crate::failure::{Failure, is_full};

/// The codes that S3, GCS and Azure give, and what they come to.
const CODES: &[(FailureReason, &[&str])] = &[
    (
        FailureReason::BucketNotFound,
        &[
            "NoSuchBucket",
            "ContainerNotFound",
            "specified bucket does not exist",
            "ContainerBeingDeleted",
        ],
    ),
    (
        FailureReason::CredentialsInvalid,
        &[
            "InvalidAccessKeyId",
            "XAdminUserNotFound",
            "SignatureDoesNotMatch",
            "InvalidToken",
            "ExpiredToken",
            "InvalidClientTokenId",
            "AuthorizationHeaderMalformed",
            "AuthenticationFailed",
            "InvalidAuthenticationInfo",
            "invalid_grant",
            "Invalid Credentials",
        ],
    ),
    (
        FailureReason::PermissionDenied,
        &[
            "AccessDenied",
            "AllAccessDisabled",
            "AuthorizationPermissionMismatch",
            "AuthorizationFailure",
        ],
    ),
    (
        FailureReason::StoreFull,
        &[
            "QuotaExceeded",
            "StorageFull",
            "InsufficientStorage",
            "507 ",
            "no space left",
        ],
    ),
];

pub(super) fn explain(doing: &str, place: &str, error: &Error) -> Failure {
    let reason = reason(error);
    Failure::new(
        reason,
        format!("cannot {doing} {place}{}: {}", advice(reason), words(error)),
    )
}

/// The same for reading one object: that it is not there is no fault of the store.
pub(super) fn missing(name: &str, place: &str, error: &Error) -> Failure {
    if is_absent(error) {
        return Failure::new(
            FailureReason::SnapshotNotFound,
            format!("there is no \"{name}\" in {place}"),
        );
    }
    explain("read from", place, error)
}

/// The object is not there; a bucket or a user that is not there is something else.
pub(super) fn is_absent(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && reason(error) == FailureReason::SnapshotNotFound
}

fn reason(error: &Error) -> FailureReason {
    let text = chain(error);
    let coded = CODES
        .iter()
        .find(|(_, codes)| codes.iter().any(|code| text.contains(code)));
    if let Some((reason, _)) = coded {
        return *reason;
    }
    if let Some(error) = file_error(error) {
        return match error.kind() {
            _ if is_full(error) => FailureReason::StoreFull,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                FailureReason::PermissionDenied
            }
            _ => FailureReason::StoreUnreachable,
        };
    }
    match error {
        Error::NotFound { .. } => FailureReason::SnapshotNotFound,
        Error::PermissionDenied { .. } => FailureReason::PermissionDenied,
        Error::Unauthenticated { .. } => FailureReason::CredentialsInvalid,
        Error::InvalidPath { .. } | Error::UnknownConfigurationKey { .. } => {
            FailureReason::InvalidOrder
        }
        _ => FailureReason::StoreUnreachable,
    }
}

fn advice(reason: FailureReason) -> &'static str {
    match reason {
        FailureReason::BucketNotFound => {
            ", which does not exist: create it, or correct the store's path"
        }
        FailureReason::CredentialsInvalid => {
            ", which does not accept the credentials: look at the Secret, or at the workload identity"
        }
        FailureReason::PermissionDenied => {
            ", which does not permit it: objects below the path must be readable, writable, listed and removable"
        }
        FailureReason::StoreFull => ", which is full",
        FailureReason::StoreUnreachable => ", which does not answer as it should",
        _ => "",
    }
}

/// All that an error and its causes say.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push(' ');
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// The operating system's own error, of a store that is a folder.
fn file_error(error: &Error) -> Option<&io::Error> {
    let Error::Generic {
        store: "LocalFileSystem",
        ..
    } = error
    else {
        return None;
    };
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(found) = inner.downcast_ref() {
            return Some(found);
        }
        cause = inner.source();
    }
    None
}

/// What the store said, without the markup around it and not too long.
fn words(error: &Error) -> String {
    let text = chain(error);
    let between = |tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        let (inner, _) = rest.split_once(&format!("</{tag}>"))?;
        Some(inner.to_owned())
    };
    if let (Some(code), message) = (between("Code"), between("Message")) {
        return format!("{code}: {}", message.unwrap_or_default());
    }
    let innermost = {
        let mut last: &dyn std::error::Error = error;
        while let Some(inner) = last.source() {
            last = inner;
        }
        last.to_string()
    };
    let own = error.to_string();
    let said = if own.contains(&innermost) {
        own
    } else {
        format!("{own}: {innermost}")
    };
    said.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(600)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic {
            store: "S3",
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn each_code_has_its_reason_and_its_words() {
        for (text, reason, advice) in [
            (
                "Server returned non-2xx status code: 404: <Error><Code>NoSuchBucket</Code><Message>gone</Message></Error>",
                FailureReason::BucketNotFound,
                "create it",
            ),
            (
                "<Code>SignatureDoesNotMatch</Code>",
                FailureReason::CredentialsInvalid,
                "look at the Secret",
            ),
            (
                "<Code>AccessDenied</Code>",
                FailureReason::PermissionDenied,
                "does not permit",
            ),
            (
                "status code: 507 Insufficient",
                FailureReason::StoreFull,
                "is full",
            ),
            (
                "error sending request",
                FailureReason::StoreUnreachable,
                "does not answer",
            ),
        ] {
            let failure = explain("write to", "bucket \"b\"", &generic(text));
            assert_eq!(failure.reason, reason, "{text}");
            assert!(failure.message.contains(advice), "{failure}");
        }
        let failure = explain(
            "write to",
            "x",
            &generic("<Code>NoSuchBucket</Code><Message>gone</Message>"),
        );
        assert!(failure.message.ends_with("NoSuchBucket: gone"), "{failure}");
    }

    #[test]
    fn an_object_that_is_not_there_is_told_from_a_bucket_that_is_not_there() {
        let not_found = |text: &str| Error::NotFound {
            path: "a".to_owned(),
            source: text.to_owned().into(),
        };
        assert!(is_absent(&not_found("<Code>NoSuchKey</Code>")));
        assert!(!is_absent(&not_found("<Code>NoSuchBucket</Code>")));
        assert!(!is_absent(&not_found("<Code>XAdminUserNotFound</Code>")));
        assert_eq!(
            missing("a", "b", &not_found("<Code>NoSuchKey</Code>")).reason,
            FailureReason::SnapshotNotFound
        );
    }
}

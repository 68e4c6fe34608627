//! Why an order failed, in a stable word and in words a person can act on.

use std::{io, path::Path};

use etcd_operator_api::orders::FailureReason;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", reason.as_str())]
pub struct Failure {
    pub reason: FailureReason,
    pub message: String,
}

impl Failure {
    pub fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureReason::Internal, message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureReason::InvalidOrder, message)
    }

    /// Something with a file of ours went wrong.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        let reason = if is_full(error) {
            FailureReason::DiskFull
        } else {
            FailureReason::Internal
        };
        Self::new(
            reason,
            format!("cannot {doing} {}: {error}", path.display()),
        )
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

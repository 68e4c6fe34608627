//! Why the keeper cannot go on, and whether waiting could help.

use std::path::PathBuf;

use kube::runtime::watcher;

use super::bundle::Place;
use super::secret::StoreError;
use crate::CertError;
use crate::files::FilesError;

/// Why the keeper cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot make the webhook's certificate")]
    Certificate(#[from] CertError),
    #[error("cannot {verb} {place}")]
    Place {
        verb: &'static str,
        place: Place,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot watch {what}")]
    Watch {
        what: String,
        #[source]
        source: Box<watcher::Error>,
    },
    #[error("--certificate-directory {0} is not a directory")]
    NoDirectory(PathBuf),
    #[error("the watches ended")]
    WatchesEnded,
}

/// Why mounted files are not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum MountError {
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Pair(#[from] CertError),
    #[error("--publish-ca needs `ca.crt` beside `tls.crt`")]
    NoAuthority,
    #[error("`ca.crt` must be the authority that signed `tls.crt`")]
    Authority(#[source] CertError),
}

impl KeeperError {
    /// Whether the API server said no: that does not become yes by waiting.
    pub(super) fn is_forbidden(&self) -> bool {
        is_forbidden(self)
    }
}

/// Whether the API server said no, anywhere in the chain of causes. A boxed cause is its own type to `downcast_ref`, hence both.
fn is_forbidden(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kube = error
            .downcast_ref::<kube::Error>()
            .or_else(|| error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref));
        if let Some(kube::Error::Api(status)) = kube
            && matches!(status.code, 401 | 403)
        {
            return true;
        }
        if let Some(watch) = error.downcast_ref::<Box<watcher::Error>>() {
            return is_forbidden(watch.as_ref());
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refused(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            code,
            ..Status::default()
        }))
    }

    #[test]
    fn a_no_of_the_api_server_is_found_however_deep_it_is_boxed() {
        for (code, forbidden) in [(401, true), (403, true), (404, false), (500, false)] {
            let store = KeeperError::from(StoreError::Api {
                verb: "read",
                name: "ns/ca".to_owned(),
                source: Box::new(refused(code)),
            });
            let watch = KeeperError::Watch {
                what: "Secret ns/ca".to_owned(),
                source: Box::new(watcher::Error::InitialListFailed(refused(code))),
            };
            let place = KeeperError::Place {
                verb: "patch",
                place: Place::CustomResourceDefinition("x".to_owned()),
                source: Box::new(refused(code)),
            };
            for error in [store, watch, place] {
                assert_eq!(error.is_forbidden(), forbidden, "{code} {error}");
            }
        }
    }
}

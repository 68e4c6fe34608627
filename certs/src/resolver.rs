//! The certificate a TLS server shows, swapped in place: handshakes after the swap see the new one, connections made before it live
//! on. Touches nothing but memory.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::{CertError, Leaf};

/// Give one clone to rustls and keep the other to swap. Until the first leaf is in, every handshake is refused.
#[derive(Clone, Debug, Default)]
pub struct HotResolver {
    serving: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
}

impl HotResolver {
    pub fn new() -> Self {
        Self::default()
    }

    /// A leaf that rustls cannot use is refused here, and what was served stays served.
    pub fn swap(&self, leaf: &Leaf) -> Result<(), CertError> {
        self.serve(leaf.certified_key()?);
        Ok(())
    }

    /// The same for a key in the form rustls serves.
    pub fn serve(&self, key: Arc<CertifiedKey>) {
        *self.serving.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.serving
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ResolvesServerCert for HotResolver {
    /// One certificate for every name: API servers differ in what they send, and a wrong name is theirs to notice.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

//! A certificate with its key as someone else made them: cert-manager, or a person with openssl. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use crate::{CertError, Validity, certificates_in, inspect};

/// A chain (leaf first) and the key that belongs to it, of any kind that TLS can use. Printing it never shows the key.
#[derive(Clone, Debug)]
pub struct Pair {
    key: Arc<CertifiedKey>,
    validity: Validity,
}

impl Pair {
    /// Reads the key as PKCS #8, PKCS #1 or SEC 1, RSA or elliptic curve, and refuses a pair that does not belong together.
    pub fn from_pem(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, CertError> {
        let chain = certificates_in(certificate_pem)?;
        let first = chain.first().ok_or(CertError::EmptyBundle)?;
        let validity = inspect(first)?.validity;
        let key = PrivateKeyDer::from_pem_slice(key_pem)
            .map_err(|error| CertError::PrivateKey(error.to_string()))?;
        let provider = rustls::crypto::ring::default_provider();
        let key = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertError::KeyMismatch,
            error => CertError::Tls(error),
        })?;
        Ok(Self {
            key: Arc::new(key),
            validity,
        })
    }

    /// Whether a client that asks for `name` now could believe it at all, whoever signed it.
    pub fn is_for(&self, name: &str, now: Timestamp) -> Result<(), CertError> {
        if !self.validity.contains(now) {
            return Err(CertError::NotValidNow {
                from: self.validity.not_before,
                until: self.validity.not_after,
            });
        }
        let asked = ServerName::try_from(name).map_err(|_| CertError::Name(name.to_owned()))?;
        let leaf = self.chain().first().ok_or(CertError::EmptyBundle)?;
        let leaf = ParsedCertificate::try_from(leaf).map_err(CertError::Tls)?;
        verify_server_name(&leaf, &asked).map_err(|_| CertError::NotForName(name.to_owned()))
    }

    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }

    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The form rustls serves.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }
}

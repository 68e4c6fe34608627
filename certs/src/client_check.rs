//! Who may call a TLS server: only those whose certificate leads to one of these authorities, which are swapped in place. Touches
//! nothing but memory.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::CertError;
use crate::verify::roots;

/// Give one clone to rustls and keep the other to swap. A client without a certificate is refused.
#[derive(Clone, Debug)]
pub struct HotClientCheck {
    verifier: Arc<RwLock<Arc<dyn ClientCertVerifier>>>,
}

impl HotClientCheck {
    /// Trusts the authorities of a PEM bundle.
    pub fn from_pem(bundle_pem: &[u8]) -> Result<Self, CertError> {
        Ok(Self {
            verifier: Arc::new(RwLock::new(verifier(bundle_pem)?)),
        })
    }

    /// A bundle that cannot be used is refused here, and what was trusted stays trusted. Connections live on.
    pub fn swap(&self, bundle_pem: &[u8]) -> Result<(), CertError> {
        let new = verifier(bundle_pem)?;
        *self
            .verifier
            .write()
            .unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        let held = self.verifier.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&held)
    }
}

fn verifier(bundle_pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, CertError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(roots(bundle_pem)?, provider)
        .build()
        .map_err(|error| CertError::Roots(Error::General(error.to_string())))
}

impl ClientCertVerifier for HotClientCheck {
    /// No hints: they would be borrowed from roots that may be swapped, and a client without hints just sends what it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current().verify_client_cert(leaf, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current()
            .verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current()
            .verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

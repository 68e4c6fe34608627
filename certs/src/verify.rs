//! Does this leaf verify against that bundle, for that name, at that time? Asked of the same code that does it in a handshake.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;

use crate::{CertError, certificates_in};

/// Verifies a server's chain (leaf first) against a PEM bundle, as a client that asked for `name` would.
pub fn verify_server(
    chain: &[CertificateDer<'_>],
    bundle_pem: &[u8],
    name: &str,
    now: Timestamp,
) -> Result<(), CertError> {
    let (leaf, intermediates) = chain.split_first().ok_or(CertError::EmptyBundle)?;
    let name = ServerName::try_from(name).map_err(|_| CertError::Name(name.to_owned()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiServerVerifier::builder_with_provider(roots(bundle_pem)?, provider)
        .build()
        .map_err(|error| CertError::Roots(rustls::Error::General(error.to_string())))?
        .verify_server_cert(leaf, intermediates, &name, &[], unix_time(now))
        .map(drop)
        .map_err(CertError::Untrusted)
}

/// Verifies a client's chain (leaf first) against a PEM bundle, as a server would.
pub fn verify_client(
    chain: &[CertificateDer<'_>],
    bundle_pem: &[u8],
    now: Timestamp,
) -> Result<(), CertError> {
    let (leaf, intermediates) = chain.split_first().ok_or(CertError::EmptyBundle)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(roots(bundle_pem)?, provider)
        .build()
        .map_err(|error| CertError::Roots(rustls::Error::General(error.to_string())))?
        .verify_client_cert(leaf, intermediates, unix_time(now))
        .map(drop)
        .map_err(CertError::Untrusted)
}

pub(crate) fn roots(bundle_pem: &[u8]) -> Result<Arc<RootCertStore>, CertError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates_in(bundle_pem)? {
        store.add(certificate).map_err(CertError::Roots)?;
    }
    if store.is_empty() {
        return Err(CertError::EmptyBundle);
    }
    Ok(Arc::new(store))
}

/// Before 1970 nothing is valid, so the earliest time will do.
fn unix_time(at: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(
        u64::try_from(at.as_second()).unwrap_or_default(),
    ))
}

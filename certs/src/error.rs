//! What can be wrong with a certificate, a key or a bundle. No variant ever carries key material.

use jiff::Timestamp;

/// One reason per thing a person would have to fix.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    #[error("cannot make a key or sign a certificate")]
    Sign(#[source] rcgen::Error),
    #[error("`{0}` is neither a DNS name nor an IP address")]
    Name(String),
    #[error("a certificate must name at least one DNS name or IP address")]
    NoName,
    #[error("not a certificate in PEM form: {0}")]
    CertificatePem(String),
    #[error("not a private key in PEM form (PKCS #8, ECDSA P-256)")]
    KeyPem(#[source] rcgen::Error),
    #[error("not a private key in PEM form: {0}")]
    PrivateKey(String),
    #[error("no certificate in the bundle")]
    EmptyBundle,
    #[error("the certificate cannot be parsed: {0}")]
    Parse(String),
    #[error("the certificate is not a certificate authority")]
    NotAnAuthority,
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    #[error("the certificate authority expired at {0}")]
    AuthorityExpired(Timestamp),
    #[error("the certificate is valid only from {from} to {until}")]
    NotValidNow { from: Timestamp, until: Timestamp },
    #[error("the certificate does not name `{0}`")]
    NotForName(String),
    #[error("a date is outside what a certificate can hold")]
    Date,
    #[error("the certificate does not verify against the bundle")]
    Untrusted(#[source] rustls::Error),
    #[error("the certificate or key cannot be used for TLS")]
    Tls(#[source] rustls::Error),
    #[error("the bundle's certificates cannot be used as roots")]
    Roots(#[source] rustls::Error),
}

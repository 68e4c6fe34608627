//! A leaf: what is asked for, and what comes out. Pure, but for the key's randomness, which comes from the operating system.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::inspect::Validity;
use crate::{CertError, certificates_in, inspect};

/// A name a certificate vouches for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    Dns(String),
    Ip(IpAddr),
}

impl From<IpAddr> for Name {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl FromStr for Name {
    type Err = CertError;

    /// An IP address, or a DNS name: at most 253 characters, labels of letters, digits, `-` and `_`, the first may be `*`.
    fn from_str(text: &str) -> Result<Self, CertError> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        let rest = text.strip_prefix("*.").unwrap_or(text);
        let sound = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if text.len() <= 253 && rest.split('.').all(sound) {
            Ok(Self::Dns(text.to_owned()))
        } else {
            Err(CertError::Name(text.to_owned()))
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

/// What a leaf may be shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Server,
    Client,
    /// Both: etcd members call and answer each other with one certificate.
    Peer,
}

/// What to issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafRequest {
    /// Shown to people, and to etcd as the user of a client certificate.
    pub common_name: String,
    pub names: Vec<Name>,
    pub usage: Usage,
    pub lifetime: Duration,
}

/// A certificate with its key, both in PEM. Printing it never shows the key.
#[derive(Clone)]
pub struct Leaf {
    certificate_pem: String,
    key_pem: String,
    key_der: Vec<u8>,
    chain: Vec<CertificateDer<'static>>,
    validity: Validity,
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl Leaf {
    /// Reads a certificate chain (leaf first) with its PKCS #8 key and refuses a pair that does not belong together.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, CertError> {
        let key = rcgen::KeyPair::from_pem(key_pem).map_err(CertError::KeyPem)?;
        let chain = certificates_in(certificate_pem.as_bytes())?;
        let first = chain.first().ok_or(CertError::EmptyBundle)?;
        let inspected = inspect(first)?;
        if inspected.public_key != rcgen::PublicKeyData::subject_public_key_info(&key) {
            return Err(CertError::KeyMismatch);
        }
        Ok(Self {
            certificate_pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
            key_der: key.serialize_der(),
            validity: inspected.validity,
            chain,
        })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The leaf first, then what leads to the root, if anything.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The form rustls serves.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, CertError> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key_der.clone()));
        CertifiedKey::from_der(
            self.chain.clone(),
            key,
            &rustls::crypto::ring::default_provider(),
        )
        .map(Arc::new)
        .map_err(CertError::Tls)
    }
}

//! Reads what a certificate says: dates, names, whether it is an authority. Pure.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::CertError;
use crate::leaf::Name;

/// From when to when a certificate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Validity {
    pub fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Its whole life; zero where the dates are the wrong way round.
    pub fn lifetime(&self) -> Duration {
        Duration::try_from(self.not_after.duration_since(self.not_before)).unwrap_or_default()
    }
}

/// What one certificate says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    pub subject: String,
    pub issuer: String,
    pub validity: Validity,
    pub names: Vec<Name>,
    pub is_authority: bool,
    /// The DER of the public key info, to compare with a key's.
    pub public_key: Vec<u8>,
}

/// Every certificate in a PEM text, in order; other sections (a key, a comment) are passed over.
pub fn certificates_in(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| CertError::CertificatePem(error.to_string()))
}

/// Parses one certificate.
pub fn inspect(der: &CertificateDer<'_>) -> Result<Inspected, CertError> {
    let (rest, parsed) =
        X509Certificate::from_der(der).map_err(|error| CertError::Parse(error.to_string()))?;
    if !rest.is_empty() {
        return Err(CertError::Parse("bytes after its end".to_owned()));
    }
    let validity = Validity {
        not_before: timestamp(parsed.validity().not_before.timestamp())?,
        not_after: timestamp(parsed.validity().not_after.timestamp())?,
    };
    let names = match parsed.subject_alternative_name() {
        Ok(Some(extension)) => extension
            .value
            .general_names
            .iter()
            .filter_map(name)
            .collect(),
        Ok(None) => Vec::new(),
        Err(error) => return Err(CertError::Parse(error.to_string())),
    };
    Ok(Inspected {
        subject: parsed.subject().to_string(),
        issuer: parsed.issuer().to_string(),
        validity,
        names,
        is_authority: parsed.is_ca(),
        public_key: parsed.public_key().raw.to_vec(),
    })
}

fn timestamp(seconds: i64) -> Result<Timestamp, CertError> {
    Timestamp::from_second(seconds).map_err(|_outside| CertError::Date)
}

fn name(general: &GeneralName<'_>) -> Option<Name> {
    match general {
        GeneralName::DNSName(dns) => Some(Name::Dns((*dns).to_owned())),
        GeneralName::IPAddress(octets) => ip(octets).map(Name::Ip),
        _ => None,
    }
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(octets)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .ok()
}

//! A certificate authority of our own: ECDSA P-256, self-signed. Pure, but for the keys' randomness, which comes from the
//! operating system.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::inspect::Validity;
use crate::leaf::{Leaf, LeafRequest, Name, Usage};
use crate::{CertError, certificates_in, inspect};

/// Certificates count from a little before they are made: the clock of whoever checks them may be behind ours.
const CLOCK_SKEW: Duration = Duration::from_mins(10);

/// An authority that can sign: certificate and key.
pub struct CertificateAuthority {
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    validity: Validity,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// A new authority. Give each its own subject: verifiers find an issuer by its name, and two authorities of one name in a
    /// bundle make them try both.
    pub fn generate(subject: &str, now: Timestamp, lifetime: Duration) -> Result<Self, CertError> {
        let key = KeyPair::generate().map_err(CertError::Sign)?;
        let mut params = params(subject, validity_from(now, lifetime)?)?;
        // Path length 0: it signs leaves, never another authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(CertError::Sign)?;
        Self::from_pem(&certificate.pem(), &key.serialize_pem())
    }

    /// Reads an authority back, and refuses one that could not sign: no authority, or another's key.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, CertError> {
        let certificate = certificates_in(certificate_pem.as_bytes())?
            .into_iter()
            .next()
            .ok_or(CertError::EmptyBundle)?;
        let inspected = inspect(&certificate)?;
        if !inspected.is_authority {
            return Err(CertError::NotAnAuthority);
        }
        let key = KeyPair::from_pem(key_pem).map_err(CertError::KeyPem)?;
        if inspected.public_key != key.subject_public_key_info() {
            return Err(CertError::KeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(CertError::Sign)?;
        Ok(Self {
            certificate_pem: certificate_pem.to_owned(),
            certificate,
            validity: inspected.validity,
            issuer,
        })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// When it was made: `not_before` lies a little earlier.
    pub fn made_at(&self) -> Timestamp {
        let skew = CLOCK_SKEW.min(self.validity.lifetime() / 2);
        self.validity.not_before + skew
    }

    /// Issues a leaf with a new key. It never outlives its authority: a certificate whose issuer has expired verifies nowhere,
    /// and a date that says otherwise would put its renewal too late.
    pub fn issue(&self, request: &LeafRequest, now: Timestamp) -> Result<Leaf, CertError> {
        if now >= self.validity.not_after {
            return Err(CertError::AuthorityExpired(self.validity.not_after));
        }
        if request.names.is_empty() && request.usage != Usage::Client {
            return Err(CertError::NoName);
        }
        let asked = validity_from(now, request.lifetime)?;
        let validity = Validity {
            not_before: asked.not_before.max(self.validity.not_before),
            not_after: asked.not_after.min(self.validity.not_after),
        };
        let mut params = params(&request.common_name, validity)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match request.usage {
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Peer => vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        };
        params.subject_alt_names = request
            .names
            .iter()
            .map(subject_alt_name)
            .collect::<Result<_, _>>()?;
        let key = KeyPair::generate().map_err(CertError::Sign)?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(CertError::Sign)?;
        Leaf::from_pem(&certificate.pem(), &key.serialize_pem())
    }
}

/// One that lives shorter than the skew counts from as long before as after: most of its life must not lie behind it.
fn validity_from(now: Timestamp, lifetime: Duration) -> Result<Validity, CertError> {
    let skew = CLOCK_SKEW.min(lifetime);
    Ok(Validity {
        not_before: now.checked_sub(skew).map_err(|_| CertError::Date)?,
        not_after: now.checked_add(lifetime).map_err(|_| CertError::Date)?,
    })
}

fn params(common_name: &str, validity: Validity) -> Result<CertificateParams, CertError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = date(validity.not_before)?;
    params.not_after = date(validity.not_after)?;
    Ok(params)
}

fn date(at: Timestamp) -> Result<OffsetDateTime, CertError> {
    OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|_| CertError::Date)
}

fn subject_alt_name(name: &Name) -> Result<SanType, CertError> {
    match name {
        Name::Ip(ip) => Ok(SanType::IpAddress(*ip)),
        Name::Dns(dns) => dns
            .as_str()
            .try_into()
            .map(SanType::DnsName)
            .map_err(|_| CertError::Name(dns.clone())),
    }
}

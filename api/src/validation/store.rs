//! The stores of EtcdBackup and EtcdRestore: exactly one, of the kind that is said, with a path that can be written.

use super::cel::{CelRule, rule};
use super::finding::{Judgement, Reason};
use super::names;
use super::text::{Text, literal};
use super::tls::named;
use crate::v1beta2::{AbsStore, GcsStore, PvcStore, S3Store, StorageType};
use crate::validated::{Bucket, Provider, Store};

const TYPE_MISMATCH: Text = Text(
    "must be the kind of store that is described: S3 with `s3`, GCS with `gcs`, ABS with `abs`, PVC with `pvc`",
);
const BUCKET_AND_KEY: Text = Text(
    "must be a bucket (or container) and a path in it, such as mybucket/etcd.backup, without a scheme and without `..`",
);
const VOLUME_PATH: Text = Text(
    "must be a path in the volume, such as etcd/etcd.backup, that neither begins nor ends with `/`, without `..`",
);
const CLAIM_MISSING: Text = Text("must name the PersistentVolumeClaim that holds the backups");
const ENDPOINT: Text =
    Text("must be an address such as https://s3.example.com or http://minio:9000");
const REGION: Text = Text("must be a region such as eu-central-1");
const ACCOUNT_MISSING: Text =
    Text("must be set where `absSecret` is not: workload identity does not name an account");
const ACCOUNT_TWICE: Text =
    Text("must not be set together with `absSecret`, which names the account itself");
const ACCOUNT: Text = Text("must be a storage account: 3 to 24 lower-case letters and digits");

const HOST: &str = r"([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])";

/// The stores as a spec describes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described<'a> {
    /// `spec.storageType`.
    pub(super) type_field: &'static str,
    pub(super) type_: Option<StorageType>,
    pub(super) s3: Option<&'a S3Store>,
    pub(super) gcs: Option<&'a GcsStore>,
    pub(super) abs: Option<&'a AbsStore>,
    pub(super) pvc: Option<&'a PvcStore>,
}

impl Described<'_> {
    pub(super) fn count(&self) -> usize {
        let described = [
            self.s3.is_some(),
            self.gcs.is_some(),
            self.abs.is_some(),
            self.pvc.is_some(),
        ];
        described.into_iter().filter(|there| *there).count()
    }
}

/// The store, where exactly one is described, or what is wrong with it.
pub(super) fn read(described: Described<'_>, judgement: &mut Judgement) -> Option<Store> {
    let Described {
        type_field, type_, ..
    } = described;
    let there = if described.s3.is_some() {
        StorageType::S3
    } else if described.gcs.is_some() {
        StorageType::GCS
    } else if described.abs.is_some() {
        StorageType::ABS
    } else {
        StorageType::PVC
    };
    if type_.is_some_and(|said| said != there) {
        judgement.refuse(type_field, Reason::StoreTypeMismatch, TYPE_MISMATCH.0);
    }
    match described {
        Described { s3: Some(s3), .. } => read_s3(s3, judgement),
        Described { gcs: Some(gcs), .. } => read_bucket(
            StorageType::GCS,
            Provider::Gcs,
            &Said {
                path: gcs.path.as_ref(),
                secret: ("gcpSecret", gcs.gcp_secret.as_ref()),
                endpoint: gcs.endpoint.as_ref(),
                ca_secret: gcs.ca_secret.as_ref(),
            },
            judgement,
        ),
        Described { abs: Some(abs), .. } => read_abs(abs, judgement),
        Described { pvc: Some(pvc), .. } => read_pvc(pvc, judgement),
        _ => None,
    }
}

/// What every bucket has.
struct Said<'a> {
    path: Option<&'a String>,
    secret: (&'static str, Option<&'a String>),
    endpoint: Option<&'a String>,
    ca_secret: Option<&'a String>,
}

fn read_s3(s3: &S3Store, judgement: &mut Judgement) -> Option<Store> {
    let region = named(s3.region.as_ref());
    if region.is_some_and(|region| !is_region(region)) {
        judgement.refuse("spec.s3.region", Reason::StoreRegionInvalid, REGION.0);
    }
    let provider = Provider::S3 {
        region: region.map(ToOwned::to_owned),
        path_style: s3.force_path_style.unwrap_or_default(),
    };
    let said = Said {
        path: s3.path.as_ref(),
        secret: ("awsSecret", s3.aws_secret.as_ref()),
        endpoint: s3.endpoint.as_ref(),
        ca_secret: s3.ca_secret.as_ref(),
    };
    read_bucket(StorageType::S3, provider, &said, judgement)
}

fn read_abs(abs: &AbsStore, judgement: &mut Judgement) -> Option<Store> {
    let account = named(abs.storage_account.as_ref());
    let wrong = match (account, named(abs.abs_secret.as_ref())) {
        (None, None) => Some(ACCOUNT_MISSING),
        (Some(_), Some(_)) => Some(ACCOUNT_TWICE),
        (Some(account), None) => (!is_account(account)).then_some(ACCOUNT),
        (None, Some(_)) => None,
    };
    if let Some(text) = wrong {
        judgement.refuse(
            "spec.abs.storageAccount",
            Reason::StoreAccountInvalid,
            text.0,
        );
    }
    let provider = Provider::Abs {
        account: account.map(ToOwned::to_owned),
    };
    let said = Said {
        path: abs.path.as_ref(),
        secret: ("absSecret", abs.abs_secret.as_ref()),
        endpoint: abs.endpoint.as_ref(),
        ca_secret: abs.ca_secret.as_ref(),
    };
    read_bucket(StorageType::ABS, provider, &said, judgement)
}

fn read_bucket(
    kind: StorageType,
    provider: Provider,
    said: &Said<'_>,
    judgement: &mut Judgement,
) -> Option<Store> {
    let field = |name: &str| format!("spec.{}.{name}", kind.field());
    let (secret_field, secret) = said.secret;
    let mut object = |name: &str, value: Option<&String>| {
        let value = named(value)?;
        names::check_object_name(value, &field(name), judgement);
        Some(value.to_owned())
    };
    let secret = object(secret_field, secret);
    let ca_secret = object("caSecret", said.ca_secret);
    let endpoint = named(said.endpoint);
    if let Some(endpoint) = endpoint {
        if !is_address(endpoint) {
            judgement.refuse(field("endpoint"), Reason::StoreEndpointInvalid, ENDPOINT.0);
        } else if endpoint.starts_with("http://") {
            judgement.warn(
                field("endpoint"),
                "plain text: keys and backups can be read on the way",
            );
        }
    }
    let path = said.path.and_then(|path| bucket_and_key(path));
    if path.is_none() {
        judgement.refuse(field("path"), Reason::StorePathInvalid, BUCKET_AND_KEY.0);
    }
    let (bucket, key) = path?;
    Some(Store::Bucket(Bucket {
        provider,
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        secret,
        endpoint: endpoint.map(ToOwned::to_owned),
        ca_secret,
    }))
}

fn read_pvc(pvc: &PvcStore, judgement: &mut Judgement) -> Option<Store> {
    let claim = named(pvc.claim_name.as_ref());
    match claim {
        Some(claim) => names::check_object_name(claim, "spec.pvc.claimName", judgement),
        None => judgement.refuse(
            "spec.pvc.claimName",
            Reason::StoreClaimMissing,
            CLAIM_MISSING.0,
        ),
    }
    let path = pvc.path.as_deref().filter(|path| is_inner_path(path));
    if path.is_none() {
        judgement.refuse("spec.pvc.path", Reason::StorePathInvalid, VOLUME_PATH.0);
    }
    Some(Store::Volume {
        claim: claim?.to_owned(),
        path: path?.to_owned(),
    })
}

/// Parts between slashes, none of them empty or a way up: what is made of it stays where it belongs.
pub(super) fn is_inner_path(path: &str) -> bool {
    path.split('/')
        .all(|part| !matches!(part, "" | "." | "..") && !part.chars().any(|c| c.is_ascii_control()))
}

fn bucket_and_key(path: &str) -> Option<(&str, &str)> {
    let (bucket, key) = path.split_once('/')?;
    let sound = bucket.starts_with(|c: char| c.is_ascii_alphanumeric())
        && bucket
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    (sound && is_inner_path(key)).then_some((bucket, key))
}

fn is_region(region: &str) -> bool {
    region.len() <= 64
        && region
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

fn is_account(account: &str) -> bool {
    (3..=24).contains(&account.len())
        && account
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// `https://host:port/path`, of which only the host must be there.
fn is_address(address: &str) -> bool {
    let rest = without_scheme(address);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let sound_path = !path
        .chars()
        .any(|c| c.is_ascii_whitespace() || c.is_ascii_control() || matches!(c, '?' | '#'));
    sound_path && (is_host(authority) || is_host_and_port(authority))
}

pub(super) fn without_scheme(address: &str) -> &str {
    address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"))
        .unwrap_or(address)
}

pub(super) fn is_host_and_port(authority: &str) -> bool {
    authority.rsplit_once(':').is_some_and(|(host, port)| {
        is_host(host)
            && port.bytes().all(|b| b.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// A name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let word = |c: char| c.is_ascii_alphanumeric();
    host.starts_with(word)
        && host.ends_with(word)
        && host.chars().all(|c| word(c) || matches!(c, '-' | '.'))
}

/// An address with its port, in CEL.
pub(super) fn endpoint_cel(text: &str) -> String {
    let pattern = format!("^(https?://)?{HOST}:[0-9]{{1,5}}/?$");
    format!("{text}.matches({})", literal(&pattern))
}

/// `type_field` without its `spec.`.
pub(super) fn cel(type_field: &str, type_path: &'static str) -> Vec<CelRule> {
    let described = "(has(self.s3) || has(self.gcs) || has(self.abs) || has(self.pvc))";
    let kind = format!("self.{type_field}");
    let mut rules = vec![
        rule(
            Reason::StoreTypeMismatch,
            "spec",
            format!(
                "!has({kind}) || !{described} || ({kind} == 'S3' ? has(self.s3) : {kind} == 'GCS' ? has(self.gcs) : \
                 {kind} == 'ABS' ? has(self.abs) : has(self.pvc))"
            ),
            TYPE_MISMATCH,
        )
        .field(type_path),
    ];
    for at in ["spec.s3", "spec.gcs", "spec.abs"] {
        rules.push(path_rule(
            at,
            r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[^/\x00-\x1f\x7f]+)+$",
            BUCKET_AND_KEY,
        ));
    }
    rules.push(path_rule(
        "spec.pvc",
        r"^[^/\x00-\x1f\x7f]+(/[^/\x00-\x1f\x7f]+)*$",
        VOLUME_PATH,
    ));
    let address = format!(r"^(https?://)?{HOST}(:[0-9]{{1,5}})?(/[^\s?#]*)?$");
    for at in ["spec.s3.endpoint", "spec.gcs.endpoint", "spec.abs.endpoint"] {
        rules.push(rule(
            Reason::StoreEndpointInvalid,
            at,
            format!("self == '' || self.matches({})", literal(&address)),
            ENDPOINT,
        ));
    }
    let set = |name: &str| format!("(has(self.{name}) && self.{name} != '')");
    let (account, secret) = (set("storageAccount"), set("absSecret"));
    rules.extend([
        rule(
            Reason::StoreClaimMissing,
            "spec.pvc",
            set("claimName"),
            CLAIM_MISSING,
        )
        .field(".claimName"),
        rule(
            Reason::StoreRegionInvalid,
            "spec.s3.region",
            "self.matches('^[A-Za-z0-9_-]{0,64}$')",
            REGION,
        ),
        rule(
            Reason::StoreAccountInvalid,
            "spec.abs",
            format!("{account} || {secret}"),
            ACCOUNT_MISSING,
        )
        .field(".storageAccount"),
        rule(
            Reason::StoreAccountInvalid,
            "spec.abs",
            format!("!{account} || !{secret}"),
            ACCOUNT_TWICE,
        )
        .field(".storageAccount"),
        rule(
            Reason::StoreAccountInvalid,
            "spec.abs.storageAccount",
            "self.matches('^([a-z0-9]{3,24})?$')",
            ACCOUNT,
        ),
    ]);
    rules
}

fn path_rule(at: &'static str, pattern: &str, text: Text) -> CelRule {
    let up = r"(^|/)[.][.]?(/|$)";
    rule(
        Reason::StorePathInvalid,
        at,
        format!(
            "has(self.path) && self.path.matches({}) && !self.path.matches({})",
            literal(pattern),
            literal(up)
        ),
        text,
    )
    .field(".path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_bucket_and_a_key_as_coreos_split_it() {
        for (path, bucket, key) in [
            ("mybucket/etcd.backup", "mybucket", "etcd.backup"),
            ("b/a/b c/d", "b", "a/b c/d"),
            (
                "My_Bucket.x-y/k_v12_2026-11-16-05:23:31",
                "My_Bucket.x-y",
                "k_v12_2026-11-16-05:23:31",
            ),
        ] {
            assert_eq!(bucket_and_key(path), Some((bucket, key)), "{path}");
        }
        for path in [
            "", "b", "b/", "/k", "b//k", "b/k/", "s3://b/k", "b/../k", "b/..", "b/./k", "..",
            "b/k\n", "-b/k",
        ] {
            assert_eq!(bucket_and_key(path), None, "{path}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_perhaps_more() {
        for address in [
            "https://s3.example.com",
            "http://minio.default.svc:9000/",
            "minio:9000",
            "http://127.0.0.1:10000/devstoreaccount1",
            "https://[::1]:9000",
        ] {
            assert!(is_address(address), "{address}");
        }
        for address in [
            "https://",
            "ftp://x",
            "a b",
            "https://x:0",
            "https://x:70000",
            "https://x:y",
            "https://x?y",
            "[::1",
        ] {
            assert!(!is_address(address), "{address}");
        }
    }
}

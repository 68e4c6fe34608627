//! The webhook's own flags. Pure: parsing only.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Parser;
use etcd_operator_api::policy::is_end_of_life;
use etcd_operator_api::versions::{self, NotAVersion};
use etcd_operator_api::{EndOfLife, Policy, Version};
use etcd_operator_certs::kubernetes::Place;
use etcd_operator_process::{CommonArgs, EndOfLifeVersions, HasCommonArgs};

/// Admission and conversion for EtcdClusters.
#[derive(Clone, Debug, Parser)]
#[command(name = "etcd-operator-webhook", version, about)]
pub struct Flags {
    #[command(flatten)]
    pub common: CommonArgs,

    /// Where the API server is answered, over TLS
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 10250)))]
    pub listen: SocketAddr,

    /// Namespace this runs in
    #[arg(long, value_name = "NS", env = "POD_NAMESPACE")]
    pub namespace: String,

    /// Service in front of this webhook: its name is in the certificate
    #[arg(long, value_name = "NAME")]
    pub service_name: String,

    /// Secret that holds the certificate authority; made when missing
    #[arg(long, value_name = "NAME")]
    pub ca_secret: String,

    /// MutatingWebhookConfiguration to publish the authority in
    #[arg(long, value_name = "NAME")]
    pub mutating_configuration: Option<String>,

    /// ValidatingWebhookConfiguration to publish the authority in
    #[arg(long, value_name = "NAME")]
    pub validating_configuration: Option<String>,

    /// CustomResourceDefinition to publish the authority in, where it converts by webhook; may be given several times
    #[arg(long = "crd", value_name = "NAME")]
    pub crds: Vec<String>,

    /// User whose scale requests are rounded up to an odd size instead of refused; may be given several times
    #[arg(
        long = "autoscaler-account",
        value_name = "USERNAME",
        default_value = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    )]
    pub autoscaler_accounts: Vec<String>,
}

/// A default version that no cluster should be born with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefaultVersionError {
    #[error("--default-etcd-version: {0}")]
    NotAVersion(#[from] NotAVersion),
    #[error("--default-etcd-version {0} is not known to this operator: it knows etcd {oldest} to {newest}",
        oldest = versions::oldest(), newest = versions::newest().minor())]
    Unknown(Version),
    #[error("--default-etcd-version {0} must not be an end-of-life version; the newest is {newest}",
        newest = versions::newest())]
    EndOfLife(Version),
}

impl HasCommonArgs for Flags {
    fn common(&self) -> &CommonArgs {
        &self.common
    }
}

impl Flags {
    /// Every object the authority is published in.
    pub fn places(&self) -> Vec<Place> {
        let mutating = self.mutating_configuration.iter().cloned();
        let validating = self.validating_configuration.iter().cloned();
        mutating
            .map(Place::MutatingWebhookConfiguration)
            .chain(validating.map(Place::ValidatingWebhookConfiguration))
            .chain(
                self.crds
                    .iter()
                    .cloned()
                    .map(Place::CustomResourceDefinition),
            )
            .collect()
    }
}

/// What the operator's owner decided about versions.
pub fn policy(common: &CommonArgs) -> Result<Policy, DefaultVersionError> {
    let default_version = match &common.default_etcd_version {
        None => versions::newest(),
        Some(given) => given.parse::<Version>()?,
    };
    if versions::release(default_version.minor()).is_none() {
        return Err(DefaultVersionError::Unknown(default_version));
    }
    if is_end_of_life(default_version) {
        return Err(DefaultVersionError::EndOfLife(default_version));
    }
    Ok(Policy {
        default_version,
        end_of_life: match common.end_of_life_versions {
            EndOfLifeVersions::Warn => EndOfLife::Warn,
            EndOfLifeVersions::Deny => EndOfLife::Deny,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: [&str; 4] = [
        "webhook",
        "--namespace=ns",
        "--service-name=w",
        "--ca-secret=ca",
    ];

    fn flags(more: &[&str]) -> Flags {
        Flags::try_parse_from(REQUIRED.iter().chain(more)).unwrap()
    }

    #[test]
    fn every_named_object_becomes_a_place() {
        let flags = flags(&[
            "--mutating-configuration=m",
            "--validating-configuration=v",
            "--crd=a",
            "--crd=b",
        ]);
        assert_eq!(
            flags.places(),
            [
                Place::MutatingWebhookConfiguration("m".to_owned()),
                Place::ValidatingWebhookConfiguration("v".to_owned()),
                Place::CustomResourceDefinition("a".to_owned()),
                Place::CustomResourceDefinition("b".to_owned()),
            ]
        );
    }

    #[test]
    fn the_default_version_must_be_one_a_new_cluster_may_have() {
        let accepts = |more: &[&str]| policy(&flags(more).common).unwrap();
        assert_eq!(accepts(&[]).default_version, versions::newest());
        assert_eq!(
            accepts(&["--end-of-life-versions=Deny"]).end_of_life,
            EndOfLife::Deny
        );
        for (given, word) in [
            ("3.x", "X.Y.Z"),
            ("9.9.9", "not known"),
            ("3.3.27", "end-of-life"),
        ] {
            let error = policy(&flags(&["--default-etcd-version", given]).common).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn autoscalers_given_replace_the_default_one() {
        assert_eq!(flags(&[]).autoscaler_accounts.len(), 1);
        let given = flags(&["--autoscaler-account=a", "--autoscaler-account=b"]);
        assert_eq!(given.autoscaler_accounts, ["a", "b"]);
    }
}

//! The webhook's own flags. Pure: parsing only.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Parser;
use etcd_operator_api::versions;
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

/// A flag that parses but cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--default-etcd-version `{given}` {why}")]
pub struct DefaultVersionError {
    given: String,
    why: String,
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
        Some(given) => given
            .parse::<Version>()
            .map_err(|error| DefaultVersionError {
                given: given.clone(),
                why: error.to_string(),
            })?,
    };
    Ok(Policy {
        default_version,
        end_of_life: match common.end_of_life_versions {
            EndOfLifeVersions::Warn => EndOfLife::Warn,
            EndOfLifeVersions::Deny => EndOfLife::Deny,
        },
    })
}

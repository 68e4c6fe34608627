//! The webhook's own flags. Pure: parsing only.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Parser;
use etcd_operator_certs::kubernetes::Place;
use etcd_operator_process::{CommonArgs, HasCommonArgs};

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
    fn autoscalers_given_replace_the_default_one() {
        assert_eq!(flags(&[]).autoscaler_accounts.len(), 1);
        let given = flags(&["--autoscaler-account=a", "--autoscaler-account=b"]);
        assert_eq!(given.autoscaler_accounts, ["a", "b"]);
    }
}

//! The webhook's own flags. Pure: parsing only.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use etcd_operator_api::duration::{GoDuration, NotADuration};
use etcd_operator_certs::RotationPolicy;
use etcd_operator_certs::kubernetes::{Place, Publish};
use etcd_operator_process::{CommonArgs, HasCommonArgs};

/// Admission and conversion for EtcdClusters, EtcdBackups and EtcdRestores.
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
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "certificate_directory",
        conflicts_with = "certificate_directory"
    )]
    ca_secret: Option<String>,

    /// Directory with `tls.crt`, `tls.key` and perhaps `ca.crt` that someone else keeps, in place of --ca-secret; read again when
    /// they change
    #[arg(long, value_name = "PATH")]
    certificate_directory: Option<PathBuf>,

    /// Publish the `ca.crt` of --certificate-directory; without this someone else does, such as cert-manager's injector
    #[arg(long, requires = "certificate_directory", conflicts_with = "ca_secret")]
    publish_ca: bool,

    /// Authorities of which every caller must show a certificate; without it anyone may ask. Read again when it changes
    #[arg(long, value_name = "PATH")]
    pub client_ca_file: Option<PathBuf>,

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

    /// Look into the Secrets that an object names and warn where they will not do
    #[arg(long)]
    pub check_secrets: bool,

    #[command(flatten)]
    pub lifetimes: Lifetimes,
}

/// How long certificates of our own making live; what fits every cluster but one that tests rotation.
#[derive(Args, Clone, Copy, Debug)]
pub struct Lifetimes {
    /// How long a serving certificate of our own making lives; it is renewed at two thirds of that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "24h", hide_short_help = true)]
    pub leaf_lifetime: Duration,

    /// How long the authority lives; the next takes over at two thirds of that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "8760h", hide_short_help = true)]
    pub authority_lifetime: Duration,

    /// How long the next authority is published before it signs
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m", hide_short_help = true)]
    pub announce_authority_for: Duration,

    /// How long the former authority stays published
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h", hide_short_help = true)]
    pub retain_authority_for: Duration,
}

impl Lifetimes {
    pub fn rotation(&self) -> RotationPolicy {
        RotationPolicy {
            authority_lifetime: self.authority_lifetime,
            announce_for: self.announce_authority_for,
            retain_for: self.retain_authority_for,
        }
    }
}

fn duration(text: &str) -> Result<Duration, NotADuration> {
    let duration = GoDuration(text.to_owned()).parse()?;
    Ok(duration)
}

impl HasCommonArgs for Flags {
    fn common(&self) -> &CommonArgs {
        &self.common
    }
}

/// Where the webhook's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Of its own making, the authority in a Secret.
    Own { secret: String },
    /// From files that someone else keeps.
    Mounted {
        directory: PathBuf,
        publish: Publish,
    },
}

impl Flags {
    /// Where the certificate comes from. clap has seen to it that one of the two is given.
    pub fn certificates(&self) -> Certificates {
        match &self.certificate_directory {
            Some(directory) => Certificates::Mounted {
                directory: directory.clone(),
                publish: if self.publish_ca {
                    Publish::Ours
                } else {
                    Publish::Theirs
                },
            },
            None => Certificates::Own {
                secret: self.ca_secret.clone().unwrap_or_default(),
            },
        }
    }

    /// The name the API server asks for in the handshake.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service_name, self.namespace)
    }

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
    fn certificates_come_from_one_source() {
        let of = |more: &[&str]| {
            let given = ["webhook", "--namespace=ns", "--service-name=w"];
            Flags::try_parse_from(given.iter().chain(more)).map(|flags| flags.certificates())
        };
        let mounted = |publish| Certificates::Mounted {
            directory: "/tls".into(),
            publish,
        };
        for (accepts, source) in [
            (
                &["--ca-secret=ca"][..],
                Certificates::Own {
                    secret: "ca".to_owned(),
                },
            ),
            (&["--certificate-directory=/tls"], mounted(Publish::Theirs)),
            (
                &["--certificate-directory=/tls", "--publish-ca"],
                mounted(Publish::Ours),
            ),
        ] {
            assert_eq!(of(accepts).unwrap(), source);
        }
        for rejects in [
            &[][..],
            &["--ca-secret=ca", "--certificate-directory=/tls"],
            &["--ca-secret=ca", "--publish-ca"],
        ] {
            assert!(of(rejects).is_err(), "{rejects:?}");
        }
    }

    #[test]
    fn lifetimes_are_those_of_the_default_policy_unless_given() {
        let lifetimes = flags(&[]).lifetimes;
        assert_eq!(lifetimes.rotation(), RotationPolicy::default());
        let given = flags(&["--leaf-lifetime=1m30s", "--retain-authority-for=5s"]).lifetimes;
        assert_eq!(given.leaf_lifetime, Duration::from_secs(90));
        assert_eq!(given.rotation().retain_for, Duration::from_secs(5));
        assert!(Flags::try_parse_from(REQUIRED.iter().chain(&["--leaf-lifetime=soon"])).is_err());
    }

    #[test]
    fn autoscalers_given_replace_the_default_one() {
        assert_eq!(flags(&[]).autoscaler_accounts.len(), 1);
        let given = flags(&["--autoscaler-account=a", "--autoscaler-account=b"]);
        assert_eq!(given.autoscaler_accounts, ["a", "b"]);
    }
}

//! Which versions, from which modules, with which flags. Pure.
//!
//! Module versions resolve by Go's minimal version selection, so these few lines fix every dependency too, and Go checks each
//! download against the public checksum database.

use std::fmt;

use sha2::{Digest, Sha256};

use super::coreos_era;

pub const KUBERNETES: &str = "1.36.4";
/// Kubernetes' own libraries are published beside it under this number.
const STAGING: &str = "0.36.4";
const HELM_3: &str = "3.22.0";
const HELM_4: &str = "4.3.1";
pub const COREDNS: &str = "1.15.0";
const CONTROLLER_RUNTIME: &str = "0.25.2";
const OPERATOR_FRAMEWORK: &str = "0.34.0";
pub const VERSITYGW: &str = "1.8.0";
/// Of each minor the newest, and one older patch to upgrade from.
pub const ETCD: [&str; 6] = ["3.6.16", "3.5.35", "3.7.3", "3.5.21", "3.6.10", "3.7.0"];
pub const ETCD_OF_THE_CONTROL_PLANE: &str = ETCD[0];

/// The language version of the main modules. It also chooses Go's run-time defaults, hence it is a pin.
const LANGUAGE: &str = "1.26.0";
pub const GO_FLAGS: &str = "-buildvcs=false -mod=mod";

const PAUSE_SOURCE: &str = include_str!("../../go/pause/main.go");
const COREDNS_SOURCE: &str = include_str!("../../go/coredns/main.go");
const ADMISSION_LOAD_SOURCE: &str = include_str!("../../go/admissionload/main.go");
const BUNDLE_CHECK_SOURCE: &str = include_str!("../../go/bundlecheck/main.go");
const SIZE_WEBHOOK_SOURCE: &str = include_str!("../../go/sizewebhook/main.go");

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubelet,
    KubeProxy,
    Kubectl,
    /// etcd, etcdctl and, from 3.5 on, etcdutl of one version.
    Etcd(String),
    CoreDns,
    Pause,
    Helm3,
    Helm4,
    /// A server that speaks S3, for backups.
    Versitygw,
    /// Judges the bundle for OLM.
    BundleCheck,
    /// What the benchmark of admission measures against; only that builds it.
    SizeWebhook,
    /// The client of that benchmark.
    AdmissionLoad,
}

/// One file to build: its name and the package it comes from.
#[derive(Debug, PartialEq, Eq)]
pub struct Output {
    pub file: &'static str,
    pub package: String,
}

impl Program {
    /// Everything, what is needed first first.
    pub fn all() -> Vec<Self> {
        let mut all = Self::of_a_cluster();
        all.extend([Self::Helm4, Self::Helm3]);
        all
    }

    /// What a cluster runs, and the images in it.
    fn of_a_cluster() -> Vec<Self> {
        let mut programs = vec![
            Self::Etcd(ETCD_OF_THE_CONTROL_PLANE.to_owned()),
            Self::KubeApiserver,
            Self::KubeControllerManager,
            Self::KubeScheduler,
            Self::Kubelet,
            Self::KubeProxy,
            Self::Kubectl,
            Self::Pause,
            Self::CoreDns,
            Self::Versitygw,
        ];
        programs.extend(
            ETCD.iter()
                .skip(1)
                .chain(&coreos_era::ETCD)
                .map(|version| Self::Etcd((*version).to_owned())),
        );
        programs
    }

    /// The name of its (first) file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Kubectl => "kubectl",
            Self::Etcd(_) => "etcd",
            Self::CoreDns => "coredns",
            Self::Pause => "pause",
            Self::Helm3 | Self::Helm4 => "helm",
            Self::Versitygw => "versitygw",
            Self::BundleCheck => "bundle-check",
            Self::SizeWebhook => "size-webhook",
            Self::AdmissionLoad => "admission-load",
        }
    }

    pub fn version(&self) -> &str {
        match self {
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl => KUBERNETES,
            Self::Etcd(version) => version,
            Self::CoreDns => COREDNS,
            Self::Pause | Self::AdmissionLoad => "1",
            Self::Helm3 => HELM_3,
            Self::Helm4 => HELM_4,
            Self::Versitygw => VERSITYGW,
            Self::BundleCheck => OPERATOR_FRAMEWORK,
            Self::SizeWebhook => CONTROLLER_RUNTIME,
        }
    }

    pub fn folder(&self) -> String {
        format!("{}-{}", self.name(), self.version())
    }

    /// The name of the folder its go.mod is written to: programs of one module share it.
    pub fn source_folder(&self) -> String {
        if self.staging().is_some() {
            format!("kubernetes-{KUBERNETES}")
        } else {
            self.folder()
        }
    }

    pub fn outputs(&self) -> Vec<Output> {
        let one = |package: String| {
            vec![Output {
                file: self.name(),
                package,
            }]
        };
        match self {
            Self::Etcd(version) if self.whole_go_mod().is_some() => {
                let module = coreos_era::module(version);
                vec![
                    Output {
                        file: "etcd",
                        package: module.to_owned(),
                    },
                    Output {
                        file: "etcdctl",
                        package: format!("{module}/etcdctl"),
                    },
                ]
            }
            Self::Etcd(_) => [
                ("etcd", "server"),
                ("etcdctl", "etcdctl"),
                ("etcdutl", "etcdutl"),
            ]
            .map(|(file, module)| Output {
                file,
                package: format!("go.etcd.io/etcd/{module}/v3"),
            })
            .into(),
            Self::CoreDns
            | Self::Pause
            | Self::BundleCheck
            | Self::SizeWebhook
            | Self::AdmissionLoad => one(".".to_owned()),
            Self::Helm3 => one("helm.sh/helm/v3/cmd/helm".to_owned()),
            Self::Helm4 => one("helm.sh/helm/v4/cmd/helm".to_owned()),
            Self::Versitygw => one("github.com/versity/versitygw/cmd/versitygw".to_owned()),
            kubernetes => one(format!("k8s.io/kubernetes/cmd/{}", kubernetes.name())),
        }
    }

    /// The modules its go.mod requires.
    pub fn modules(&self) -> Vec<(String, String)> {
        let version = format!("v{}", self.version());
        let paths: Vec<String> = match self {
            Self::Etcd(_) => ["server", "etcdctl", "etcdutl"]
                .map(|module| format!("go.etcd.io/etcd/{module}/v3"))
                .into(),
            Self::CoreDns => vec!["github.com/coredns/coredns".to_owned()],
            Self::Pause | Self::AdmissionLoad => vec![],
            Self::Helm3 => vec!["helm.sh/helm/v3".to_owned()],
            Self::Helm4 => vec!["helm.sh/helm/v4".to_owned()],
            Self::Versitygw => vec!["github.com/versity/versitygw".to_owned()],
            Self::BundleCheck => {
                // The libraries that the API server is built with anyway: most of the work is done then.
                return vec![
                    ("github.com/operator-framework/api".to_owned(), version),
                    (
                        "k8s.io/apiextensions-apiserver".to_owned(),
                        format!("v{STAGING}"),
                    ),
                ];
            }
            Self::SizeWebhook => vec!["sigs.k8s.io/controller-runtime".to_owned()],
            _ => vec!["k8s.io/kubernetes".to_owned()],
        };
        paths
            .into_iter()
            .map(|path| (path, version.clone()))
            .collect()
    }

    /// The whole go.mod, where its own module has none to build on.
    pub fn whole_go_mod(&self) -> Option<&'static str> {
        match self {
            Self::Etcd(version) => coreos_era::go_mod(version),
            _ => None,
        }
    }

    /// Kubernetes' go.mod points at folders of its own repository, which a module download does not have: they are replaced by
    /// the modules published as this version.
    pub fn staging(&self) -> Option<&'static str> {
        match self {
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl => Some(STAGING),
            _ => None,
        }
    }

    /// A main package of our own, where there is one.
    pub fn main_source(&self) -> Option<&'static str> {
        match self {
            Self::CoreDns => Some(COREDNS_SOURCE),
            Self::Pause => Some(PAUSE_SOURCE),
            Self::BundleCheck => Some(BUNDLE_CHECK_SOURCE),
            Self::SizeWebhook => Some(SIZE_WEBHOOK_SOURCE),
            Self::AdmissionLoad => Some(ADMISSION_LOAD_SOURCE),
            _ => None,
        }
    }

    pub fn linker_flags(&self) -> String {
        let version = self.version();
        match self {
            // As Helm's own releases do: without the last two, `helm template` believes in Kubernetes 1.20.
            Self::Helm3 => format!(
                "-s -w -X helm.sh/helm/v3/internal/version.version=v{version} \
                 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 \
                 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36"
            ),
            Self::Helm4 => format!("-s -w -X helm.sh/helm/v4/internal/version.version=v{version}"),
            _ if self.staging().is_some() => {
                let mut numbers = version.split('.');
                let (major, minor) = (
                    numbers.next().unwrap_or_default(),
                    numbers.next().unwrap_or_default(),
                );
                let variable = "-X k8s.io/component-base/version";
                format!(
                    "-s -w {variable}.gitVersion=v{version} {variable}.gitMajor={major} {variable}.gitMinor={minor}"
                )
            }
            _ => "-s -w".to_owned(),
        }
    }

    /// A short hash of everything that decides the bytes of the result.
    pub fn key(&self, go_version: &str) -> String {
        let mut decisive = vec![
            go_version.to_owned(),
            GO_FLAGS.to_owned(),
            self.linker_flags(),
            self.whole_go_mod()
                .map_or_else(|| go_mod(&self.modules(), &[]), str::to_owned),
        ];
        decisive.extend(
            self.outputs()
                .into_iter()
                .map(|output| format!("{}={}", output.file, output.package)),
        );
        decisive.extend(self.staging().map(str::to_owned));
        decisive.extend(
            self.whole_go_mod()
                .and_then(coreos_era::mended)
                .map(|mended| mended.right.to_owned()),
        );
        decisive.extend(self.main_source().map(str::to_owned));
        let digest = Sha256::digest(decisive.join("\0"));
        format!("{digest:x}").chars().take(12).collect()
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} v{}", self.name(), self.version())
    }
}

/// A main module that requires `modules` and replaces each of `replaced` by the named version of itself.
pub fn go_mod(modules: &[(String, String)], replaced: &[(String, String)]) -> String {
    let required = lines(modules, |(path, version)| format!("\t{path} {version}\n"));
    let replaced = lines(replaced, |(path, version)| {
        format!("\t{path} => {path} {version}\n")
    });
    let block = |word: &str, lines: String| {
        if lines.is_empty() {
            lines
        } else {
            format!("{word} (\n{lines})\n")
        }
    };
    format!(
        "module local\ngo {LANGUAGE}\n{}{}",
        block("require", required),
        block("replace", replaced)
    )
}

fn lines<T>(of: &[T], line: impl Fn(&T) -> String) -> String {
    of.iter().map(line).collect::<Vec<_>>().concat()
}

/// The modules that a go.mod replaces by a folder under `./staging`.
pub fn staged_modules(go_mod: &str) -> Vec<String> {
    go_mod
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("replace ")
                .split_once(" => ")
        })
        .filter(|(_, target)| target.trim().starts_with("./staging/"))
        .filter_map(|(path, _)| path.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_program_has_a_key_of_its_own() {
        let all = Program::all();
        let keys: BTreeSet<_> = all
            .iter()
            .map(|program| format!("{}-{}", program.folder(), program.key("go1.26.8")))
            .collect();
        assert_eq!(keys.len(), all.len());
    }

    #[test]
    fn the_key_follows_the_go_version_and_the_pinned_version() {
        let etcd = |version: &str| Program::Etcd(version.to_owned());
        assert_eq!(
            etcd("3.6.16").key("go1.26.8"),
            etcd("3.6.16").key("go1.26.8")
        );
        assert_ne!(
            etcd("3.6.16").key("go1.26.8"),
            etcd("3.6.16").key("go1.26.9")
        );
        assert_ne!(
            etcd("3.6.16").key("go1.26.8"),
            etcd("3.6.10").key("go1.26.8")
        );
    }

    #[test]
    fn the_staging_modules_are_read_from_the_go_mod_of_kubernetes() {
        let theirs = "module k8s.io/kubernetes\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\texample.org/x => example.org/y v1.0.0\n\tk8s.io/client-go => ./staging/src/k8s.io/client-go\n)\nreplace k8s.io/one => ./staging/src/k8s.io/one\n";
        assert_eq!(
            staged_modules(theirs),
            ["k8s.io/api", "k8s.io/client-go", "k8s.io/one"]
        );
    }

    #[test]
    fn a_go_mod_requires_and_replaces() {
        let pair = |path: &str, version: &str| (path.to_owned(), version.to_owned());
        assert_eq!(
            go_mod(
                &[pair("k8s.io/kubernetes", "v1.36.4")],
                &[pair("k8s.io/api", "v0.36.4")]
            ),
            "module local\ngo 1.26.0\nrequire (\n\tk8s.io/kubernetes v1.36.4\n)\nreplace (\n\tk8s.io/api => k8s.io/api v0.36.4\n)\n"
        );
        assert_eq!(go_mod(&[], &[]), "module local\ngo 1.26.0\n");
    }

    #[test]
    fn kubernetes_says_its_version_when_asked() {
        assert_eq!(
            Program::Kubelet.linker_flags(),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
        );
    }
}

//! What the local Kubernetes needs from the Linux distribution: looked for by file, installed with apt where we may, else named.
//!
//! Looks at the file system; runs `apt-get` only when something is missing, and only as root on Debian or Ubuntu.

use std::{env, fs, path::Path, process::Command};

use anyhow::{Result, bail};
use nix::unistd::Uid;

use crate::{command, progress};

/// A Debian package and the file whose presence shows that what it brings is there.
struct Need {
    package: &'static str,
    any_of: &'static [&'static str],
}

const fn need(package: &'static str, any_of: &'static [&'static str]) -> Need {
    Need { package, any_of }
}

const CERTIFICATES: Need = need(
    "ca-certificates",
    &[
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
    ],
);

const FOR_BUILDING: &[Need] = &[need("git", &["git"]), CERTIFICATES];

const FOR_A_CLUSTER: &[Need] = &[
    need("containerd", &["containerd"]),
    need("runc", &["runc"]),
    need("containernetworking-plugins", &["/usr/lib/cni/ptp"]),
    need("iptables", &["iptables"]),
    need("conntrack", &["conntrack"]),
    need("iproute2", &["ip"]),
    need("util-linux", &["nsenter"]),
    need("mount", &["mount"]),
];

const FOR_RUST: &[Need] = &[
    need("protobuf-compiler", &["protoc"]),
    need(
        "libprotobuf-dev",
        &["/usr/include/google/protobuf/descriptor.proto"],
    ),
];

/// git, which Go asks for some modules, and the certificates to download over TLS.
pub fn ensure_for_building() -> Result<()> {
    ensure(FOR_BUILDING)
}

/// containerd, runc, network plug-ins and the like.
pub fn ensure_for_a_cluster() -> Result<()> {
    ensure(FOR_A_CLUSTER)
}

/// protoc, without which the crates that speak to etcd do not compile.
pub fn ensure_for_rust() -> Result<()> {
    ensure(FOR_RUST)
}

fn ensure(needs: &[Need]) -> Result<()> {
    let missing = missing(needs, present);
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!(
        "apt-get install -y --no-install-recommends {}",
        missing.join(" ")
    );
    if !Uid::effective().is_root() || !debian() {
        bail!(
            "missing on this machine: {}. On Debian or Ubuntu: sudo {install}",
            missing.join(", ")
        );
    }
    progress::step(&format!("Installing {}", missing.join(", ")), || {
        let apt = |arguments: &[&str]| {
            command::run(
                Command::new("apt-get")
                    .args(["-q", "-o", "DPkg::Lock::Timeout=300"])
                    .args(arguments)
                    .env("DEBIAN_FRONTEND", "noninteractive"),
            )
        };
        let mut arguments = vec!["install", "-y", "--no-install-recommends"];
        arguments.extend(&missing);
        // Package lists may be absent or old: only then are they fetched.
        apt(&arguments).or_else(|_| apt(&["update"]).and_then(|()| apt(&arguments)))
    })
}

fn missing(needs: &[Need], present: impl Fn(&str) -> bool) -> Vec<&'static str> {
    needs
        .iter()
        .filter(|need| !need.any_of.iter().any(|file| present(file)))
        .map(|need| need.package)
        .collect()
}

fn present(file: &str) -> bool {
    // An ordinary user's PATH lacks the folders where iptables and runc live.
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut folders =
        env::split_paths(&folders).chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(Into::into));
    if file.starts_with('/') {
        Path::new(file).exists()
    } else {
        folders.any(|folder| folder.join(file).is_file())
    }
}

fn debian() -> bool {
    fs::read_to_string("/etc/os-release").is_ok_and(|release| {
        release.lines().any(|line| {
            (line.starts_with("ID=") || line.starts_with("ID_LIKE=")) && line.contains("debian")
        })
    }) && present("apt-get")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_absent_is_missing() {
        assert_eq!(
            missing(FOR_RUST, |file| file == "protoc"),
            ["libprotobuf-dev"]
        );
        assert!(missing(FOR_RUST, |_| true).is_empty());
    }

    #[test]
    fn one_of_several_files_is_enough() {
        let needs = [need("ca-certificates", &["/a", "/b"])];
        assert!(missing(&needs, |file| file == "/b").is_empty());
    }
}

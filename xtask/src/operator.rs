//! The operator of this checkout on a local cluster: compiled, loaded into the nodes, and installed by Helm as a user does.
//!
//! Runs cargo (through `images`), `ctr` and `helm`; touches only the cluster it is given.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{
    images::{self, Image},
    local::Running,
};

pub const RELEASE: &str = "etcd-operator";
pub const NAMESPACE: &str = "etcd-operator";
/// Relative to the checkout, as a person types it there.
pub const CHART: &str = "charts/etcd-operator";

/// The root of this checkout.
pub fn checkout() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Where cargo leaves the binaries that the image holds.
pub fn binaries() -> PathBuf {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout().join("target"), PathBuf::from);
    target
        .join(format!("{}-unknown-linux-gnu", env::consts::ARCH))
        .join("release")
}

/// Compiles the image and loads it into every node.
pub fn load(running: &Running) -> Result<Image> {
    let image = images::operator_image()?;
    images::load(running, &image)?;
    Ok(image)
}

/// What tells Helm of that very image: its name stays the same from build to build, so the digest goes onto the pods,
/// which makes an upgrade replace them when, and only when, the image changed.
pub fn image_arguments(image: &Image) -> Vec<String> {
    ["webhook", "controller"]
        .iter()
        .flat_map(|program| {
            let annotation = format!(
                r"{program}.podAnnotations.etcd\.database\.coreos\.com/image-digest={}",
                image.digest
            );
            ["--set-string".to_owned(), annotation]
        })
        .collect()
}

/// `helm upgrade --install …`, to be run in the checkout.
pub fn install(helm: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(helm);
    command
        .current_dir(checkout())
        .env("KUBECONFIG", kubeconfig)
        .args([
            "upgrade",
            "--install",
            RELEASE,
            CHART,
            "--namespace",
            NAMESPACE,
        ])
        .args(["--create-namespace", "--wait"]);
    command
}

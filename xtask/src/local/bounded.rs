//! Volumes that are as large as they say, for the class `bounded`: a file system in memory over the volume's folder. What a full
//! disk does can then be seen without filling the machine's. Mounts, resizes and unmounts; nothing else.

use std::{io, path::Path};

use k8s_openapi::{
    api::storage::v1::StorageClass, apimachinery::pkg::api::resource::Quantity as Size,
};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::procfs;

const PARAMETER: &str = "bounded";

/// Whether volumes of this class end where their size says.
pub fn wanted(class: &StorageClass) -> bool {
    let parameters = class.parameters.as_ref();
    parameters
        .and_then(|parameters| parameters.get(PARAMETER))
        .is_some_and(|value| value == "true")
}

/// Puts the bound there, or leaves the one that is.
pub fn bound(folder: &Path, size: &str) -> io::Result<()> {
    if is_bounded(folder) {
        return Ok(());
    }
    let options = options(size)?;
    mount(
        Some("bounded"),
        folder,
        Some("tmpfs"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .map_err(io::Error::from)
}

/// Moves the bound while whoever uses the volume goes on. A volume without one has room enough.
pub fn grow(folder: &Path, size: &str) -> io::Result<()> {
    if !is_bounded(folder) {
        return Ok(());
    }
    let options = options(size)?;
    mount(
        None::<&str>,
        folder,
        None::<&str>,
        MsFlags::MS_REMOUNT,
        Some(options.as_str()),
    )
    .map_err(io::Error::from)
}

/// Gives back the memory. The folder is as it was before the bound: empty.
pub fn unbound(folder: &Path) -> io::Result<()> {
    if !is_bounded(folder) {
        return Ok(());
    }
    umount2(folder, MntFlags::MNT_DETACH).map_err(io::Error::from)
}

fn is_bounded(folder: &Path) -> bool {
    procfs::mounted_below(folder)
        .iter()
        .any(|point| point == folder)
}

fn options(size: &str) -> io::Result<String> {
    etcd_operator_api::quantity::Amount::parse(&Size(size.to_owned()))
        .ok()
        .and_then(etcd_operator_api::quantity::Amount::bytes)
        .map(|bytes| format!("size={bytes},mode=0777"))
        .ok_or_else(|| io::Error::other(format!("`{size}` is no size of a volume")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_told_to_the_kernel_in_bytes() {
        assert_eq!(options("64Mi").unwrap(), "size=67108864,mode=0777");
        assert!(options("much").is_err());
    }

    #[test]
    fn a_class_is_bounded_only_where_it_says_so() {
        let class = |parameters: serde_json::Value| -> StorageClass {
            serde_json::from_value(
                serde_json::json!({"metadata": {"name": "c"}, "provisioner": "p", "parameters": parameters}),
            )
            .unwrap()
        };
        assert!(wanted(&class(serde_json::json!({"bounded": "true"}))));
        assert!(!wanted(&class(serde_json::json!({"bounded": "false"}))));
        assert!(!wanted(&class(serde_json::json!({}))));
    }
}

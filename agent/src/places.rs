//! Where things are: what a pod mounts, the tools of etcd, the termination message.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use etcd_operator_api::orders::mounts;

use crate::failure::Failure;

/// Names another folder for `/`, so that the agent can be tried outside of a pod.
pub const ROOT: &str = "ETCD_OPERATOR_AGENT_ROOT";

#[derive(Clone, Debug)]
pub struct Places {
    root: PathBuf,
}

impl Places {
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn given() -> Self {
        Self::below(env::var_os(ROOT).unwrap_or_else(|| "/".into()))
    }

    /// A path as a pod has it.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.at(mounts::SCRATCH)
    }

    pub(crate) fn termination_message(&self) -> PathBuf {
        self.at("/dev/termination-log")
    }

    /// A file of a mounted Secret, without the newline that editors leave; `None` where the Secret has no such key.
    pub(crate) fn secret(&self, mount: &str, key: &str) -> Result<Option<String>, Failure> {
        let path = self.at(mount).join(key);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::file("read", &path, &error)),
        }
    }

    /// One of etcd's programs, in the image of etcd.
    pub(crate) fn tool(&self, name: &str) -> Option<PathBuf> {
        ["/usr/local/bin", "/usr/bin", "/bin"]
            .iter()
            .map(|folder| self.at(folder).join(name))
            .find(|file| file.is_file())
    }

    /// A member's folder, given as a path in the pod.
    pub(crate) fn member(&self, data_dir: &str) -> PathBuf {
        self.at(&Path::new(mounts::DATA).join(data_dir).to_string_lossy())
    }
}

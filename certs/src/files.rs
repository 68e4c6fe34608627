//! Certificates in mounted files, read again and again: whether they changed is told by their content. Reads files, never writes.
//!
//! Content and not dates or notifications: the kubelet swaps a symbolic link above the files, other mounts (CSI, host paths, a
//! person's editor) do other things, and a few kilobytes every few seconds cost nothing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// As the keys of a `kubernetes.io/tls` Secret are called.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";
/// The link that the kubelet swaps: all files behind it are of one version.
const SWAPPED: &str = "..data";
/// What a Secret may hold.
const LARGEST: u64 = 1 << 20;

/// A file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} must not be larger than {LARGEST} bytes")]
    TooLarge { path: PathBuf },
}

/// What lay in the directory. No Debug: it holds a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Contents {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    pub authority: Option<Vec<u8>>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents").finish_non_exhaustive()
    }
}

/// A directory with `tls.crt`, `tls.key` and perhaps `ca.crt`.
#[derive(Debug)]
pub struct CertificateFiles {
    directory: PathBuf,
    seen: Option<Contents>,
}

impl CertificateFiles {
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            seen: None,
        }
    }

    /// What is there, if it is not what was there the last time.
    pub fn changed(&mut self) -> Result<Option<Contents>, FilesError> {
        // The version that was being read may have been swapped away and deleted: the next one is whole.
        let contents = self.read().or_else(|_swapped| self.read())?;
        if self.seen.as_ref() == Some(&contents) {
            return Ok(None);
        }
        self.seen = Some(contents.clone());
        Ok(Some(contents))
    }

    fn read(&self) -> Result<Contents, FilesError> {
        // Resolved once, or a swap between two reads would pair an old certificate with a new key.
        let version = fs::canonicalize(self.directory.join(SWAPPED));
        let version = version.as_deref().unwrap_or(&self.directory);
        let authority = match read(&version.join(AUTHORITY)) {
            Ok(authority) => Some(authority),
            Err(FilesError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Contents {
            certificate: read(&version.join(CERTIFICATE))?,
            key: read(&version.join(KEY))?,
            // cert-manager leaves it empty where the issuer does not tell.
            authority: authority.filter(|pem| !pem.trim_ascii().is_empty()),
        })
    }
}

/// One file with a bundle of authorities.
#[derive(Debug)]
pub struct BundleFile {
    path: PathBuf,
    seen: Option<Vec<u8>>,
}

impl BundleFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, seen: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it, if it is not what was in it the last time.
    pub fn changed(&mut self) -> Result<Option<Vec<u8>>, FilesError> {
        let bundle = read(&self.path)?;
        if self.seen.as_ref() == Some(&bundle) {
            return Ok(None);
        }
        self.seen = Some(bundle.clone());
        Ok(Some(bundle))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FilesError> {
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut content))
        .map_err(|source| FilesError::Read {
            path: path.to_owned(),
            source,
        })?;
    if content.len() as u64 > LARGEST {
        return Err(FilesError::TooLarge {
            path: path.to_owned(),
        });
    }
    Ok(content)
}

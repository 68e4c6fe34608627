//! Writes a container image as one archive that both `ctr images import` (OCI layout) and `docker load` read.
//!
//! The same contents always give the same bytes: no times, no owners, a fixed order. So the digest is known before anything is
//! imported, and a node that has it already is left alone. Touches the files it is told to read and the archive it writes.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

#[derive(Debug)]
pub struct Contents {
    pub name: String,
    pub entrypoint: Vec<String>,
    /// `uid:gid`
    pub user: Option<String>,
    pub entries: Vec<Entry>,
}

#[derive(Debug)]
pub enum Entry {
    Folder {
        path: &'static str,
        mode: u32,
    },
    Text {
        path: &'static str,
        text: &'static str,
    },
    Program {
        path: String,
        file: PathBuf,
    },
}

/// Writes the archive and returns the digest of the image's manifest.
pub fn write(contents: &Contents, archive: &Path) -> Result<String> {
    let layer_file = archive.with_extension("layer");
    let layer = write_layer(&contents.entries, &layer_file);
    let digest = layer.and_then(|layer| write_archive(contents, &layer, &layer_file, archive));
    let _ = std::fs::remove_file(&layer_file);
    digest
}

/// A blob's digest and size.
struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn of(bytes: &[u8]) -> Self {
        Self {
            digest: format!("{:x}", Sha256::digest(bytes)),
            size: bytes.len() as u64,
        }
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": format!("application/vnd.oci.image.{media_type}"), "digest": format!("sha256:{}", self.digest), "size": self.size})
    }
}

fn write_layer(entries: &[Entry], path: &Path) -> Result<Blob> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut layer = tar::Builder::new(Hashing {
        inner: BufWriter::new(file),
        hash: Sha256::new(),
        size: 0,
    });
    for entry in entries {
        match entry {
            Entry::Folder { path, mode } => layer.append_data(
                &mut header(EntryType::Directory, *mode, 0),
                path,
                io::empty(),
            )?,
            Entry::Text { path, text } => layer.append_data(
                &mut header(EntryType::Regular, 0o644, text.len() as u64),
                path,
                text.as_bytes(),
            )?,
            Entry::Program { path, file } => {
                let source =
                    File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
                layer.append_data(
                    &mut header(EntryType::Regular, 0o755, source.metadata()?.len()),
                    path,
                    source,
                )?;
            }
        }
    }
    let mut written = layer.into_inner()?;
    written.inner.flush()?;
    Ok(Blob {
        digest: format!("{:x}", written.hash.finalize()),
        size: written.size,
    })
}

fn write_archive(
    contents: &Contents,
    layer: &Blob,
    layer_file: &Path,
    archive: &Path,
) -> Result<String> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut config = json!({"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "WorkingDir": "/"});
    if !contents.entrypoint.is_empty() {
        config["Entrypoint"] = json!(contents.entrypoint);
    }
    if let Some(user) = &contents.user {
        config["User"] = json!(user);
    }
    let config_bytes = serde_json::to_vec(&json!({
        "architecture": architecture, "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)]},
    }))?;
    let config = Blob::of(&config_bytes);
    let manifest_bytes = serde_json::to_vec(&json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("config.v1+json"), "layers": [layer.descriptor("layer.v1.tar")],
    }))?;
    let manifest = Blob::of(&manifest_bytes);
    let mut descriptor = manifest.descriptor("manifest.v1+json");
    descriptor["annotations"] = json!({"io.containerd.image.name": contents.name, "org.opencontainers.image.ref.name": contents.name});
    let index = serde_json::to_vec(
        &json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [descriptor]}),
    )?;
    let for_docker = serde_json::to_vec(
        &json!([{"Config": config.path(), "RepoTags": [contents.name], "Layers": [layer.path()]}]),
    )?;

    let mut out = tar::Builder::new(BufWriter::new(
        File::create(archive).with_context(|| format!("cannot write {}", archive.display()))?,
    ));
    let mut add = |path: &str, size: u64, bytes: &mut dyn Read| {
        out.append_data(&mut header(EntryType::Regular, 0o644, size), path, bytes)
    };
    for (path, bytes) in [
        (
            "oci-layout".to_owned(),
            br#"{"imageLayoutVersion":"1.0.0"}"#.as_slice(),
        ),
        ("index.json".to_owned(), &index),
        ("manifest.json".to_owned(), &for_docker),
        (manifest.path(), &manifest_bytes),
        (config.path(), &config_bytes),
    ] {
        add(&path, bytes.len() as u64, &mut io::Cursor::new(bytes))?;
    }
    add(&layer.path(), layer.size, &mut File::open(layer_file)?)?;
    out.into_inner()?.flush()?;
    Ok(format!("sha256:{}", manifest.digest))
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!(
            "etcd-operator-archive-{name}-{}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn contents(folder: &Path, program: &str) -> Contents {
        fs::write(folder.join("program"), program).unwrap();
        Contents {
            name: "example.org/thing:v1".to_owned(),
            entrypoint: vec!["/thing".to_owned()],
            user: Some("65532:65532".to_owned()),
            entries: vec![
                Entry::Folder {
                    path: "tmp/",
                    mode: 0o1777,
                },
                Entry::Text {
                    path: "etc/passwd",
                    text: "root:x:0:0::/:\n",
                },
                Entry::Program {
                    path: "thing".to_owned(),
                    file: folder.join("program"),
                },
            ],
        }
    }

    fn files(archive: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(File::open(archive).unwrap());
        archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let path = entry.path().unwrap().display().to_string();
                let mut bytes = vec![];
                entry.read_to_end(&mut bytes).unwrap();
                (path, bytes)
            })
            .collect()
    }

    #[test]
    fn the_same_contents_give_the_same_bytes_and_other_contents_another_digest() {
        let folder = folder("same");
        let first = write(&contents(&folder, "one"), &folder.join("a.tar")).unwrap();
        let again = write(&contents(&folder, "one"), &folder.join("b.tar")).unwrap();
        let other = write(&contents(&folder, "two"), &folder.join("c.tar")).unwrap();
        assert_eq!(first, again);
        assert_eq!(
            fs::read(folder.join("a.tar")).unwrap(),
            fs::read(folder.join("b.tar")).unwrap()
        );
        assert_ne!(first, other);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_blob_is_named_by_the_hash_of_its_bytes_and_the_index_leads_to_all_of_them() {
        let folder = folder("blobs");
        let digest = write(&contents(&folder, "one"), &folder.join("a.tar")).unwrap();
        let files = files(&folder.join("a.tar"));
        for (path, bytes) in &files {
            if let Some(name) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(name, format!("{:x}", Sha256::digest(bytes)));
            }
        }
        let blob = |digest: &str| {
            files
                .get(&digest.replace("sha256:", "blobs/sha256/"))
                .unwrap()
        };
        let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let index = read(&files["index.json"]);
        assert_eq!(index["manifests"][0]["digest"], digest);
        assert_eq!(
            index["manifests"][0]["annotations"]["io.containerd.image.name"],
            "example.org/thing:v1"
        );
        let manifest = read(blob(&digest));
        let config = read(blob(manifest["config"]["digest"].as_str().unwrap()));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            manifest["layers"][0]["digest"]
        );
        assert!(!folder.join("a.layer").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_layer_holds_programs_one_may_run_and_a_tmp_anyone_may_write() {
        let folder = folder("layer");
        write_layer(&contents(&folder, "one").entries, &folder.join("layer")).unwrap();
        let mut archive = tar::Archive::new(File::open(folder.join("layer")).unwrap());
        let modes: BTreeMap<_, _> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (
                    entry.path().unwrap().display().to_string(),
                    entry.header().mode().unwrap(),
                )
            })
            .collect();
        assert_eq!(modes["tmp/"], 0o1777);
        assert_eq!(modes["thing"], 0o755);
        fs::remove_dir_all(folder).unwrap();
    }
}

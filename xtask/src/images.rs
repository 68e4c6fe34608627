//! Container images without Docker and without a registry: archives made here, imported under the names that manifests use.
//!
//! Reads programs from the cache and from cargo's target folder, writes archives into the cache, and runs `ctr` on nodes.

pub mod archive;

use std::{
    env, fs,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, Result, anyhow};
use archive::{Contents, Entry};
use etcd_operator_api::Version;
use sha2::{Digest, Sha256};

use crate::{
    cache::{self, Cache},
    command,
    local::{self, Running},
    packages,
    programs::{self, Program, Programs},
    progress,
};

const OPERATOR: &str = "ghcr.io/etcd-operator/etcd-operator";
pub(crate) const OPERATOR_PROGRAMS: [&str; 3] = [
    "etcd-operator-webhook",
    "etcd-operator-controller",
    "etcd-operator-agent",
];
/// Static, so that the image needs no C library; at a fixed address, so that tables of addresses stay pages of the file that are read
/// when they are needed, in place of memory that is written at every start. The Dockerfile says the same.
const OPERATOR_FLAGS: &str = "-C target-feature=+crt-static -C relocation-model=static";
const PASSWD: &str =
    "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";
/// Where etcd's releases are published, all of them in both: a cluster that was created at one stays with it.
const REPOSITORIES: [&str; 2] = ["gcr.io/etcd-development/etcd", "quay.io/coreos/etcd"];
/// Raised when what is written into an image changes without any program changing.
const FORMAT: u32 = 1;

/// An image archive on disk, and the name under which it is imported.
#[derive(Debug, Clone)]
pub struct Image {
    pub name: String,
    pub archive: PathBuf,
    pub digest: String,
    /// A second name for it, for those who ask at another of its official registries.
    pub also: Option<String>,
}

/// The operator's image, compiled from this checkout: three static binaries, nothing else, nobody's root.
pub fn operator_image() -> Result<Image> {
    packages::ensure_for_rust()?;
    let binaries = progress::step("Compiling the operator (release)", compile_operator)?;
    let mut hash = Sha256::new();
    for binary in &binaries {
        io::copy(
            &mut File::open(binary).with_context(|| format!("cannot read {}", binary.display()))?,
            &mut hash,
        )?;
    }
    let contents = operator_contents(binaries);
    archived(
        &Cache::open()?,
        &format!("etcd-operator-{:.12}", format!("{:x}", hash.finalize())),
        &contents,
    )
}

fn operator_contents(binaries: Vec<PathBuf>) -> Contents {
    let programs = OPERATOR_PROGRAMS
        .iter()
        .zip(binaries)
        .map(|(name, file)| Entry::Program {
            path: (*name).to_owned(),
            file,
        });
    Contents {
        name: format!("{OPERATOR}:{}", env!("CARGO_PKG_VERSION")),
        entrypoint: vec![],
        user: Some("65532:65532".to_owned()),
        entries: base().into_iter().chain(programs).collect(),
    }
}

fn compile_operator() -> Result<Vec<PathBuf>> {
    let triple = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the workspace is above xtask")?;
    let mut build = command::cargo();
    build
        .current_dir(root)
        .args(["build", "--release", "--locked", "--target", &triple]);
    for program in OPERATOR_PROGRAMS {
        build.args(["--package", program, "--bin", program]);
    }
    // Cargo's own variables for xtask must not leak into another build.
    build
        .env("RUSTFLAGS", OPERATOR_FLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET");
    command::run(&mut build)?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(OPERATOR_PROGRAMS
        .iter()
        .map(|program| target.join(&triple).join("release").join(program))
        .collect())
}

/// The images that every local cluster has from its start: pause, CoreDNS, a server that speaks S3, and every etcd.
pub fn of_a_cluster(cache: &Cache, programs: &Programs) -> Result<Vec<Image>> {
    let mut images = vec![
        single(
            cache,
            programs,
            &Program::Pause,
            local::PAUSE_IMAGE.to_owned(),
        )?,
        single(
            cache,
            programs,
            &Program::CoreDns,
            format!("registry.k8s.io/coredns/coredns:v{}", programs::COREDNS),
        )?,
        single(
            cache,
            programs,
            &Program::Versitygw,
            format!("ghcr.io/versity/versitygw:v{}", programs::VERSITYGW),
        )?,
    ];
    for version in programs::ETCD.into_iter().chain(programs::coreos_era::ETCD) {
        images.push(etcd(cache, programs, version)?);
    }
    Ok(images)
}

fn single(cache: &Cache, programs: &Programs, program: &Program, name: String) -> Result<Image> {
    let built = programs.get(program)?;
    let entry = Entry::Program {
        path: program.name().to_owned(),
        file: built.file(program.name()),
    };
    let contents = Contents {
        name,
        entrypoint: vec![format!("/{}", program.name())],
        user: None,
        entries: base().into_iter().chain([entry]).collect(),
    };
    archived(cache, &built.key(), &contents)
}

fn etcd(cache: &Cache, programs: &Programs, version: &str) -> Result<Image> {
    let built = programs.etcd(version)?;
    let folders = ["usr/", "usr/local/", "usr/local/bin/", "var/", "var/lib/"]
        .map(|path| Entry::Folder { path, mode: 0o755 });
    let files = built
        .program
        .outputs()
        .into_iter()
        .map(|output| Entry::Program {
            path: format!("usr/local/bin/{}", output.file),
            file: built.file(output.file),
        });
    let repository = version
        .parse::<Version>()
        .with_context(|| format!("{version} is no version of etcd"))?
        .default_repository();
    let contents = Contents {
        name: format!("{repository}:v{version}"),
        entrypoint: vec!["/usr/local/bin/etcd".to_owned()],
        user: None,
        entries: base().into_iter().chain(folders).chain(files).collect(),
    };
    let image = archived(cache, &built.key(), &contents)?;
    let elsewhere = REPOSITORIES
        .into_iter()
        .find(|other| *other != repository)
        .map(|other| format!("{other}:v{version}"));
    Ok(Image {
        also: elsewhere,
        ..image
    })
}

fn base() -> Vec<Entry> {
    vec![
        Entry::Folder {
            path: "etc/",
            mode: 0o755,
        },
        Entry::Text {
            path: "etc/passwd",
            text: PASSWD,
        },
        Entry::Text {
            path: "etc/group",
            text: GROUP,
        },
        Entry::Folder {
            path: "tmp/",
            mode: 0o1777,
        },
    ]
}

/// The archive of that key from the cache, written first if it is not there.
fn archived(cache: &Cache, key: &str, contents: &Contents) -> Result<Image> {
    let folder = cache.images().join(format!("{key}-{FORMAT}"));
    let _lock = cache.lock(&format!("image-{key}"), || {})?;
    if !folder.exists() {
        cache::appear_whole(&folder, |partial| {
            fs::create_dir_all(partial)?;
            let digest = archive::write(contents, &partial.join("image.tar"))?;
            Ok(fs::write(partial.join("digest"), digest)?)
        })?;
    }
    Ok(Image {
        name: contents.name.clone(),
        archive: folder.join("image.tar"),
        digest: fs::read_to_string(folder.join("digest"))?,
        also: None,
    })
}

/// Imports the image on every node; a node that has that very image is left alone.
pub fn load(running: &Running, image: &Image) -> Result<()> {
    let sockets = local::runtime_sockets(&running.name)?;
    thread::scope(|scope| {
        let imports: Vec<_> = sockets
            .iter()
            .map(|socket| scope.spawn(|| import(socket, std::slice::from_ref(image))))
            .collect();
        imports.into_iter().try_for_each(|import| {
            import
                .join()
                .map_err(|_| anyhow!("an import ended abruptly"))?
        })
    })
}

/// Imports into the containerd that listens on `socket` what it does not have.
pub fn import(socket: &Path, images: &[Image]) -> Result<()> {
    let ctr = || {
        let mut ctr = Command::new("ctr");
        ctr.arg("--address")
            .arg(socket)
            .args(["--namespace", "k8s.io", "images"]);
        ctr
    };
    let present = command::output(ctr().arg("list"))?;
    for image in images {
        if !holds(&present, image) {
            command::run(ctr().arg("import").arg(&image.archive))
                .with_context(|| format!("cannot import {}", image.name))?;
            if let Some(also) = &image.also {
                command::run(ctr().args(["tag", "--force", &image.name, also]))
                    .with_context(|| format!("cannot call {} {also} too", image.name))?;
            }
        }
    }
    Ok(())
}

/// Whether `ctr images list` shows that name with that digest.
fn holds(listing: &str, image: &Image) -> bool {
    listing
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .any(|words| {
            words.first() == Some(&image.name.as_str()) && words.contains(&image.digest.as_str())
        })
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, time::SystemTime};

    use super::*;

    /// All programs in a folder of their own, as old and as permitted as told.
    fn compiled(folder: &Path, age: SystemTime, mode: u32) -> Vec<PathBuf> {
        fs::create_dir_all(folder).unwrap();
        OPERATOR_PROGRAMS
            .iter()
            .map(|name| {
                let path = folder.join(name);
                fs::write(&path, format!("the bytes of {name}")).unwrap();
                let file = File::options().write(true).open(&path).unwrap();
                file.set_modified(age).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                path
            })
            .collect()
    }

    #[test]
    fn the_operators_image_is_the_same_bytes_whoever_compiled_the_same_programs_and_when() {
        let folder =
            env::temp_dir().join(format!("etcd-operator-same-image-{}", std::process::id()));
        let here = compiled(&folder.join("here"), SystemTime::now(), 0o755);
        let there = compiled(&folder.join("there"), SystemTime::UNIX_EPOCH, 0o700);
        let first = archive::write(&operator_contents(here), &folder.join("a.tar")).unwrap();
        let second = archive::write(&operator_contents(there), &folder.join("b.tar")).unwrap();
        assert_eq!(first, second);
        assert_eq!(
            fs::read(folder.join("a.tar")).unwrap(),
            fs::read(folder.join("b.tar")).unwrap()
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_dockerfile_compiles_as_the_local_image_is_compiled() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let dockerfile = fs::read_to_string(checkout.join("Dockerfile")).unwrap();
        assert!(
            dockerfile.contains(&format!("RUSTFLAGS=\"{OPERATOR_FLAGS}\"")),
            "xtask/src/images.rs compiles with {OPERATOR_FLAGS}"
        );
    }

    #[test]
    fn an_image_is_held_only_under_its_name_and_with_its_digest() {
        let image = |name: &str, digest: &str| Image {
            name: name.to_owned(),
            archive: PathBuf::new(),
            digest: digest.to_owned(),
            also: None,
        };
        let listing = "REF TYPE DIGEST SIZE PLATFORMS LABELS\nx/y:v1 application/vnd.oci.image.manifest.v1+json sha256:aa 1.0 MiB linux/amd64 -\n";
        assert!(holds(listing, &image("x/y:v1", "sha256:aa")));
        assert!(!holds(listing, &image("x/y:v1", "sha256:bb")));
        assert!(!holds(listing, &image("x/y:v2", "sha256:aa")));
    }
}

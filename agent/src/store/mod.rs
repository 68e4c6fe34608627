//! Stores: S3 and what speaks its language, GCS, Azure, a folder. One type for all of them; every error says what to do.

mod aws_files;
mod build;
mod explain;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use etcd_operator_api::orders::{FailureReason, Manifest, Store};
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, WriteMultipart, path::Path,
};

use crate::{failure::Failure, places::Places};

/// How large the parts are that go up, and the ranges that come down. 10,000 parts are allowed: 60 GB.
pub(crate) const PART: usize = 6 * 1024 * 1024;
/// What is read of a manifest.
const LONGEST_MANIFEST: u64 = 64 * 1024;
const MANIFEST: &str = ".manifest.json";

/// A store, opened.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    store: Arc<dyn ObjectStore>,
    /// In words: `bucket "b" of S3 at https://…`.
    place: String,
    /// What the resource's path says after the bucket.
    pub(crate) base: String,
    /// How long a range is tried again after what the store's own client has tried.
    patience: Duration,
}

impl Opened {
    /// Opens the store with the credentials the pod mounts. Nothing is asked of it yet.
    pub(crate) fn new(store: &Store, places: &Places, patience: Duration) -> Result<Self, Failure> {
        let path = store.path().unwrap_or_default().trim_start_matches('/');
        if matches!(store, Store::PVC(_)) {
            return build::folder(places, path, patience);
        }
        let (bucket, base) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(Failure::invalid(format!(
                "`{}.path` is \"{path}\": it must be <bucket>/<path to the backup>",
                store.kind().field()
            )));
        }
        build::cloud(store, bucket, base, places, patience)
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    fn path(name: &str) -> Result<Path, Failure> {
        let path = Path::parse(name.trim_start_matches('/')).map_err(|error| {
            Failure::invalid(format!("\"{name}\" cannot be a path in a store: {error}"))
        })?;
        if path.as_ref().is_empty() {
            return Err(Failure::invalid(
                "the store's path has no name for the backup after the bucket: it must be <bucket>/<path to the backup>",
            ));
        }
        Ok(path)
    }

    fn explain(&self, doing: &str, error: &object_store::Error) -> Failure {
        explain::explain(doing, &self.place, error)
    }

    /// Begins an upload that is seen by nobody before it is finished.
    pub(crate) async fn upload(&self, name: &str) -> Result<WriteMultipart, Failure> {
        let upload = self.store.put_multipart(&Self::path(name)?).await;
        let upload = upload.map_err(|error| self.explain("write to", &error))?;
        Ok(WriteMultipart::new_with_chunk_size(upload, PART))
    }

    pub(crate) fn uploading(&self, error: &object_store::Error) -> Failure {
        self.explain("write to", error)
    }

    /// Size and identity of an object.
    pub(crate) async fn look(&self, name: &str) -> Result<ObjectMeta, Failure> {
        self.store
            .head(&Self::path(name)?)
            .await
            .map_err(|error| explain::missing(name, &self.place, &error))
    }

    /// A part of exactly that object: one that is replaced meanwhile is not mixed with its former self.
    pub(crate) async fn range(
        &self,
        object: &ObjectMeta,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, Failure> {
        let begun = tokio::time::Instant::now();
        let mut pause = Duration::from_millis(200);
        loop {
            let options = GetOptions {
                if_match: object.e_tag.clone(),
                range: Some(GetRange::Bounded(range.clone())),
                ..GetOptions::default()
            };
            let got = async {
                self.store
                    .get_opts(&object.location, options)
                    .await?
                    .bytes()
                    .await
            };
            let error = match got.await {
                Ok(bytes) if bytes.len() as u64 == range.end - range.start => return Ok(bytes),
                Ok(_) => {
                    return Err(Failure::new(
                        FailureReason::SnapshotIncomplete,
                        format!(
                            "{} gave fewer bytes of {} than it has",
                            self.place, object.location
                        ),
                    ));
                }
                Err(error) => error,
            };
            let failure = match &error {
                object_store::Error::Precondition { .. } => Failure::new(
                    FailureReason::SnapshotChanged,
                    format!(
                        "{} in {} was replaced while it was read",
                        object.location, self.place
                    ),
                ),
                error => explain::missing(object.location.as_ref(), &self.place, error),
            };
            if failure.reason != FailureReason::StoreUnreachable || begun.elapsed() > self.patience
            {
                return Err(failure);
            }
            tracing::warn!(%error, "a range is fetched again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    /// The manifest beside a snapshot, where there is one that can be read.
    pub(crate) async fn manifest(&self, name: &str) -> Result<Option<Manifest>, Failure> {
        let path = Self::path(&format!("{name}{MANIFEST}"))?;
        match self.store.get(&path).await {
            Ok(found) if found.meta.size > LONGEST_MANIFEST => {
                tracing::warn!(%path, "is too long to be a manifest of ours, and not read");
                Ok(None)
            }
            Ok(found) => {
                let text = found.bytes().await;
                let text = text.map_err(|error| self.explain("read from", &error))?;
                let manifest = serde_json::from_slice(&text);
                if let Err(error) = &manifest {
                    tracing::warn!(%path, %error, "is no manifest of ours");
                }
                Ok(manifest.ok())
            }
            Err(error) if explain::is_absent(&error) => Ok(None),
            Err(error) => Err(self.explain("read from", &error)),
        }
    }

    pub(crate) async fn put_manifest(&self, manifest: &Manifest) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(manifest)
            .map_err(|error| Failure::internal(format!("a manifest cannot be written: {error}")))?;
        let path = Self::path(&format!("{}{MANIFEST}", manifest.facts.snapshot))?;
        let put = self.store.put(&path, text.into()).await;
        put.map_err(|error| self.explain("write to", &error))?;
        Ok(())
    }

    /// Removes a manifest; one that is gone already is gone.
    pub(crate) async fn remove_manifest(&self, name: &str) -> Result<(), Failure> {
        self.remove(&format!("{name}{MANIFEST}")).await
    }

    pub(crate) async fn remove(&self, name: &str) -> Result<(), Failure> {
        match self.store.delete(&Self::path(name)?).await {
            Err(error) if !explain::is_absent(&error) => {
                Err(self.explain("remove an old backup from", &error))
            }
            _ => Ok(()),
        }
    }

    /// The snapshots that begin as our path does and have a manifest beside them.
    pub(crate) async fn snapshots(&self) -> Result<Vec<String>, Failure> {
        use futures::TryStreamExt as _;
        let base = Self::path(&self.base)?;
        let folder = base
            .as_ref()
            .rsplit_once('/')
            .map(|(folder, _)| Path::from(folder));
        let mut found = Vec::new();
        let mut objects = self.store.list(folder.as_ref());
        while let Some(object) = objects
            .try_next()
            .await
            .map_err(|error| self.explain("list what is in", &error))?
        {
            let name = object.location.as_ref();
            let ours = name
                .starts_with(base.as_ref())
                .then(|| name.strip_suffix(MANIFEST))
                .flatten();
            found.extend(ours.map(str::to_owned));
        }
        Ok(found)
    }
}

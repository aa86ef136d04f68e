//! Content-addressed files of an image.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::tools::sha256;

/// The `blobs/sha256` folder of an image layout.
pub(super) struct BlobStore(PathBuf);

/// Media type, digest and size of a blob.
pub(super) struct BlobDescriptor {
    media_type: &'static str,
    digest: String,
    size: u64,
}

impl BlobDescriptor {
    pub(super) fn to_json(&self) -> Value {
        let Self { media_type, digest, size } = self;
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
    }
}

impl BlobStore {
    pub(super) fn new(layout: &Path) -> Result<Self> {
        let folder = layout.join("blobs/sha256");
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        Ok(Self(folder))
    }

    /// Adds a JSON document.
    pub(super) fn add_json(&self, media_type: &'static str, document: &Value) -> Result<BlobDescriptor> {
        let new = self.0.join("new");
        fs::write(&new, document.to_string())?;
        let descriptor = self.add_file(media_type, &new)?;
        fs::remove_file(new)?;
        Ok(descriptor)
    }

    /// Adds a copy of a file.
    pub(super) fn add_file(&self, media_type: &'static str, file: &Path) -> Result<BlobDescriptor> {
        let digest = sha256(file)?;
        let size = fs::copy(file, self.0.join(&digest))?;
        Ok(BlobDescriptor { media_type, digest, size })
    }

    /// Returns the file of a descriptor after verifying its size and digest.
    pub(super) fn verified_file(&self, descriptor: &Value) -> Result<PathBuf> {
        let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        let digest = digest.with_context(|| format!("{descriptor} names no file"))?;
        let file = self.0.join(digest);
        let size = fs::metadata(&file).with_context(|| format!("{digest} is not in the archive"))?.len();
        if descriptor["size"].as_u64() != Some(size) {
            bail!("{digest} has {size} bytes, expected {}", descriptor["size"]);
        }
        let found = sha256(&file)?;
        if found != digest {
            bail!("{digest} has digest {found}");
        }
        Ok(file)
    }

    /// Reads the JSON document of a descriptor after verifying it.
    pub(super) fn read_json(&self, descriptor: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(self.verified_file(descriptor)?)?)?)
    }
}

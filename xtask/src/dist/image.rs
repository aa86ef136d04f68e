//! The program as a container image: an archive in OCI image layout.
//!
//! The image consists of the program and its dynamically linked libraries, without a distribution below. Packing the
//! libraries keeps the program byte-identical to the one that was tested and that the other packages contain; a static
//! program would need a second build, and glibc's resolver does not support static linking well.
//!
//! Invariants: the same input gives the same bytes; every digest and size in the image is right; the program runs
//! without files from outside.

mod blobs;
mod libraries;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contents::{self, PackedFile};
use super::{DistRelease, PACK_TIMEOUT, archives, debian_depends, remove_folder_if_exists};
use crate::process::TimedCommand;
use crate::tools::sha256;
use blobs::{BlobDescriptor, BlobStore};

#[cfg(test)]
mod tests;

/// Path of the program in the image, as in Debian.
const PROGRAM_PATH: &str = "usr/bin/unskew";
/// Resolve names from `/etc/hosts`, which the container runtime writes, then by DNS.
const NSSWITCH: &str = "hosts: files dns\n";
/// Some libraries look up the current user.
const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\n";
/// Content of the `oci-layout` file.
const OCI_LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;

const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Program and licence text for an image.
pub(super) struct ImageProgram<'a> {
    pub(super) binary: &'a Path,
    pub(super) licence: &'a str,
}

/// Packs an image.
pub(super) fn pack_image(program: &ImageProgram<'_>, release: &DistRelease, into: &Path) -> Result<PathBuf> {
    let stage = into.join("image-stage");
    remove_folder_if_exists(&stage)?;
    let (root, layout) = (stage.join("root"), stage.join("layout"));
    contents::write_files(&root, &image_files(program, release)?)?;
    let layer = stage.join("layer.tar");
    archives::create_tar(&root, &release.commit_epoch_seconds, &layer)?;
    let content = format!("sha256:{}", sha256(&layer)?);
    archives::gzip(&layer)?;

    let blobs = BlobStore::new(&layout)?;
    let layer = blobs.add_file(LAYER_TYPE, &stage.join("layer.tar.gz"))?;
    let config = blobs.add_json(CONFIG_TYPE, &image_config(release, &content)?)?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
        "config": config.to_json(), "layers": [layer.to_json()],
    });
    let manifest = blobs.add_json(MANIFEST_TYPE, &manifest)?;
    fs::write(layout.join("index.json"), image_index(release, &manifest).to_string())?;
    fs::write(layout.join("oci-layout"), OCI_LAYOUT)?;
    let archive = into.join(release.image_name());
    archives::create_tar(&layout, &release.commit_epoch_seconds, &archive)?;
    remove_folder_if_exists(&stage)?;
    Ok(archive)
}

/// Returns all files of the image.
fn image_files(program: &ImageProgram<'_>, release: &DistRelease) -> Result<Vec<PackedFile>> {
    let binary = fs::read(program.binary).with_context(|| format!("{} cannot be read", program.binary.display()))?;
    let mut entries = vec![
        PackedFile::executable(PROGRAM_PATH, binary),
        PackedFile::new("etc/nsswitch.conf", NSSWITCH),
        PackedFile::new("etc/passwd", PASSWD),
        PackedFile::new("usr/share/doc/unskew/LICENSE", program.licence),
        PackedFile::new("usr/share/doc/unskew/LICENSES-OF-CRATES", release.licences.as_bytes()),
    ];
    let mut packages = Vec::new();
    for library in libraries::linked_libraries(program.binary)? {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        packages.extend(debian_depends::package_of(&name).filter(|package| !packages.contains(package)));
        let bytes = fs::read(&library).with_context(|| format!("{} cannot be read", library.display()))?;
        entries.push(PackedFile::executable(library.to_string_lossy().trim_start_matches('/'), bytes));
    }
    for package in packages {
        let file = format!("usr/share/doc/{package}/copyright");
        let text = fs::read(Path::new("/").join(&file)).with_context(|| {
            format!("/{file} cannot be read: an image with libraries of {package} must contain its copyright file")
        })?;
        entries.push(PackedFile::new(file, text));
    }
    Ok(entries)
}

/// The image configuration, from which a runtime creates containers.
fn image_config(release: &DistRelease, content: &str) -> Result<Value> {
    let date = TimedCommand::new("date", PACK_TIMEOUT)
        .args(["--utc", "--date"])
        .arg(format!("@{}", release.commit_epoch_seconds));
    let created = date.arg("+%Y-%m-%dT%H:%M:%SZ").output_text()?.trim().to_owned();
    Ok(json!({
        "created": created, "architecture": oci_architecture(release)?, "os": "linux",
        "config": {
            "Entrypoint": [format!("/{PROGRAM_PATH}")],
            "Env": ["PATH=/usr/bin"],
            "Labels": {
                "org.opencontainers.image.title": "unskew",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [content]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    }))
}

/// The index of the archive, with the image name that manifests use. Container engines look for it under either key.
fn image_index(release: &DistRelease, manifest: &BlobDescriptor) -> Value {
    let name = format!("localhost/unskew:{}", release.version);
    let mut manifest = manifest.to_json();
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name});
    json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [manifest]})
}

/// Go's name of the architecture, as OCI requires.
fn oci_architecture(release: &DistRelease) -> Result<&str> {
    match release.architecture.as_str() {
        same @ ("amd64" | "arm64" | "riscv64" | "s390x") => Ok(same),
        "ppc64el" => Ok("ppc64le"),
        "i386" => Ok("386"),
        other => bail!("unknown architecture {other}: add its OCI name in xtask/src/dist/image.rs"),
    }
}

/// An unpacked image.
pub(super) struct UnpackedImage {
    root: PathBuf,
}

/// Unpacks an image archive and verifies every digest and size.
pub(super) fn unpack_image(archive: &Path, scratch: &Path) -> Result<UnpackedImage> {
    remove_folder_if_exists(scratch)?;
    let (layout, root) = (scratch.join("layout"), scratch.join("root"));
    archives::extract_tar(archive, &layout)?;
    if fs::read_to_string(layout.join("oci-layout"))? != OCI_LAYOUT {
        bail!("{} has an unknown layout version", archive.display());
    }
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let blobs = BlobStore::new(&layout)?;
    let manifest = blobs.read_json(&index["manifests"][0])?;
    let config = blobs.read_json(&manifest["config"])?;
    let contents = config["rootfs"]["diff_ids"].as_array().context("the configuration names no layers")?;
    let layers = manifest["layers"].as_array().context("the manifest names no layers")?;
    if contents.len() != layers.len() {
        bail!("the manifest has {} layers, and the configuration {}", layers.len(), contents.len());
    }
    for (layer, content) in layers.iter().zip(contents) {
        let packed = scratch.join("layer.tar.gz");
        fs::copy(blobs.verified_file(layer)?, &packed)?;
        archives::gunzip(&packed)?;
        let layer = scratch.join("layer.tar");
        let found = format!("sha256:{}", sha256(&layer)?);
        if content.as_str() != Some(&found) {
            bail!("a layer has digest {found}, expected {content}");
        }
        archives::extract_tar(&layer, &root)?;
    }
    Ok(UnpackedImage { root })
}

impl UnpackedImage {
    /// Runs the program with the loader of the image, after checking that all its libraries are in the image.
    pub(super) fn run_program(&self, words: &[&str]) -> Result<String> {
        let program = self.root.join(PROGRAM_PATH);
        let loader = libraries::loader_of(&program)?;
        let loader = self.root.join(loader.to_string_lossy().trim_start_matches('/'));
        let folders = libraries::library_search_path(&self.root)?;
        let load = || TimedCommand::new(&loader, PACK_TIMEOUT).args(["--inhibit-cache", "--library-path", &folders]);
        let found =
            load().arg("--list").arg(&program).output_text().context("the loader of the image finds no libraries")?;
        for library in libraries::parse_ldd_output(&found) {
            if !library.starts_with(&self.root) {
                bail!("the program of the image needs {}, which is not in it", library.display());
            }
        }
        load().arg(&program).args(words).output_text()
    }
}

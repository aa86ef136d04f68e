//! Reproducible archives of a folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::PACK_TIMEOUT;
use crate::process::TimedCommand;

/// Packs one folder of `parent` with files sorted by name, one modification time and no owner.
pub(super) fn create_tar_gz(parent: &Path, folder: &str, epoch: &str, archive: &Path) -> Result<()> {
    // Without -n, gzip would store the time of packing.
    let job = tar_command(parent, epoch, archive).arg("--use-compress-program=gzip -9n").arg(folder);
    job.output_text().context("GNU tar failed to create the archive").map(drop)
}

/// Packs the contents of a folder like [`create_tar_gz`], uncompressed.
pub(super) fn create_tar(folder: &Path, epoch: &str, archive: &Path) -> Result<()> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
    let mut names: Vec<_> = entries.collect::<Result<_>>()?;
    names.sort();
    tar_command(folder, epoch, archive)
        .args(names)
        .output_text()
        .context("GNU tar failed to create the archive")
        .map(drop)
}

fn tar_command(parent: &Path, epoch: &str, archive: &Path) -> TimedCommand {
    let job =
        TimedCommand::new("tar", PACK_TIMEOUT).args(["--create", "--sort=name", "--format=ustar", "--numeric-owner"]);
    let job = job.args(["--owner=0", "--group=0"]).arg(format!("--mtime=@{epoch}"));
    job.arg("--file").arg(archive).arg("--directory").arg(parent)
}

/// Compresses a file to one with `.gz` appended; keeps the original.
pub(super) fn gzip(file: &Path) -> Result<()> {
    TimedCommand::new("gzip", PACK_TIMEOUT).args(["-9n", "--keep", "--force"]).arg(file).output_text().map(drop)
}

/// Decompresses a `.gz` file beside itself; keeps the original.
pub(super) fn gunzip(file: &Path) -> Result<()> {
    TimedCommand::new("gunzip", PACK_TIMEOUT).args(["--keep", "--force"]).arg(file).output_text().map(drop)
}

/// Builds a package from a folder with a `DEBIAN` directory. dpkg-deb limits all times to the epoch.
pub(super) fn build_deb(folder: &Path, epoch: &str, package: &Path) -> Result<()> {
    let job = TimedCommand::new("dpkg-deb", PACK_TIMEOUT)
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(folder)
        .arg(package);
    job.env("SOURCE_DATE_EPOCH", epoch).output_text().context("dpkg-deb failed to build the package").map(drop)
}

pub(super) fn extract_tar(archive: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    let job =
        TimedCommand::new("tar", PACK_TIMEOUT).args(["--extract", "--file"]).arg(archive).arg("--directory").arg(into);
    job.output_text().map(drop)
}

pub(super) fn extract_deb(package: &Path, into: &Path) -> Result<()> {
    TimedCommand::new("dpkg-deb", PACK_TIMEOUT).arg("--extract").arg(package).arg(into).output_text().map(drop)
}

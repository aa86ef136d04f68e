//! Archives of a folder, the same bytes each time.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::PACK_TIMEOUT;
use crate::process::TimedCommand;

/// Packs one folder of `parent`, in the order of names, with one time and no owner.
pub(super) fn create_tar_gz(parent: &Path, folder: &str, epoch: &str, archive: &Path) -> Result<()> {
    // Without -n the time of packing would be in it.
    let job = tar_command(parent, epoch, archive).arg("--use-compress-program=gzip -9n").arg(folder);
    job.output_text().context("GNU tar packs the archive").map(drop)
}

/// Packs what is in a folder, in the same way, and does not compress it.
pub(super) fn create_tar(folder: &Path, epoch: &str, archive: &Path) -> Result<()> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
    let mut names: Vec<_> = entries.collect::<Result<_>>()?;
    names.sort();
    tar_command(folder, epoch, archive).args(names).output_text().context("GNU tar packs the archive").map(drop)
}

fn tar_command(parent: &Path, epoch: &str, archive: &Path) -> TimedCommand {
    let job =
        TimedCommand::new("tar", PACK_TIMEOUT).args(["--create", "--sort=name", "--format=ustar", "--numeric-owner"]);
    let job = job.args(["--owner=0", "--group=0"]).arg(format!("--mtime=@{epoch}"));
    job.arg("--file").arg(archive).arg("--directory").arg(parent)
}

/// Compresses a file beside itself; its name then ends in `.gz`.
pub(super) fn gzip(file: &Path) -> Result<()> {
    TimedCommand::new("gzip", PACK_TIMEOUT).args(["-9n", "--keep", "--force"]).arg(file).output_text().map(drop)
}

/// The other way round.
pub(super) fn gunzip(file: &Path) -> Result<()> {
    TimedCommand::new("gunzip", PACK_TIMEOUT).args(["--keep", "--force"]).arg(file).output_text().map(drop)
}

/// Packs a folder with a `DEBIAN` in it. dpkg-deb cuts all times down to the epoch.
pub(super) fn build_deb(folder: &Path, epoch: &str, package: &Path) -> Result<()> {
    let job = TimedCommand::new("dpkg-deb", PACK_TIMEOUT)
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(folder)
        .arg(package);
    job.env("SOURCE_DATE_EPOCH", epoch).output_text().context("dpkg-deb packs the package").map(drop)
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

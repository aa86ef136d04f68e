//! Archives of a folder, the same bytes each time.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::PACK_LIMIT;
use crate::process::Job;

/// Packs one folder of `parent`, in the order of names, with one time and no owner.
pub(super) fn tar(parent: &Path, folder: &str, epoch: &str, archive: &Path) -> Result<()> {
    // Without -n the time of packing would be in it.
    let job = tarring(parent, epoch, archive).arg("--use-compress-program=gzip -9n").arg(folder);
    job.output().context("GNU tar packs the archive").map(drop)
}

/// Packs what is in a folder, in the same way, and does not compress it.
pub(super) fn tar_plainly(folder: &Path, epoch: &str, archive: &Path) -> Result<()> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
    let mut names: Vec<_> = entries.collect::<Result<_>>()?;
    names.sort();
    tarring(folder, epoch, archive).args(names).output().context("GNU tar packs the archive").map(drop)
}

fn tarring(parent: &Path, epoch: &str, archive: &Path) -> Job {
    let job = Job::new("tar", PACK_LIMIT).args(["--create", "--sort=name", "--format=ustar", "--numeric-owner"]);
    let job = job.args(["--owner=0", "--group=0"]).arg(format!("--mtime=@{epoch}"));
    job.arg("--file").arg(archive).arg("--directory").arg(parent)
}

/// Compresses a file beside itself; its name then ends in `.gz`.
pub(super) fn gzip(file: &Path) -> Result<()> {
    Job::new("gzip", PACK_LIMIT).args(["-9n", "--keep", "--force"]).arg(file).output().map(drop)
}

/// The other way round.
pub(super) fn gunzip(file: &Path) -> Result<()> {
    Job::new("gunzip", PACK_LIMIT).args(["--keep", "--force"]).arg(file).output().map(drop)
}

/// Packs a folder with a `DEBIAN` in it. dpkg-deb cuts all times down to the epoch.
pub(super) fn deb(folder: &Path, epoch: &str, package: &Path) -> Result<()> {
    let job = Job::new("dpkg-deb", PACK_LIMIT).args(["--root-owner-group", "-Zxz", "--build"]).arg(folder).arg(package);
    job.env("SOURCE_DATE_EPOCH", epoch).output().context("dpkg-deb packs the package").map(drop)
}

pub(super) fn untar(archive: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    let job = Job::new("tar", PACK_LIMIT).args(["--extract", "--file"]).arg(archive).arg("--directory").arg(into);
    job.output().map(drop)
}

pub(super) fn undeb(package: &Path, into: &Path) -> Result<()> {
    Job::new("dpkg-deb", PACK_LIMIT).arg("--extract").arg(package).arg(into).output().map(drop)
}

//! `cargo xtask dist`: what people install, as an archive, as a Debian package and as an image for containers.
//!
//! Invariants: the same program of the same commit is packed into the same bytes; whatever is packed came from this build, the
//! completions and the manual too; what was packed has been unpacked again and started before it is called done.

mod archives;
mod image;
mod man;
mod needs;
mod tree;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::args;
use crate::licenses;
use crate::process::Job;
use crate::tools::sha256;
use crate::workspace::Workspace;

pub(crate) const HELP: &str = "\
cargo xtask dist

Builds the program for release and packs it with its completions, its manual page, its licences and the examples of
docs/deploy and docs/monitoring: target/dist/unskew-<version>-<machine>.tar.gz and unskew_<version>_<machine>.deb. The
program, the libraries it is linked with and nothing else make an image, unskew-<version>-<machine>.oci.tar: an archive in
the layout of the Open Container Initiative, made without a container engine. Checksums are in SHA256SUMS. Needs dpkg-deb,
GNU tar, gzip and binutils.
";

/// With an optimised build from nothing.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Packing 20 MB takes seconds.
const PACK_LIMIT: Duration = Duration::from_secs(120);

/// What is packed, and as what.
struct Release {
    version: String,
    /// As the kernel names it, `x86_64`.
    machine: String,
    /// As Debian names it, `amd64`.
    architecture: String,
    /// The time that every file gets: that of the commit, in seconds since 1970.
    epoch: String,
    /// What Debian's package depends on.
    depends: String,
    /// One line for each crate in the program, with its licence.
    licences: String,
}

impl Release {
    fn archive_name(&self) -> String {
        format!("unskew-{}-{}.tar.gz", self.version, self.machine)
    }

    fn image_name(&self) -> String {
        format!("unskew-{}-{}.oci.tar", self.version, self.machine)
    }

    fn package_name(&self) -> String {
        format!("unskew_{}_{}.deb", self.version, self.architecture)
    }
}

pub(crate) fn main(words: &[String]) -> Result<()> {
    args::expect_none("dist", words)?;
    let workspace = Workspace::open()?;
    workspace.cargo("build", BUILD_LIMIT).args(["--locked", "--profile", "dist", "--package", "unskew"]).run()?;
    // Cargo keeps the build itself in the same folder.
    let folder = workspace.dist();
    remove_packages(&folder)?;
    let binary = folder.join("unskew-stripped");
    strip(&folder.join("unskew"), &binary)?;
    let release = describe(&workspace, &binary)?;
    let mut packed = Vec::from(pack(&workspace.root, &binary, &release, &folder)?);
    let licence = fs::read_to_string(workspace.root.join("LICENSE"))?;
    let program = image::Program { binary: &binary, licence: &licence };
    packed.push(image::pack(&program, &release, &folder)?);
    try_image(&folder, &release)?;
    fs::remove_file(&binary)?;
    let mut sums = String::new();
    for file in &packed {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        sums += &format!("{}  {name}\n", sha256(file)?);
        println!("{} ({:.1} MB)", file.display(), fs::metadata(file)?.len() as f64 / 1e6);
    }
    fs::write(folder.join("SHA256SUMS"), sums)?;
    Ok(())
}

/// The program without the names that only a debugger reads.
fn strip(from: &Path, to: &Path) -> Result<()> {
    Job::new("strip", PACK_LIMIT).arg("-o").arg(to).arg(from).output().context("strip is part of binutils").map(drop)
}

fn describe(workspace: &Workspace, binary: &Path) -> Result<Release> {
    let packages = workspace.metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let package = packages.iter().find(|package| package["name"] == "unskew");
    let version = package.and_then(|package| package["version"].as_str()).context("unskew has no version")?;
    let line = |program: &str, words: &[&str]| {
        let output = Job::new(program, PACK_LIMIT).args(words).folder(&workspace.root).output()?;
        anyhow::Ok(output.trim().to_owned())
    };
    Ok(Release {
        version: version.to_owned(),
        machine: line("uname", &["-m"])?,
        architecture: line("dpkg", &["--print-architecture"])?,
        epoch: line("git", &["log", "-1", "--format=%ct"])?,
        depends: needs::read(binary)?,
        licences: licenses::shipped(workspace)?,
    })
}

/// Packs a program and what belongs to it, and tries what came of it. `root` is the checkout.
fn pack(root: &Path, binary: &Path, release: &Release, into: &Path) -> Result<[PathBuf; 2]> {
    let stage = into.join("stage");
    let files = tree::files(root, binary, release)?;
    let top = format!("unskew-{}-{}", release.version, release.machine);
    tree::write(&stage.join("archive").join(&top), &files.for_archive())?;
    tree::write(&stage.join("package"), &files.for_package(release))?;
    let archive = into.join(release.archive_name());
    archives::tar(&stage.join("archive"), &top, &release.epoch, &archive)?;
    let package = into.join(release.package_name());
    archives::deb(&stage.join("package"), &release.epoch, &package)?;

    archives::untar(&archive, &stage.join("from-archive"))?;
    archives::undeb(&package, &stage.join("from-package"))?;
    try_out(&stage.join("from-archive").join(&top).join("bin/unskew"), release)?;
    try_out(&stage.join("from-package/usr/bin/unskew"), release)?;
    remove(&stage)?;
    Ok([archive, package])
}

/// Unpacks the image again and starts the program that is in it, with nothing but the libraries that are in it.
fn try_image(folder: &Path, release: &Release) -> Result<()> {
    let scratch = folder.join("from-image");
    let image = image::open(&folder.join(release.image_name()), &scratch)?;
    let said = image.run(&["version"])?;
    expect_version("the image", &said, release)?;
    remove(&scratch)
}

fn try_out(program: &Path, release: &Release) -> Result<()> {
    let said = Job::new(program, PACK_LIMIT).arg("version").output()?;
    expect_version(&program.display().to_string(), &said, release)
}

fn expect_version(what: &str, said: &str, release: &Release) -> Result<()> {
    if said.trim() != format!("unskew {}", release.version) {
        bail!("{what} says `{}` and not the version {}", said.trim(), release.version);
    }
    Ok(())
}

/// Removes the packages of earlier runs, whatever their version.
fn remove_packages(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{} could not be read", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if [".tar.gz", ".deb", ".oci.tar"].iter().any(|end| name.ends_with(end)) {
            fs::remove_file(&path).with_context(|| format!("{} could not be removed", path.display()))?;
        }
    }
    remove(&folder.join("stage"))?;
    remove(&folder.join("from-image"))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} could not be removed", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

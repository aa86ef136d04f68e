//! `cargo xtask dist`: release packages as a tar archive, a Debian package and a container image.
//!
//! Invariants: one commit always gives the same bytes; all files come from this build, including completions and
//! manual; every package is unpacked and its program started before `dist` succeeds.

mod archives;
mod contents;
mod debian_depends;
mod image;
mod man;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::args;
use crate::licenses;
use crate::process::TimedCommand;
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

/// Includes an optimised build from scratch.
const BUILD_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Packing 20 MB takes seconds.
const PACK_TIMEOUT: Duration = Duration::from_secs(120);

/// Metadata of the release that is packed.
struct DistRelease {
    version: String,
    /// Kernel name of the architecture, such as `x86_64`.
    machine: String,
    /// Debian name of the architecture, such as `amd64`.
    architecture: String,
    /// Commit time in seconds since 1970; the modification time of every packed file.
    commit_epoch_seconds: String,
    /// `Depends` field of the Debian package.
    depends: String,
    /// One line per crate in the program, with its licence.
    licences: String,
}

impl DistRelease {
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
    args::expect_no_args("dist", words)?;
    let workspace = Workspace::open()?;
    workspace.cargo("build", BUILD_TIMEOUT).args(["--locked", "--profile", "dist", "--package", "unskew"]).run()?;
    // Cargo's build files are in the same folder.
    let folder = workspace.dist();
    remove_packages(&folder)?;
    let binary = folder.join("unskew-stripped");
    strip(&folder.join("unskew"), &binary)?;
    let release = describe_release(&workspace, &binary)?;
    let mut packed = Vec::from(pack(&workspace.root, &binary, &release, &folder)?);
    let licence = fs::read_to_string(workspace.root.join("LICENSE"))?;
    let program = image::ImageProgram { binary: &binary, licence: &licence };
    packed.push(image::pack_image(&program, &release, &folder)?);
    check_image_version(&folder, &release)?;
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

/// Copies the program without debug symbols.
fn strip(from: &Path, to: &Path) -> Result<()> {
    TimedCommand::new("strip", PACK_TIMEOUT)
        .arg("-o")
        .arg(to)
        .arg(from)
        .output_text()
        .context("strip is part of binutils")
        .map(drop)
}

fn describe_release(workspace: &Workspace, binary: &Path) -> Result<DistRelease> {
    let packages = workspace.metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let package = packages.iter().find(|package| package["name"] == "unskew");
    let version = package.and_then(|package| package["version"].as_str()).context("unskew has no version")?;
    let line = |program: &str, words: &[&str]| {
        let output = TimedCommand::new(program, PACK_TIMEOUT).args(words).current_dir(&workspace.root).output_text()?;
        anyhow::Ok(output.trim().to_owned())
    };
    Ok(DistRelease {
        version: version.to_owned(),
        machine: line("uname", &["-m"])?,
        architecture: line("dpkg", &["--print-architecture"])?,
        commit_epoch_seconds: line("git", &["log", "-1", "--format=%ct"])?,
        depends: debian_depends::depends_of_binary(binary)?,
        licences: licenses::list_shipped_crates(workspace)?,
    })
}

/// Packs the program with its files into both packages, and verifies them. `root` is the checkout.
fn pack(root: &Path, binary: &Path, release: &DistRelease, into: &Path) -> Result<[PathBuf; 2]> {
    let stage = into.join("stage");
    let files = contents::collect_contents(root, binary, release)?;
    let top = format!("unskew-{}-{}", release.version, release.machine);
    contents::write_files(&stage.join("archive").join(&top), &files.archive_files())?;
    contents::write_files(&stage.join("package"), &files.debian_files(release))?;
    let archive = into.join(release.archive_name());
    archives::create_tar_gz(&stage.join("archive"), &top, &release.commit_epoch_seconds, &archive)?;
    let package = into.join(release.package_name());
    archives::build_deb(&stage.join("package"), &release.commit_epoch_seconds, &package)?;

    archives::extract_tar(&archive, &stage.join("from-archive"))?;
    archives::extract_deb(&package, &stage.join("from-package"))?;
    check_program_version(&stage.join("from-archive").join(&top).join("bin/unskew"), release)?;
    check_program_version(&stage.join("from-package/usr/bin/unskew"), release)?;
    remove_folder_if_exists(&stage)?;
    Ok([archive, package])
}

/// Unpacks the image and starts its program with only the libraries in the image.
fn check_image_version(folder: &Path, release: &DistRelease) -> Result<()> {
    let scratch = folder.join("from-image");
    let image = image::unpack_image(&folder.join(release.image_name()), &scratch)?;
    let said = image.run_program(&["version"])?;
    expect_version("the image", &said, release)?;
    remove_folder_if_exists(&scratch)
}

fn check_program_version(program: &Path, release: &DistRelease) -> Result<()> {
    let said = TimedCommand::new(program, PACK_TIMEOUT).arg("version").output_text()?;
    expect_version(&program.display().to_string(), &said, release)
}

fn expect_version(what: &str, output: &str, release: &DistRelease) -> Result<()> {
    if output.trim() != format!("unskew {}", release.version) {
        bail!("{what} prints `{}`, expected version {}", output.trim(), release.version);
    }
    Ok(())
}

/// Removes the packages of earlier runs, of any version.
fn remove_packages(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{} could not be read", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if [".tar.gz", ".deb", ".oci.tar"].iter().any(|end| name.ends_with(end)) {
            fs::remove_file(&path).with_context(|| format!("{} could not be removed", path.display()))?;
        }
    }
    remove_folder_if_exists(&folder.join("stage"))?;
    remove_folder_if_exists(&folder.join("from-image"))
}

fn remove_folder_if_exists(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} could not be removed", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

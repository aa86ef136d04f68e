//! etcd in two versions: without and with progress requests.
//!
//! The store behaves differently on them, so tests run on both. If only one is available it replaces the other, and its
//! origin says so.

mod pins;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};

use self::pins::EtcdPin;
use super::apt::{self, PrivateApt};
use super::apt_sources::AptSources;
use super::tool_cache::{self, CachedTool, ToolCache, ToolStaging, ToolStamp};
use super::version::ToolVersion;
use super::{ProvidedTool, given_path};
use crate::process::{self, TimedCommand};

const VERSION_TIMEOUT: Duration = Duration::from_secs(30);

const PACKAGE: &str = "etcd-server";

/// Path of the server in the package.
const EXECUTABLE: &str = "usr/bin/etcd";

/// The old or the new etcd.
struct EtcdVariant {
    name: &'static str,
    variable: &'static str,
    pins: &'static [EtcdPin],
    fits: fn(ToolVersion) -> bool,
}

const OLD: EtcdVariant =
    EtcdVariant { name: "etcd-old", variable: "UNSKEW_ETCD_OLD", pins: pins::OLD, fits: lacks_progress_requests };
const NEW: EtcdVariant =
    EtcdVariant { name: "etcd-new", variable: "UNSKEW_ETCD_NEW", pins: pins::NEW, fits: has_progress_requests };

/// Progress requests were added in 3.4.31 and 3.5.13.
fn lacks_progress_requests(version: ToolVersion) -> bool {
    version < ToolVersion(3, 4, 31) || (ToolVersion(3, 5, 0)..ToolVersion(3, 5, 13)).contains(&version)
}

fn has_progress_requests(version: ToolVersion) -> bool {
    version >= ToolVersion(3, 5, 13)
}

/// Provides the old and the new etcd, in this order.
pub(crate) fn provide(tool_cache: &ToolCache) -> Result<[ProvidedTool; 2]> {
    pair_or_substitute(provide_variant(tool_cache, &OLD), provide_variant(tool_cache, &NEW))
}

/// If only one etcd is available, it is used for both.
fn pair_or_substitute(old: Result<ProvidedTool>, new: Result<ProvidedTool>) -> Result<[ProvidedTool; 2]> {
    match (old, new) {
        (Ok(old), Ok(new)) => Ok([old, new]),
        (Ok(old), Err(why)) => {
            let new = substitute(&old, &NEW, &why);
            Ok([old, new])
        }
        (Err(why), Ok(new)) => {
            let old = substitute(&new, &OLD, &why);
            Ok([old, new])
        }
        (Err(old), Err(new)) => {
            bail!("no etcd could be provided, and no test runs without it; put one on PATH\nold: {old:#}\nnew: {new:#}")
        }
    }
}

fn substitute(other: &ProvidedTool, kind: &EtcdVariant, why: &Error) -> ProvidedTool {
    let origin = format!("{} instead, because: {why:#}", other.name);
    let (path, version) = (other.path.clone(), other.version.clone());
    ProvidedTool { name: kind.name, variable: kind.variable, path, version, origin }
}

fn provide_variant(tool_cache: &ToolCache, kind: &EtcdVariant) -> Result<ProvidedTool> {
    let EtcdVariant { name, variable, .. } = *kind;
    if let Some(path) = given_path(variable)? {
        let version = version_of(&path)?.to_string();
        return Ok(ProvidedTool { name, variable, path, version, origin: format!("given by {variable}") });
    }
    if let Some(path) = process::find_on_path("etcd")
        && let Some(version) = version_of(&path).ok().filter(|version| (kind.fits)(*version))
    {
        return Ok(ProvidedTool { name, variable, path, version: version.to_string(), origin: "on PATH".to_owned() });
    }
    let recipe = recipe(kind);
    let shelved = match tool_cache.find_tool(name, &recipe) {
        Some(shelved) => shelved,
        None => unpack(tool_cache, kind, &recipe)?,
    };
    Ok(ProvidedTool::from_cached(name, variable, shelved))
}

fn version_of(etcd: &Path) -> Result<ToolVersion> {
    let output = TimedCommand::new(etcd, VERSION_TIMEOUT).arg("--version").output_text()?;
    ToolVersion::find_in(&output).with_context(|| format!("`{} --version` names no version", etcd.display()))
}

/// Changes with release, version or checksum of a pin.
fn recipe(variant: &EtcdVariant) -> String {
    let shown = |pin: &EtcdPin| {
        format!("{} {} {}", pin.suite, pin.version, tool_cache::fingerprint(&format!("{:?}", pin.checksums)))
    };
    variant.pins.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Tries the pinned releases of the machine's distribution in turn.
fn unpack(tool_cache: &ToolCache, kind: &EtcdVariant, recipe: &str) -> Result<CachedTool> {
    let machine = AptSources::read_etc()?;
    let mut reasons = Vec::new();
    for pin in kind.pins.iter().filter(|pin| pin.family == machine.family) {
        println!("unpacking {} from {} {} …", kind.name, pin.family.name(), pin.suite);
        let stage = tool_cache.start_staging(kind.name)?;
        match unpack_pinned_package(&stage, &machine, pin).and_then(|origin| Ok((check_version(&stage, kind)?, origin)))
        {
            Ok((version, origin)) => {
                return stage.install(ToolStamp { recipe, executable: EXECUTABLE, version, origin });
            }
            Err(why) => reasons.push(format!("{}: {why:#}", pin.suite)),
        }
    }
    bail!("{} could not be unpacked from {}'s packages: {}", kind.name, machine.family.name(), reasons.join("; "))
}

/// Downloads and unpacks a pinned package, and returns its origin.
fn unpack_pinned_package(stage: &ToolStaging, machine: &AptSources, pin: &EtcdPin) -> Result<String> {
    let apt = PrivateApt::with_archives(&stage.scratch_dir().join("apt"), &[machine.source_for_suite(pin.suite)?])?;
    let version = apt.newest_version(PACKAGE)?.with_context(|| format!("the archive has no {PACKAGE}"))?;
    let files = apt.download(&[format!("{PACKAGE}={version}")], &stage.scratch_dir())?;
    let voucher = check_pin(
        pin,
        &version,
        &apt::architecture()?,
        &tool_cache::sha256(files.first().context("apt downloaded nothing")?)?,
    )?;
    apt::extract_packages(&files, &stage.tool_dir())?;
    Ok(format!("{} {} {PACKAGE} {version}, {voucher}", pin.family.name(), pin.suite))
}

/// Returns how a package was verified; fails if its checksum differs from the pinned one.
///
/// A newer version or another architecture has no pin; apt has verified the archive's signature.
fn check_pin(pin: &EtcdPin, version: &str, architecture: &str, sha256: &str) -> Result<&'static str> {
    let pinned = pin.checksums.iter().find(|(known, _)| *known == architecture).map(|(_, checksum)| *checksum);
    match pinned {
        Some(pinned) if pin.version == version && pinned != sha256 => {
            bail!(
                "{PACKAGE} {version} has the checksum {sha256}, but {pinned} is pinned in xtask/src/tools/etcd/pins.rs"
            )
        }
        Some(_) if pin.version == version => Ok("checksum pinned"),
        Some(_) | None => Ok("not pinned, the archive's signature verified"),
    }
}

/// Checks that the unpacked etcd runs and has the expected version.
fn check_version(stage: &ToolStaging, kind: &EtcdVariant) -> Result<String> {
    let version = version_of(&stage.tool_dir().join(EXECUTABLE))?;
    if !(kind.fits)(version) {
        bail!("the package has version {version}, which does not fit {}", kind.name);
    }
    Ok(version.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::apt_sources::DistributionFamily;

    #[test]
    fn old_and_new_etcd_differ_by_progress_requests() {
        for (version, old, new) in [
            (ToolVersion(3, 4, 23), true, false),
            (ToolVersion(3, 4, 31), false, false),
            (ToolVersion(3, 5, 1), true, false),
            (ToolVersion(3, 5, 12), true, false),
            (ToolVersion(3, 5, 13), false, true),
            (ToolVersion(3, 6, 0), false, true),
        ] {
            assert_eq!((lacks_progress_requests(version), has_progress_requests(version)), (old, new), "{version}");
        }
    }

    #[test]
    fn pinned_versions_fit_their_variant() {
        for kind in [OLD, NEW] {
            for pin in kind.pins {
                let version = ToolVersion::find_in(pin.version).unwrap();
                assert!((kind.fits)(version), "{} {version} under {}", pin.suite, kind.name);
                assert!(pin.checksums.iter().all(|(_, checksum)| checksum.len() == 64));
            }
        }
    }

    const PIN: EtcdPin =
        EtcdPin { family: DistributionFamily::Debian, suite: "s", version: "1.0", checksums: &[("amd64", "abc")] };

    #[test]
    fn pinned_package_with_wrong_checksum_is_rejected() {
        assert_eq!(check_pin(&PIN, "1.0", "amd64", "abc").unwrap(), "checksum pinned");
        let error = check_pin(&PIN, "1.0", "amd64", "abd").unwrap_err().to_string();
        assert!(error.contains("has the checksum abd, but abc is pinned"), "{error}");
    }

    #[test]
    fn unpinned_package_is_reported_as_unpinned() {
        for (version, architecture) in [("1.1", "amd64"), ("1.0", "riscv64")] {
            let voucher = check_pin(&PIN, version, architecture, "abd").unwrap();
            assert_eq!(voucher, "not pinned, the archive's signature verified");
        }
    }

    fn test_tool(name: &'static str) -> ProvidedTool {
        let (version, origin) = ("3.5.16".to_owned(), "here".to_owned());
        ProvidedTool { name, variable: "V", path: "/etcd".into(), version, origin }
    }

    #[test]
    fn missing_etcd_variant_is_substituted_by_the_other() {
        let [old, new] = pair_or_substitute(Err(Error::msg("no mirror")), Ok(test_tool("etcd-new"))).unwrap();
        assert_eq!((old.name, old.variable, &old.path), ("etcd-old", "UNSKEW_ETCD_OLD", &new.path));
        assert_eq!(old.origin, "etcd-new instead, because: no mirror");
        let [_, new] = pair_or_substitute(Ok(test_tool("etcd-old")), Err(Error::msg("no mirror"))).unwrap();
        assert_eq!((new.name, new.variable), ("etcd-new", "UNSKEW_ETCD_NEW"));
    }

    #[test]
    fn missing_etcd_error_names_both_reasons() {
        let Err(error) = pair_or_substitute(Err(Error::msg("a")), Err(Error::msg("b"))) else {
            panic!("expected an error")
        };
        assert!(error.to_string().ends_with("put one on PATH\nold: a\nnew: b"), "{error}");
    }
}

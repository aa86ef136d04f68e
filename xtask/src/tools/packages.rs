//! Tools from the distribution's packages, with all libraries that the machine lacks.
//!
//! They are not pinned, because security updates replace the packages and a pinned file would soon be gone. apt
//! verifies the archive's signature.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::apt::{self, PrivateApt};
use super::apt_sources::AptSources;
use super::tool_cache::{CachedTool, ToolCache, ToolStamp};

/// Result of unpacking packages.
pub(crate) struct UnpackedTool {
    /// Path relative to the unpack folder.
    pub(crate) executable: String,
    pub(crate) version: String,
}

/// Finds the tool in the cache, or unpacks the packages with their dependencies. `inspect` checks the result.
pub(crate) fn find_or_unpack(
    tool_cache: &ToolCache,
    name: &str,
    packages: &[&str],
    inspect: &dyn Fn(&Path) -> Result<UnpackedTool>,
) -> Result<CachedTool> {
    let recipe = packages.join(" ");
    if let Some(shelved) = tool_cache.find_tool(name, &recipe) {
        return Ok(shelved);
    }
    let machine = AptSources::read_etc()?;
    println!("unpacking {recipe} from {} {} …", machine.family.name(), machine.codename);
    let stage = tool_cache.start_staging(name)?;
    let apt = PrivateApt::with_archives(&stage.scratch_dir().join("apt"), &machine.distribution_sources()?)?;
    let files = apt.download(&apt.with_missing_dependencies(packages)?, &stage.scratch_dir())?;
    apt::extract_packages(&files, &stage.tool_dir())?;
    let UnpackedTool { executable, version } = inspect(&stage.tool_dir())?;
    let origin = format!("{} {}, the archive's signature verified", machine.family.name(), machine.codename);
    stage.install(ToolStamp { recipe: &recipe, executable: &executable, version, origin })
}

/// Folders with shared libraries below `root`, relative to it.
///
/// An unpacked program needs them in `LD_LIBRARY_PATH`, because its packages expect to be installed in `/`.
pub(crate) fn library_folders(root: &Path) -> Result<Vec<String>> {
    /// Deeper than any package keeps libraries.
    const DEPTH_MAX: usize = 6;
    let mut found = Vec::new();
    let mut folders = vec![(root.join("usr/lib"), 0), (root.join("lib"), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut has_library = false;
        for entry in entries {
            let entry = entry?;
            // Links are not followed: packages link to folders of the machine that may be missing.
            if entry.file_type()?.is_dir() && depth < DEPTH_MAX {
                folders.push((entry.path(), depth + 1));
            }
            let name = entry.file_name();
            let name = name.to_string_lossy();
            has_library |= name.ends_with(".so") || name.contains(".so.");
        }
        if has_library {
            let relative = folder.strip_prefix(root).context("a folder below the root is not below it")?;
            found.push(relative.display().to_string());
        }
    }
    found.sort();
    Ok(found)
}

//! nginx, for comparison with the gateway.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::packages::{self, UnpackedTool};
use super::tool_cache::ToolCache;
use super::{ProvidedTool, given_path, script};
use crate::process::{self, TimedCommand};

const PACKAGES: [&str; 1] = ["nginx"];
const PROGRAM: &str = "usr/sbin/nginx";
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

const NAME: &str = "nginx";
const VARIABLE: &str = "UNSKEW_NGINX";

pub(crate) fn provide(tool_cache: &ToolCache) -> Result<ProvidedTool> {
    if let Some(path) = given_path(VARIABLE)? {
        return describe_tool(&path, format!("given by {VARIABLE}"));
    }
    if let Some(path) = process::find_on_path(NAME) {
        return describe_tool(&path, "on PATH".to_owned());
    }
    let shelved = packages::find_or_unpack(tool_cache, NAME, &PACKAGES, &write_and_check_script)?;
    Ok(ProvidedTool::from_cached(NAME, VARIABLE, shelved))
}

fn describe_tool(path: &Path, origin: String) -> Result<ProvidedTool> {
    Ok(ProvidedTool { name: NAME, variable: VARIABLE, path: path.to_owned(), version: version_of(path)?, origin })
}

/// Writes a start script that uses the unpacked libraries.
fn write_and_check_script(root: &Path) -> Result<UnpackedTool> {
    let folders = packages::library_folders(root)?;
    let libraries = folders.iter().map(|folder| format!("$here/{folder}")).collect::<Vec<_>>().join(":");
    script::write_script(&root.join(NAME), &[("LD_LIBRARY_PATH", libraries.as_str())], &[PROGRAM])?;
    Ok(UnpackedTool { executable: NAME.to_owned(), version: version_of(&root.join(NAME))? })
}

/// nginx prints its version to stderr.
fn version_of(nginx: &Path) -> Result<String> {
    let output = TimedCommand::new("sh", CHECK_TIMEOUT).args(["-c", "exec \"$0\" -v 2>&1"]).arg(nginx).output_text()?;
    Ok(output.trim().trim_start_matches("nginx version: ").to_owned())
}

//! A headless Chromium.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::packages::{self, UnpackedTool};
use super::tool_cache::ToolCache;
use super::{ProvidedTool, given_path, script};
use crate::process::{self, TimedCommand};

/// Program names that distributions and vendors use.
const PROGRAM_NAMES: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell"];

/// The headless browser, and one font family, without which no page can be laid out.
const PACKAGES: [&str; 2] = ["chromium-headless-shell", "fonts-dejavu-core"];

const PROGRAM: &str = "usr/lib/chromium/chromium-headless-shell";

/// The first start reads 200 MB.
const CHECK_TIMEOUT: Duration = Duration::from_secs(120);

const NAME: &str = "browser";
const VARIABLE: &str = "UNSKEW_CHROMIUM";

pub(crate) fn provide(tool_cache: &ToolCache) -> Result<ProvidedTool> {
    if let Some(path) = given_path(VARIABLE)? {
        return describe_tool(&path, format!("given by {VARIABLE}"));
    }
    if let Some(path) = PROGRAM_NAMES.iter().find_map(|name| process::find_on_path(name)) {
        return describe_tool(&path, "on PATH".to_owned());
    }
    let advice = "no Chromium or Chrome is on PATH, and none could be unpacked (Ubuntu has no such package)";
    let shelved = packages::find_or_unpack(tool_cache, NAME, &PACKAGES, &write_and_check_script).context(advice)?;
    Ok(ProvidedTool::from_cached(NAME, VARIABLE, shelved))
}

fn describe_tool(path: &Path, origin: String) -> Result<ProvidedTool> {
    let version = version_of(path)?;
    Ok(ProvidedTool { name: NAME, variable: VARIABLE, path: path.to_owned(), version, origin })
}

/// Writes a start script, and checks that the browser renders a page.
fn write_and_check_script(root: &Path) -> Result<UnpackedTool> {
    let fonts = "<?xml version=\"1.0\"?>\n<fontconfig>\n<dir prefix=\"relative\">usr/share/fonts</dir>\n\
                 <dir>/usr/share/fonts</dir>\n<cachedir prefix=\"xdg\">fontconfig</cachedir>\n</fontconfig>\n";
    fs::write(root.join("fonts.conf"), fonts)?;
    let folders = packages::library_folders(root)?;
    let libraries = folders.iter().map(|folder| format!("$here/{folder}")).collect::<Vec<_>>().join(":");
    let variables = [("LD_LIBRARY_PATH", libraries.as_str()), ("FONTCONFIG_FILE", "$here/fonts.conf")];
    let file = root.join("chromium");
    // In containers, shared memory is often too small or not writable.
    script::write_script(&file, &variables, &[PROGRAM, "--disable-dev-shm-usage"])?;
    let page =
        TimedCommand::new(&file, CHECK_TIMEOUT).args(["--no-sandbox", "--dump-dom", "data:text/html,<p>rendered</p>"]);
    let page = page.output_text()?;
    if !page.contains("<p>rendered</p>") {
        bail!("the unpacked browser rendered `{page}` for a page with one word");
    }
    Ok(UnpackedTool { executable: "chromium".to_owned(), version: version_of(&file)? })
}

fn version_of(browser: &Path) -> Result<String> {
    let output = TimedCommand::new(browser, CHECK_TIMEOUT).args(["--no-sandbox", "--version"]).output_text()?;
    Ok(output.trim().to_owned())
}

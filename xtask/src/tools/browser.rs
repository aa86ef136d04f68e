//! A headless Chromium.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::packages::{self, Inspected};
use super::shelf::Shelf;
use super::{Provided, given, script};
use crate::process::{self, Job};

/// The names under which distributions and vendors install it.
const ON_PATH: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell"];

/// The browser without its window, and one family of fonts: a page without any cannot be laid out.
const PACKAGES: [&str; 2] = ["chromium-headless-shell", "fonts-dejavu-core"];

const PROGRAM: &str = "usr/lib/chromium/chromium-headless-shell";

/// A first start reads 200 MB.
const CHECK_LIMIT: Duration = Duration::from_secs(120);

const NAME: &str = "browser";
const VARIABLE: &str = "UNSKEW_CHROMIUM";

pub(crate) fn provide(shelf: &Shelf) -> Result<Provided> {
    if let Some(path) = given(VARIABLE)? {
        return provided(&path, format!("given by {VARIABLE}"));
    }
    if let Some(path) = ON_PATH.iter().find_map(|name| process::find_on_path(name)) {
        return provided(&path, "on PATH".to_owned());
    }
    let advice = "no Chromium or Chrome is on PATH, and none could be unpacked (Ubuntu has no such package)";
    let shelved = packages::unpack(shelf, NAME, &PACKAGES, &inspect).context(advice)?;
    Ok(Provided::shelved(NAME, VARIABLE, shelved))
}

fn provided(path: &Path, origin: String) -> Result<Provided> {
    let version = version_of(path)?;
    Ok(Provided { name: NAME, variable: VARIABLE, path: path.to_owned(), version, origin })
}

/// Writes the script that runs it, and has it render a page.
fn inspect(root: &Path) -> Result<Inspected> {
    let fonts = "<?xml version=\"1.0\"?>\n<fontconfig>\n<dir prefix=\"relative\">usr/share/fonts</dir>\n\
                 <dir>/usr/share/fonts</dir>\n<cachedir prefix=\"xdg\">fontconfig</cachedir>\n</fontconfig>\n";
    fs::write(root.join("fonts.conf"), fonts)?;
    let folders = packages::library_folders(root)?;
    let libraries = folders.iter().map(|folder| format!("$here/{folder}")).collect::<Vec<_>>().join(":");
    let variables = [("LD_LIBRARY_PATH", libraries.as_str()), ("FONTCONFIG_FILE", "$here/fonts.conf")];
    let file = root.join("chromium");
    // In a container shared memory is often too small, or nobody else's to write.
    script::write(&file, &variables, &[PROGRAM, "--disable-dev-shm-usage"])?;
    let page = Job::new(&file, CHECK_LIMIT).args(["--no-sandbox", "--dump-dom", "data:text/html,<p>rendered</p>"]);
    let page = page.output()?;
    if !page.contains("<p>rendered</p>") {
        bail!("the unpacked browser rendered `{page}` for a page with one word");
    }
    Ok(Inspected { executable: "chromium".to_owned(), version: version_of(&file)? })
}

fn version_of(browser: &Path) -> Result<String> {
    let output = Job::new(browser, CHECK_LIMIT).args(["--no-sandbox", "--version"]).output()?;
    Ok(output.trim().to_owned())
}

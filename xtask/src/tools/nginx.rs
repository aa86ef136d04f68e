//! An nginx, to measure the gateway beside.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::packages::{self, Inspected};
use super::shelf::Shelf;
use super::{Provided, given, script};
use crate::process::{self, Job};

const PACKAGES: [&str; 1] = ["nginx"];
const PROGRAM: &str = "usr/sbin/nginx";
const CHECK_LIMIT: Duration = Duration::from_secs(30);

const NAME: &str = "nginx";
const VARIABLE: &str = "UNSKEW_NGINX";

pub(crate) fn provide(shelf: &Shelf) -> Result<Provided> {
    if let Some(path) = given(VARIABLE)? {
        return provided(&path, format!("given by {VARIABLE}"));
    }
    if let Some(path) = process::find_on_path(NAME) {
        return provided(&path, "on PATH".to_owned());
    }
    let shelved = packages::unpack(shelf, NAME, &PACKAGES, &inspect)?;
    Ok(Provided::shelved(NAME, VARIABLE, shelved))
}

fn provided(path: &Path, origin: String) -> Result<Provided> {
    Ok(Provided { name: NAME, variable: VARIABLE, path: path.to_owned(), version: version_of(path)?, origin })
}

/// Writes the script that runs it with the libraries beside it.
fn inspect(root: &Path) -> Result<Inspected> {
    let folders = packages::library_folders(root)?;
    let libraries = folders.iter().map(|folder| format!("$here/{folder}")).collect::<Vec<_>>().join(":");
    script::write(&root.join(NAME), &[("LD_LIBRARY_PATH", libraries.as_str())], &[PROGRAM])?;
    Ok(Inspected { executable: NAME.to_owned(), version: version_of(&root.join(NAME))? })
}

/// It says its version on standard error, together with how it was built.
fn version_of(nginx: &Path) -> Result<String> {
    let output = Job::new("sh", CHECK_LIMIT).args(["-c", "exec \"$0\" -v 2>&1"]).arg(nginx).output()?;
    Ok(output.trim().trim_start_matches("nginx version: ").to_owned())
}

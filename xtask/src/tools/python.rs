//! Python with the Kubernetes client: a virtual environment of its own, every wheel pinned by its hash.

mod interpreter;

use std::fs;
use std::time::Duration;

use anyhow::Result;

pub(crate) use self::interpreter::Interpreter;
use super::shelf::{self, Label, Shelf, Shelved};
use super::{Provided, given, script};
use crate::process::Job;

/// The client and all it needs.
const REQUIREMENTS: &str = include_str!("../../tools/python-client.txt");

/// Importing the client takes a second or two.
const CHECK_LIMIT: Duration = Duration::from_secs(120);

const NAME: &str = "python";
const VARIABLE: &str = "UNSKEW_PYTHON";

const SHOW_VERSION: &str = "import sys; print(sys.version.split()[0])";
const SHOW_VERSIONS: &str =
    "import sys, kubernetes; print(sys.version.split()[0], 'with kubernetes', kubernetes.__version__)";

pub(crate) fn provide(shelf: &Shelf) -> Result<Provided> {
    if let Some(path) = given(VARIABLE)? {
        let version = Job::new(&path, CHECK_LIMIT).args(["-c", SHOW_VERSIONS]).output()?.trim().to_owned();
        return Ok(Provided { name: NAME, variable: VARIABLE, path, version, origin: format!("given by {VARIABLE}") });
    }
    let recipe = format!("python-client.txt {}", shelf::mark(REQUIREMENTS));
    let found = shelf.find(NAME, &recipe).filter(still_runs);
    let shelved = match found {
        Some(shelved) => shelved,
        None => make(shelf, &recipe)?,
    };
    Ok(Provided::shelved(NAME, VARIABLE, shelved))
}

/// The environment borrows the machine's Python, which may have been replaced since.
fn still_runs(shelved: &Shelved) -> bool {
    let version = Job::new(&shelved.executable, CHECK_LIMIT).args(["-c", SHOW_VERSION]).output();
    version.is_ok_and(|version| shelved.version.starts_with(version.trim()))
}

fn make(shelf: &Shelf, recipe: &str) -> Result<Shelved> {
    let python = Interpreter::find(shelf)?;
    println!("making a Python environment with the Kubernetes client …");
    let stage = shelf.stage(NAME)?;
    let environment = stage.tool().join("venv");
    python.job(CHECK_LIMIT).args(["-m", "venv", "--without-pip"]).arg(&environment).output()?;
    // An environment is moved safely: it refers to the interpreter's place, not to its own.
    script::write(&stage.tool().join(NAME), &[("LD_LIBRARY_PATH", &python.library_path())], &["venv/bin/python"])?;
    let show = |code: &str| Job::new(stage.tool().join(NAME), CHECK_LIMIT).args(["-c", code]).output();
    let packages = show("import sysconfig; print(sysconfig.get_path('purelib'))")?;
    let requirements = stage.scratch().join("python-client.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    python.pip(&["install", "--target", packages.trim(), "--no-compile"], &requirements)?;
    let version = show(SHOW_VERSIONS)?.trim().to_owned();
    let origin = format!("{}, every wheel's checksum pinned", python.origin);
    stage.finish(Label { recipe, executable: NAME, version, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_pinned_by_version_and_hash() {
        let lines = REQUIREMENTS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut previous = "--hash";
        for line in lines {
            let is_hash = line.starts_with("    --hash=sha256:");
            assert!(is_hash || line.contains("=="), "{line}");
            assert!(is_hash || previous.contains("--hash"), "no hash above {line}");
            previous = line;
        }
        assert!(REQUIREMENTS.contains("\nkubernetes=="));
    }
}

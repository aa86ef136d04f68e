//! Python with the Kubernetes client in a virtual environment, every wheel pinned by its hash.

mod interpreter;

use std::fs;
use std::time::Duration;

use anyhow::Result;

pub(crate) use self::interpreter::Interpreter;
use super::tool_cache::{self, CachedTool, ToolCache, ToolStamp};
use super::{ProvidedTool, given_path, script};
use crate::process::TimedCommand;

/// The client and all its dependencies.
const REQUIREMENTS: &str = include_str!("../../tools/python-client.txt");

/// Importing the client takes a second or two.
const CHECK_TIMEOUT: Duration = Duration::from_secs(120);

const NAME: &str = "python";
const VARIABLE: &str = "UNSKEW_PYTHON";

const SHOW_VERSION: &str = "import sys; print(sys.version.split()[0])";
const SHOW_VERSIONS: &str =
    "import sys, kubernetes; print(sys.version.split()[0], 'with kubernetes', kubernetes.__version__)";

pub(crate) fn provide(tool_cache: &ToolCache) -> Result<ProvidedTool> {
    if let Some(path) = given_path(VARIABLE)? {
        let version =
            TimedCommand::new(&path, CHECK_TIMEOUT).args(["-c", SHOW_VERSIONS]).output_text()?.trim().to_owned();
        return Ok(ProvidedTool {
            name: NAME,
            variable: VARIABLE,
            path,
            version,
            origin: format!("given by {VARIABLE}"),
        });
    }
    let recipe = format!("python-client.txt {}", tool_cache::fingerprint(REQUIREMENTS));
    let found = tool_cache.find_tool(NAME, &recipe).filter(still_runs);
    let shelved = match found {
        Some(shelved) => shelved,
        None => create_environment(tool_cache, &recipe)?,
    };
    Ok(ProvidedTool::from_cached(NAME, VARIABLE, shelved))
}

/// Checks that the environment still works: it uses the machine's Python, which may have been replaced.
fn still_runs(shelved: &CachedTool) -> bool {
    let version = TimedCommand::new(&shelved.executable, CHECK_TIMEOUT).args(["-c", SHOW_VERSION]).output_text();
    version.is_ok_and(|version| shelved.version.starts_with(version.trim()))
}

fn create_environment(tool_cache: &ToolCache, recipe: &str) -> Result<CachedTool> {
    let python = Interpreter::find(tool_cache)?;
    println!("creating a Python environment with the Kubernetes client …");
    let stage = tool_cache.start_staging(NAME)?;
    let environment = stage.tool_dir().join("venv");
    python.command(CHECK_TIMEOUT).args(["-m", "venv", "--without-pip"]).arg(&environment).output_text()?;
    // The environment can be moved: it refers to the interpreter's path, not to its own.
    script::write_script(
        &stage.tool_dir().join(NAME),
        &[("LD_LIBRARY_PATH", &python.library_path())],
        &["venv/bin/python"],
    )?;
    let show =
        |code: &str| TimedCommand::new(stage.tool_dir().join(NAME), CHECK_TIMEOUT).args(["-c", code]).output_text();
    let packages = show("import sysconfig; print(sysconfig.get_path('purelib'))")?;
    let requirements = stage.scratch_dir().join("python-client.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    python.run_pip(&["install", "--target", packages.trim(), "--no-compile"], &requirements)?;
    let version = show(SHOW_VERSIONS)?.trim().to_owned();
    let origin = format!("{}, every wheel's checksum pinned", python.origin);
    stage.install(ToolStamp { recipe, executable: NAME, version, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_requirements_are_pinned_by_version_and_hash() {
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

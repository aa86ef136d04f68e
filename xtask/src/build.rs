//! The one build that serves the tests, the binaries they start, and the quick bench.
//!
//! One cargo command builds binaries and tests together, because cargo unifies features per command: built alone, the
//! binaries would lack features that only tests use, and most libraries would be compiled twice.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::Workspace;

/// From scratch on two slow cores, with downloads: bounds a hanging build, not a budget.
const BUILD_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// Result of a build.
pub(crate) struct BuildOutput {
    /// File name of a test executable → its package; cargo's output shows only the file.
    pub(crate) test_packages: BTreeMap<String, String>,
}

/// Builds all binaries and tests in the test profile.
pub(crate) fn build_everything(workspace: &Workspace) -> Result<BuildOutput> {
    run_build(workspace, &["--workspace", "--bins", "--tests"])
}

/// Builds the tests of some packages with only their own features, and the binaries that tests may start.
pub(crate) fn build_packages(workspace: &Workspace, names: &[String]) -> Result<BuildOutput> {
    run_build(workspace, &["--package", "unskew", "--package", "extension-server", "--bins"])?;
    let mut selection = vec!["--bins", "--tests"];
    for name in names {
        selection.extend(["--package", name]);
    }
    run_build(workspace, &selection)
}

fn run_build(workspace: &Workspace, selection: &[&str]) -> Result<BuildOutput> {
    let job = workspace.cargo("build", BUILD_TIMEOUT).arg("--locked").args(selection);
    let messages = job.arg("--message-format=json-render-diagnostics").output_with_progress()?;
    let mut packages = BTreeMap::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo build wrote a message that is not JSON")?;
        if let Some((file, package)) = test_executable(&message) {
            packages.insert(file, package);
        }
    }
    Ok(BuildOutput { test_packages: packages })
}

fn test_executable(message: &Value) -> Option<(String, String)> {
    if message["profile"]["test"] != Value::Bool(true) {
        return None;
    }
    let file = message["executable"].as_str()?.rsplit('/').next()?.to_owned();
    Some((file, package_name(message["package_id"].as_str()?)))
}

/// Parses `path+file:///checkout/crates/api#0.1.0` or, where folder and name differ, `…/folder#name@0.1.0`.
fn package_name(id: &str) -> String {
    let (path, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    match rest.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_name_is_the_folder_unless_the_id_names_it() {
        assert_eq!(package_name("path+file:///checkout/crates/api#0.1.0"), "api");
        assert_eq!(package_name("path+file:///checkout/tools#xtask@0.1.0"), "xtask");
    }

    #[test]
    fn test_executable_ignores_other_artifacts() {
        let message = |test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "package_id": "path+file:///checkout/crates/store#0.1.0",
                "profile": { "test": test },
                "executable": "/checkout/target/debug/deps/it-0123",
            })
        };
        assert_eq!(test_executable(&message(true)), Some(("it-0123".to_owned(), "store".to_owned())));
        assert_eq!(test_executable(&message(false)), None);
        assert_eq!(test_executable(&serde_json::json!({ "reason": "build-finished", "success": true })), None);
    }
}

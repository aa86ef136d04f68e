//! Checks dependencies between our crates against the diagram in ARCHITECTURE.md.
//!
//! The diagram lists the allowed dependencies: both a missing and an unused entry are reported. Each line is a crate
//! and, after an arrow, the crates of ours that it depends on.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::TidyFinding;

pub(super) const ARCHITECTURE_FILE: &str = "ARCHITECTURE.md";

/// Info string of the diagram's code block.
const FENCE: &str = "```crates";

/// Crates that no other crate may depend on, not even for tests.
const LEAVES: [&str; 3] = ["bench", "unskew", "xtask"];

/// Crates whose dev-dependencies must be in the diagram, too; other crates may test with any crate but a leaf.
const STRICT_IN_TESTS: [&str; 2] = ["cluster-tests", "xtask"];

/// A crate and the crates of ours that it depends on.
type CrateEdges<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// Compares the diagram in `architecture` with `cargo metadata --no-deps`.
pub(super) fn check(metadata: &Value, architecture: &str) -> Result<Vec<TidyFinding>> {
    let diagram = parse_diagram(architecture)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut messages = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("cargo metadata has a package without a name")?;
        let Some(allowed) = diagram.get(name) else {
            messages.push(format!("the crate `{name}` is not in the diagram"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut used = Vec::new();
        for dependency in dependencies {
            let Some(other) = dependency["name"].as_str().filter(|other| names.contains(other)) else { continue };
            let for_tests = dependency["kind"] == "dev" && !STRICT_IN_TESTS.contains(&name);
            if LEAVES.contains(&other) || !for_tests && !allowed.contains(&other) {
                messages.push(format!("the dependency `{name}` → `{other}` is not in the diagram"));
            }
            if !for_tests {
                used.push(other);
            }
        }
        let unused = allowed.iter().filter(|other| !used.contains(other));
        messages.extend(unused.map(|other| format!("the diagram shows `{name}` → `{other}`, which no manifest has")));
    }
    let gone = diagram.keys().filter(|name| !names.contains(name));
    messages.extend(gone.map(|name| format!("the diagram shows `{name}`, which is not a crate")));
    Ok(messages.into_iter().map(|message| TidyFinding::in_file(ARCHITECTURE_FILE, message)).collect())
}

/// Parses the lines of the diagram; lines that begin with `#` are captions.
fn parse_diagram(architecture: &str) -> Result<CrateEdges<'_>> {
    let block = architecture.split_once(FENCE).and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.with_context(|| format!("{ARCHITECTURE_FILE} has no {FENCE} block"))?;
    let lines = block.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let edges = lines.map(|line| {
        let (name, others) = line.split_once('→').unwrap_or((line, ""));
        (name.trim(), others.split_whitespace().collect())
    });
    Ok(edges.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DIAGRAM: &str = "text\n```crates\n# values\napi\ntasks\nstore → tasks\nunskew → api store\n```\nmore\n";

    #[track_caller]
    fn check_store(dependencies: &[(&str, Option<&str>)], expected: &[&str]) {
        let package = |name: &str, dependencies: &[(&str, Option<&str>)]| {
            let dependencies: Vec<_> =
                dependencies.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
            json!({ "name": name, "dependencies": dependencies })
        };
        let unskew = package("unskew", &[("api", None), ("store", None), ("serde", None)]);
        let packages = [package("api", &[]), package("tasks", &[]), package("store", dependencies), unskew];
        let found = check(&json!({ "packages": packages }), DIAGRAM).unwrap();
        let found: Vec<String> = found.into_iter().map(|finding| finding.message).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn dependencies_of_the_diagram_pass() {
        check_store(&[("tasks", None), ("serde", None)], &[]);
        check_store(&[("tasks", Some("build"))], &[]);
    }

    #[test]
    fn dependency_missing_from_the_diagram_is_reported() {
        check_store(&[("tasks", None), ("api", None)], &["the dependency `store` → `api` is not in the diagram"]);
    }

    #[test]
    fn unused_edge_of_the_diagram_is_reported() {
        check_store(&[], &["the diagram shows `store` → `tasks`, which no manifest has"]);
    }

    #[test]
    fn tests_may_use_any_crate_but_a_leaf() {
        check_store(&[("tasks", None), ("api", Some("dev"))], &[]);
        check_store(
            &[("tasks", None), ("unskew", Some("dev"))],
            &["the dependency `store` → `unskew` is not in the diagram"],
        );
    }

    #[test]
    fn crates_and_diagram_list_the_same_names() {
        let packages = json!({ "packages": [json!({ "name": "newcomer", "dependencies": [] })] });
        let found = check(&packages, "```crates\nold\n```").unwrap();
        let found: Vec<String> = found.into_iter().map(|finding| finding.message).collect();
        assert_eq!(
            found,
            ["the crate `newcomer` is not in the diagram", "the diagram shows `old`, which is not a crate"]
        );
    }
}

//! Which crate may use which.
//!
//! The table is the architecture: an edge is added here with the change that needs it, by somebody who has thought about
//! the direction of the rest.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;

/// A crate and the crates of ours that it may depend on.
///
/// From what stands alone to where everything meets. `tasks` is for whoever spawns.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tasks", &[]),
    // Values and rules; no I/O, no clock, nothing to spawn.
    ("api", &[]),
    ("discovery", &["api"]),
    ("catalogue", &["api", "discovery"]),
    ("object", &["api", "catalogue"]),
    ("access", &["api"]),
    // Bytes, not kinds. Its connections to etcd verify certificates by transport.
    ("store", &["tasks", "transport"]),
    ("registry", &["api", "catalogue", "object", "store", "tasks"]),
    ("transport", &["tasks"]),
    // Over a port: servers hold elections over their registry, clients over HTTP.
    ("election", &["api"]),
    // These two never know each other, nor the store or the registry: they declare the ports they need.
    // Its forwarder connects by transport; everything else of it is values and ports.
    ("peering", &["api", "discovery", "tasks", "transport"]),
    ("storageversion", &["api", "election", "tasks"]),
    ("edge", &["access", "api", "discovery", "peering", "storageversion", "tasks", "transport"]),
    // As any client would.
    ("controllers", &["api", "discovery", "election", "tasks"]),
    // Where everything meets.
    (
        "apiserver",
        &[
            "access",
            "api",
            "catalogue",
            "discovery",
            "edge",
            "election",
            "object",
            "peering",
            "registry",
            "storageversion",
            "store",
            "tasks",
            "transport",
        ],
    ),
    ("gateway", &["access", "api", "discovery", "edge", "peering", "storageversion", "tasks", "transport"]),
    // Starts processes and looks at them from outside.
    ("lab", &["api", "discovery", "tasks", "transport"]),
    (
        "unskew",
        &[
            "access",
            "api",
            "apiserver",
            "catalogue",
            "controllers",
            "discovery",
            "edge",
            "election",
            "gateway",
            "lab",
            "object",
            "peering",
            "registry",
            "storageversion",
            "store",
            "tasks",
            "transport",
        ],
    ),
    // Not part of the product.
    ("fuzzing", &["access", "api", "catalogue", "discovery", "object", "peering", "storageversion"]),
    (
        "bench",
        &[
            "access",
            "api",
            "apiserver",
            "catalogue",
            // Its servers and clients, to measure what its tests check.
            "cluster-tests",
            "discovery",
            "edge",
            "gateway",
            "object",
            "peering",
            "registry",
            "storageversion",
            "store",
            "tasks",
            "transport",
        ],
    ),
    // Real processes, real TLS, real etcd: it sees a cluster as its users do, and as servers of other make who share its storage.
    ("cluster-tests", &["api", "discovery", "lab", "store", "tasks", "transport"]),
    // Checks the others while they are broken.
    ("xtask", &[]),
];

/// Nobody depends on these, not for tests either.
const LEAVES: [&str; 3] = ["bench", "unskew", "xtask"];

/// These keep to the table for tests too; everyone else may test with any crate that is no leaf.
const STRICT_IN_TESTS: [&str; 2] = ["cluster-tests", "xtask"];

const TABLE: &str = "xtask/src/tidy/edges.rs";

/// Checks `cargo metadata --no-deps`.
pub(super) fn check(metadata: &Value) -> Result<Vec<Finding>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("cargo metadata has a package without a name")?;
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            findings.push(Finding::of(
                TABLE,
                format!("the crate `{name}` is not in the table: say what it may use, and why"),
            ));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        for dependency in dependencies {
            let Some(other) = dependency["name"].as_str().filter(|other| names.contains(other)) else { continue };
            let for_tests = dependency["kind"] == "dev" && !STRICT_IN_TESTS.contains(&name);
            let fine = if for_tests { !LEAVES.contains(&other) } else { allowed.contains(&other) };
            if !fine {
                findings.push(Finding::of(TABLE, format!("the edge `{name}` → `{other}` is not in the table")));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_edge(from: &str, to: &str, kind: Option<&str>, expected: &[&str]) {
        let dependencies = [json!({ "name": to, "kind": kind }), json!({ "name": "serde", "kind": null })];
        let from = json!({ "name": from, "dependencies": dependencies });
        let metadata = json!({ "packages": [from, json!({ "name": to, "dependencies": [] })] });
        let found: Vec<String> = check(&metadata).unwrap().iter().map(Finding::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_edge_of_the_table_passes() {
        check_edge("discovery", "api", None, &[]);
        check_edge("store", "tasks", None, &[]);
    }

    #[test]
    fn an_edge_against_the_direction_is_named() {
        check_edge(
            "api",
            "discovery",
            None,
            &["xtask/src/tidy/edges.rs: the edge `api` → `discovery` is not in the table"],
        );
        check_edge(
            "peering",
            "store",
            None,
            &["xtask/src/tidy/edges.rs: the edge `peering` → `store` is not in the table"],
        );
        check_edge("store", "tasks", Some("build"), &[]);
    }

    #[test]
    fn tests_may_use_more_but_no_leaf() {
        check_edge("peering", "store", Some("dev"), &[]);
        check_edge(
            "peering",
            "unskew",
            Some("dev"),
            &["xtask/src/tidy/edges.rs: the edge `peering` → `unskew` is not in the table"],
        );
        check_edge(
            "xtask",
            "api",
            Some("dev"),
            &["xtask/src/tidy/edges.rs: the edge `xtask` → `api` is not in the table"],
        );
    }

    #[test]
    fn a_crate_must_be_in_the_table() {
        check_edge(
            "newcomer",
            "api",
            None,
            &["xtask/src/tidy/edges.rs: the crate `newcomer` is not in the table: say what it may use, and why"],
        );
    }

    #[test]
    fn the_table_is_in_order() {
        for (name, allowed) in ALLOWED {
            assert!(allowed.is_sorted(), "{name}");
            assert!(!allowed.iter().any(|other| LEAVES.contains(other)), "{name} uses a leaf");
            assert!(
                allowed.iter().all(|other| ALLOWED.iter().any(|(known, _)| known == other)),
                "{name} uses a stranger"
            );
        }
    }
}

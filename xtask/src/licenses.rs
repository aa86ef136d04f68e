//! `cargo xtask licenses`: checks the licences of all dependencies.

mod expression;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::args;
use crate::workspace::Workspace;

pub(crate) const HELP: &str = "\
cargo xtask licenses

Checks that every dependency's licence is satisfied by the allowed ones, that every crate of ours is under Apache-2.0, and
that no crate is used in the program that the project has decided against.
";

/// Licences that only require passing on their text, and MPL-2.0.
const ALLOWED_LICENCES: [&str; 16] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    // Requires publishing the source of its own files only, which is public.
    "MPL-2.0",
    // AWS-LC uses it for files that come from OpenSSL.
    "OpenSSL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const OUR_LICENCE: &str = "Apache-2.0";

/// Crates that must not be in the program, and their replacement.
const DENIED_CRATES: [(&str, &str); 5] = [
    ("chrono", "jiff"),
    ("native-tls", "rustls"),
    ("openssl", "rustls with aws-lc-rs"),
    ("openssl-sys", "rustls with aws-lc-rs"),
    ("ring", "aws-lc-rs: one crypto provider"),
];

pub(crate) fn main(words: &[String]) -> Result<()> {
    args::expect_no_args("licenses", words)?;
    check(&Workspace::open()?)
}

/// Only reads manifests; the first run downloads them.
const TREE_TIMEOUT: Duration = Duration::from_secs(300);

/// Prints all findings and fails if there are any.
///
/// Uses `cargo tree`, because `cargo metadata` also lists optional dependencies that no feature enables.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let tree = |edges: &str| {
        let job = workspace.cargo("tree", TREE_TIMEOUT).args(["--workspace", "--locked", "--edges", edges]);
        job.args(["--prefix", "none", "--format", "{p}|{l}|"]).output_text()
    };
    let all = tree("normal,build,dev")?;
    let shipped = tree("normal,build")?;
    let packages = parse_tree(&all);
    let findings = find_violations(&packages, &parse_tree(&shipped));
    findings.iter().for_each(|finding| println!("{finding}"));
    if !findings.is_empty() {
        bail!("the licence check has {} findings", findings.len());
    }
    println!("licences: {} crates, no findings", packages.len());
    Ok(())
}

/// Returns one line per third-party crate in the program, shipped with the packages.
pub(crate) fn list_shipped_crates(workspace: &Workspace) -> Result<String> {
    let job = workspace.cargo("tree", TREE_TIMEOUT).args(["--package", "unskew", "--locked", "--edges", "normal"]);
    let tree = job.args(["--prefix", "none", "--format", "{p}|{l}|"]).output_text()?;
    let packages = parse_tree(&tree);
    let others = packages.iter().filter(|package| package.origin == CrateOrigin::ThirdParty);
    Ok(others.map(|CrateInfo { name, version, licence, .. }| format!("{name} {version}: {licence}\n")).collect())
}

/// One crate of the dependency tree.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CrateInfo<'a> {
    name: &'a str,
    version: &'a str,
    /// SPDX expression; empty if the crate names none.
    licence: &'a str,
    origin: CrateOrigin,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CrateOrigin {
    Ours,
    ThirdParty,
}

/// Parses lines such as `api v0.1.0 (/checkout/crates/api)|Apache-2.0|` and `serde v1.0.229|MIT OR Apache-2.0| (*)`.
fn parse_tree(tree: &str) -> BTreeSet<CrateInfo<'_>> {
    let parse = |line| {
        let (package, rest): (&str, &str) = str::split_once(line, '|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?);
        let origin = if package.contains("(/") { CrateOrigin::Ours } else { CrateOrigin::ThirdParty };
        Some(CrateInfo { name, version, licence: rest.split('|').next()?, origin })
    };
    tree.lines().filter_map(parse).collect()
}

fn find_violations(packages: &BTreeSet<CrateInfo<'_>>, shipped: &BTreeSet<CrateInfo<'_>>) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let CrateInfo { name, version, licence, .. } = package;
        if package.origin == CrateOrigin::Ours {
            if *licence != OUR_LICENCE {
                findings
                    .push(format!("{name} is ours and must say `license.workspace = true`, which is {OUR_LICENCE}"));
            }
            continue;
        }
        if let Err(why) = check_licence(licence) {
            findings.push(format!("{name} {version}: {why:#}"));
        }
        let denied = DENIED_CRATES.iter().find(|(denied, _)| denied == name && shipped.contains(package));
        findings
            .extend(denied.map(|(_, instead)| format!("{name} {version} must not be in the program; use {instead}")));
    }
    findings
}

fn check_licence(licence: &str) -> Result<()> {
    let named = Some(licence).filter(|licence| !licence.is_empty()).context("no licence named")?;
    if !expression::parse(named)?.is_satisfied_by(&ALLOWED_LICENCES) {
        bail!("`{licence}` is not satisfied by the licences allowed in xtask/src/licenses.rs");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Checks the findings for crates of the program (`shipped`) and crates used by tests only (`tests`).
    #[track_caller]
    fn check_findings(shipped: &str, tests: &str, expected: &Expect) {
        let all = format!("{shipped}{tests}");
        expected.assert_eq(&find_violations(&parse_tree(&all), &parse_tree(shipped)).join("\n"));
    }

    #[test]
    fn permissive_licences_are_accepted() {
        check_findings(
            "api v0.1.0 (/checkout/crates/api)|Apache-2.0|\n\
             serde v1.0.0|MIT OR GPL-3.0|\n\
             thiserror-impl v2.0.0 (proc-macro)|MIT/Apache-2.0|\n\
             \n\
             serde v1.0.0|MIT OR GPL-3.0| (*)\n",
            "imbl v7.0.2|MPL-2.0+|\n",
            &expect![""],
        );
    }

    #[test]
    fn disallowed_licences_are_reported_in_tests_too() {
        check_findings(
            "api v0.1.0 (/checkout/crates/api)|MIT|\nb v1.0.0|GPL-3.0-only|\nc v1.0.0||\n",
            "d v1.0.0|MIT AND AGPL-3.0|\n",
            &expect![[r#"
                api is ours and must say `license.workspace = true`, which is Apache-2.0
                b v1.0.0: `GPL-3.0-only` is not satisfied by the licences allowed in xtask/src/licenses.rs
                c v1.0.0: no licence named
                d v1.0.0: `MIT AND AGPL-3.0` is not satisfied by the licences allowed in xtask/src/licenses.rs"#]],
        );
    }

    #[test]
    fn denied_crate_is_accepted_in_tests_only() {
        check_findings(
            "ring v0.17.14|Apache-2.0 AND ISC|\n",
            "chrono v0.4.0|MIT|\n",
            &expect!["ring v0.17.14 must not be in the program; use aws-lc-rs: one crypto provider"],
        );
    }
}

//! `cargo xtask licenses`: what the program is made of may be given on.

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

/// Licences whose only duty is to pass on their text, and one more.
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
    // Asks for the source of its own files, which is public, and of no others.
    "MPL-2.0",
    // AWS-LC's sources name it for files that come from there.
    "OpenSSL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const OUR_LICENCE: &str = "Apache-2.0";

/// Crates that must not be in the program, and what is used instead.
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

/// Reads manifests; downloading them on a first run is the slow case.
const TREE_TIMEOUT: Duration = Duration::from_secs(300);

/// Prints every finding; an error if there is one.
///
/// Asks `cargo tree` and not `cargo metadata`, which lists optional dependencies that no feature turns on.
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
    println!("licences: {} crates, nothing to say", packages.len());
    Ok(())
}

/// The crates of others that the program is made of, one line each, for those it is given to.
pub(crate) fn list_shipped_crates(workspace: &Workspace) -> Result<String> {
    let job = workspace.cargo("tree", TREE_TIMEOUT).args(["--package", "unskew", "--locked", "--edges", "normal"]);
    let tree = job.args(["--prefix", "none", "--format", "{p}|{l}|"]).output_text()?;
    let packages = parse_tree(&tree);
    let others = packages.iter().filter(|package| package.origin == CrateOrigin::ThirdParty);
    Ok(others.map(|CrateInfo { name, version, licence, .. }| format!("{name} {version}: {licence}\n")).collect())
}

/// One crate of the tree.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CrateInfo<'a> {
    name: &'a str,
    version: &'a str,
    /// Empty if it names none.
    licence: &'a str,
    origin: CrateOrigin,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CrateOrigin {
    Ours,
    ThirdParty,
}

/// `api v0.1.0 (/checkout/crates/api)|Apache-2.0|` and `serde v1.0.229|MIT OR Apache-2.0| (*)`
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
    let named = Some(licence).filter(|licence| !licence.is_empty()).context("it names no licence")?;
    if !expression::parse(named)?.is_satisfied_by(&ALLOWED_LICENCES) {
        bail!("`{licence}` is not satisfied by the licences allowed in xtask/src/licenses.rs");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// `shipped` and then what is there for tests alone.
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
                c v1.0.0: it names no licence
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

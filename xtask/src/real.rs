//! `cargo xtask real`: tests beside real kube-apiservers.

use std::path::Path;

use anyhow::{Result, bail};

use crate::args::{self, TestArgs};
use crate::environment;
use crate::test::{self, REAL_ASSETS, TestSize};

pub(crate) const HELP: &str = "\
cargo xtask real [<name>...] [-- <arguments of the test program>]

Runs the tests that need a real kube-apiserver: those in a module `real`. With names, only those that begin with one of them. KUBEBUILDER_ASSETS names a folder with kube-apiserver and etcd, as
for envtest; without them this command fails.

  cargo xtask real                          everything
  cargo xtask real validation               sends mutated manifests to both, prints where the responses differ
  cargo xtask real apply                    random writes by several managers, compares objects, managed fields and conflicts

Environment of `validation`: UNSKEW_REAL_SEED, UNSKEW_REAL_CASES (per kind), UNSKEW_REAL_KINDS (Pod,Job), UNSKEW_REAL_RELEASE
(an older one to emulate), UNSKEW_REAL_OUTPUT (a folder for one file per kind with a line per difference),
UNSKEW_REAL_RECORD=1 (replaces the recorded responses, which `cargo xtask test` replays without a real server).
Environment of `apply`: UNSKEW_REAL_SEED (the first sequence), UNSKEW_REAL_SEQUENCES (10000), UNSKEW_REAL_KINDS, UNSKEW_REAL_RECORD=1.
Environment of `definitions`: UNSKEW_REAL_DEFINITIONS, a folder with definitions.json and objects.json: lists of
CustomResourceDefinitions of other projects and of their sample objects; without it those in tests/data/definitions.
";

pub(crate) fn main(words: &[String]) -> Result<()> {
    let TestArgs { skipped_tools, names, cargo_args } = args::parse_test_args(words)?;
    let Some(folder) = environment::path_variable(REAL_ASSETS) else {
        bail!("{REAL_ASSETS} is not set: it names a folder with kube-apiserver and etcd");
    };
    check_assets(&folder)?;
    let mut cargo = ["-p", "cluster-tests", "--", "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec();
    match names.as_slice() {
        [] => cargo.push(test::REAL_TESTS.to_owned()),
        names => cargo.extend(names.iter().map(|name| format!("{}{name}", test::REAL_TESTS))),
    }
    cargo.extend(cargo_args);
    test::prepare_and_run(&TestArgs { skipped_tools, names: Vec::new(), cargo_args: cargo }, TestSize::Real)
}

/// Every program is there; the error names the first that is not.
fn check_assets(folder: &Path) -> Result<()> {
    for program in ["kube-apiserver", "etcd"] {
        if !folder.join(program).is_file() {
            bail!("{REAL_ASSETS} has no {program}: {}", folder.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_named() {
        let error = check_assets(Path::new("/nowhere")).expect_err("there is no such folder");
        assert_eq!(error.to_string(), "KUBEBUILDER_ASSETS has no kube-apiserver: /nowhere");
    }
}

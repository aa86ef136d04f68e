//! `cargo xtask test`: all tests, with the tools they need.
//!
//! Environment variables that tests may rely on:
//! - `UNSKEW_ETCD_OLD`, `UNSKEW_ETCD_NEW`: etcd servers without and with progress requests; always set.
//! - `UNSKEW_KUBECTL`, `UNSKEW_PYTHON` (with the `kubernetes` client), `UNSKEW_CHROMIUM`: set if some test needs the
//!   tool (`tools::TOOLS_NEEDED_BY_TESTS`) and it is not skipped.
//! - `UNSKEW_WITHOUT`: comma-separated tools that `--without` skips. A test that needs one of them passes and prints a
//!   note; if a tool is neither skipped nor set, its tests fail with one clear line.
//! - `UNSKEW_BIN`: the `unskew` binary of the same build.
//! - `UNSKEW_SOAK=1`: run in full size (`cargo xtask soak`).
//! - `UNSKEW_DISCOVERY_DATA`, `UNSKEW_CEL_SPEC`: passed through if the user set them.
//!
//! Tests in a module `real` run with `cargo xtask real` alone.
//!
//! Invariant: nothing is skipped silently; the summary lists skipped tools and the numbers of ignored and filtered
//! tests.

mod results;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::args::{self, TestArgs};
use crate::build::{self, BuildOutput};
use crate::environment;
use crate::table;
use crate::tools::{self, OptionalTool, ProvidedTool};
use crate::workspace::Workspace;
use results::TestResults;

pub(crate) const HELP: &str = "\
cargo xtask test [--without kubectl,python,browser] [-- <cargo test arguments>]

Runs all tests of the workspace with one test-profile build. etcd, and whatever else some test needs, is taken from PATH
or unpacked into target/tools. A tool that cannot be had is a failure unless --without names it.

  cargo xtask test                          everything
  cargo xtask test -- -p store watch        the tests of `store` with `watch` in their name
  cargo xtask test --without browser        leaves the browser tests out, and says so

Environment: UNSKEW_DISCOVERY_DATA names a folder of recorded discovery documents for the test that reads them,
UNSKEW_CEL_SPEC a checkout of the CEL specification, whose conformance tests then run;
UNSKEW_ETCD_OLD, UNSKEW_ETCD_NEW, UNSKEW_KUBECTL, UNSKEW_PYTHON, UNSKEW_CHROMIUM name tools of your own.
";

/// Bounds a hanging test; the budget of the step is in `ci`.
const TEST_TIMEOUT: Duration = Duration::from_secs(25 * 60);

/// Thousands of kills and tens of thousands of watches take hours.
const SOAK_TIMEOUT: Duration = Duration::from_secs(12 * 60 * 60);

/// Folder of recorded discovery documents, which are not in the checkout.
const DISCOVERY_DATA: &str = "UNSKEW_DISCOVERY_DATA";

/// A checkout of the CEL specification with its conformance tests.
const CEL_SPEC: &str = "UNSKEW_CEL_SPEC";

/// A folder with a real kube-apiserver and its etcd, as envtest has it.
pub(crate) const REAL_ASSETS: &str = "KUBEBUILDER_ASSETS";

/// The beginning of the names of tests that need a real kube-apiserver.
pub(crate) const REAL_TESTS: &str = "real::";

/// Which tests run, and how large they are.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum TestSize {
    Small,
    Full,
    /// The tests that `cargo xtask real` names, with the programs of `KUBEBUILDER_ASSETS`.
    Real,
}

pub(crate) fn main(words: &[String]) -> Result<()> {
    let parsed = args::parse_test_args(words)?;
    if let Some(name) = parsed.names.first() {
        bail!("to run the tests with `{name}` in their name: cargo xtask test -- {name}");
    }
    prepare_and_run(&parsed, TestSize::Small)
}

/// Provides the tools before the build, so that a missing tool is reported at once; then builds and runs the tests.
pub(crate) fn prepare_and_run(args: &TestArgs, size: TestSize) -> Result<()> {
    let workspace = Workspace::open()?;
    let provided = tools::provide_for_tests(&workspace.tools_dir(), &args.skipped_tools)?;
    let built = build(&workspace, args)?;
    run(&workspace, &TestInputs { build: &built, tools: &provided }, args, size)
}

/// Inputs of a test run.
pub(crate) struct TestInputs<'a> {
    pub(crate) build: &'a BuildOutput,
    pub(crate) tools: &'a [ProvidedTool],
}

/// Builds the whole workspace, or only the packages that the arguments select.
fn build(workspace: &Workspace, args: &TestArgs) -> Result<BuildOutput> {
    match args.selected_packages().as_slice() {
        [] => build::build_everything(workspace),
        packages => build::build_packages(workspace, packages),
    }
}

/// Runs the tests and prints the summary; fails if any test failed.
pub(crate) fn run(workspace: &Workspace, prepared: &TestInputs<'_>, args: &TestArgs, size: TestSize) -> Result<()> {
    let TestInputs { build: built, tools: provided } = *prepared;
    let started = Instant::now();
    let mut results = TestResults::new(&built.test_packages);
    let limit = if size == TestSize::Small { TEST_TIMEOUT } else { SOAK_TIMEOUT };
    let mut job = workspace.cargo("test", limit).args(["--locked", "--no-fail-fast"]);
    if args.selected_packages().is_empty() {
        job = job.arg("--workspace");
    }
    job = job.args(harness_args(&args.cargo_args, size)).envs(provided.iter().map(|tool| (tool.variable, &tool.path)));
    job =
        job.env("UNSKEW_WITHOUT", tool_names(&args.skipped_tools)).env("UNSKEW_BIN", workspace.debug_binary("unskew"));
    for variable in [DISCOVERY_DATA, CEL_SPEC] {
        if let Some(folder) = environment::path_variable(variable) {
            job = job.env(variable, folder);
        }
    }
    if let Some(assets) = environment::path_variable(REAL_ASSETS).filter(|_| size == TestSize::Real) {
        job = job.env("UNSKEW_ETCD_NEW", assets.join("etcd")).env(REAL_ASSETS, assets);
    }
    job = if size == TestSize::Full { job.env("UNSKEW_SOAK", "1") } else { job.env_remove("UNSKEW_SOAK") };
    let status = job.stream_lines(&mut |line| {
        print!("{line}");
        results.read_line(line);
    });
    results.finish_executable();
    print_summary(&results, provided, &args.skipped_tools, started.elapsed());
    let status = status?;
    if results.failed() > 0 {
        bail!("{} tests failed", results.failed());
    }
    if !status.success() {
        bail!("cargo test failed ({status})");
    }
    if size == TestSize::Real && results.passed() == 0 {
        bail!(
            "no test has such a name: `cargo xtask real` runs those in modules `real`, by the beginning of their names there"
        );
    }
    Ok(())
}

/// The words for cargo; only `cargo xtask real` runs tests that need a real kube-apiserver.
fn harness_args(cargo_args: &[String], size: TestSize) -> Vec<String> {
    let mut words = cargo_args.to_vec();
    if size != TestSize::Real {
        if !words.iter().any(|word| word == "--") {
            words.push("--".to_owned());
        }
        words.extend(["--skip", REAL_TESTS].map(str::to_owned));
    }
    words
}

fn tool_names(tools: &[OptionalTool]) -> String {
    tools.iter().map(|tool| tool.name()).collect::<Vec<_>>().join(",")
}

fn print_summary(results: &TestResults<'_>, provided: &[ProvidedTool], without: &[OptionalTool], took: Duration) {
    println!("\nTests\n{}", table::render(&results.rows()));
    println!("Tools\n{}", table::render(&tools::tool_rows(provided)));
    for variable in [DISCOVERY_DATA, CEL_SPEC] {
        let folder = environment::path_variable(variable);
        println!("{variable}: {}", folder.map_or("not given".to_owned(), |folder| folder.display().to_string()));
    }
    let left_out = tool_names(without);
    println!("left out: {}", if left_out.is_empty() { "nothing" } else { &left_out });
    if results.ignored() > 0 {
        println!("ignored: {} tests", results.ignored());
    }
    if results.filtered_out() > 0 {
        println!("filtered out: {} tests", results.filtered_out());
    }
    println!("took {:.1} s", took.as_secs_f64());
    println!("{} passed, {} failed", results.passed(), results.failed());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, size: TestSize, expected: &str) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(harness_args(&words, size).join(" "), expected);
    }

    #[test]
    fn real_tests_are_skipped_except_by_their_own_command() {
        check("", TestSize::Small, "-- --skip real::");
        check("-p store watch", TestSize::Small, "-p store watch -- --skip real::");
        check("-p store -- --nocapture", TestSize::Full, "-p store -- --nocapture --skip real::");
        check("-p cluster-tests -- real::", TestSize::Real, "-p cluster-tests -- real::");
    }
}

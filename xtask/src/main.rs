//! Project automation, run as `cargo xtask <command>`.
//!
//! xtask depends on no crate of the project, so that it builds in seconds and can check the others while they do not
//! compile. Each command is a module with its own `--help`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints to its terminal")]

mod args;
mod bench;
mod build;
mod ci;
mod dist;
mod environment;
mod licenses;
mod process;
mod real;
mod schemas;
mod soak;
mod table;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask <command> [--help]

  test       run all tests; provides the tools they need
  ci         format, clippy, docs, tests, tidy, licences, a quick bench
  soak       the tests in full size: long runs
  real       the tests beside a real kube-apiserver, from KUBEBUILDER_ASSETS
  bench      one table of medians and ratios
  tidy       dependencies between crates, file lengths, documents, flags, metrics
  dist       an archive, a Debian package and a container image of the program
  licenses   every dependency's licence against the allowed ones
  tools      provide etcd, kubectl, Python's client or a browser, and print where they are
  schemas    make the table of built-in types
";

/// Runs a command with the arguments after its name.
type CommandMain = fn(&[String]) -> Result<()>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let Some((command, rest)) = words.split_first() else {
        print!("{HELP}");
        bail!("no command given");
    };
    let (help, main): (&str, CommandMain) = match command.as_str() {
        "test" => (test::HELP, test::main),
        "ci" => (ci::HELP, ci::main),
        "soak" => (soak::HELP, soak::main),
        "real" => (real::HELP, real::main),
        "bench" => (bench::HELP, bench::main),
        "tidy" => (tidy::HELP, tidy::main),
        "dist" => (dist::HELP, dist::main),
        "licenses" => (licenses::HELP, licenses::main),
        "tools" => (tools::HELP, tools::main),
        "schemas" => (schemas::HELP, schemas::main),
        "--help" | "-h" | "help" => {
            print!("{HELP}");
            return Ok(());
        }
        unknown => bail!("unknown command `{unknown}`; `cargo xtask --help` lists them"),
    };
    if args::has_help_flag(rest) {
        print!("{help}");
        return Ok(());
    }
    main(rest)
}

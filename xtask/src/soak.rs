//! `cargo xtask soak`: the tests in full size.
//!
//! Uses the test profile, so that it shares the build of the tests: soaks look for wrong order and lost state, not for
//! speed.

use anyhow::{Result, bail};

use crate::args::{self, TestArgs};
use crate::test::{self, TestSize};

pub(crate) const HELP: &str = "\
cargo xtask soak [<name>] [--without kubectl,python,browser] [-- <cargo test arguments>]

Runs the tests with UNSKEW_SOAK=1: those with long runs (kills, watches, rollouts) take their full size. With a name, only
the tests that have it in theirs. Takes up to hours.
";

pub(crate) fn main(words: &[String]) -> Result<()> {
    let TestArgs { skipped_tools, names, cargo_args: mut cargo } = args::parse_test_args(words)?;
    match names.as_slice() {
        [] => (),
        [name] => cargo.insert(0, name.clone()),
        [_, second, ..] => bail!("at most one name is accepted; unexpected `{second}`"),
    }
    test::prepare_and_run(&TestArgs { skipped_tools, names: Vec::new(), cargo_args: cargo }, TestSize::Full)
}

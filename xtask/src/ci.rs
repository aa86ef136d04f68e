//! `cargo xtask ci`: every check there is, in one run.
//!
//! Invariants: all steps run even if one fails, and the failed ones are named at the end; nothing is built in the release
//! profile; no step sets RUSTFLAGS, so that the steps share what they build. A step beyond its budget is marked, not
//! failed: machines are noisy.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::args::{self, TestArgs};
use crate::bench;
use crate::build::{self, Built};
use crate::licenses;
use crate::table;
use crate::test::{self, Prepared, Size};
use crate::tidy;
use crate::tools::{self, Provided};
use crate::workspace::Workspace;

pub(crate) const HELP: &str = "\
cargo xtask ci [--without kubectl,python,browser]

Format check, clippy with warnings denied, docs, all tests, tidy, licences, a quick bench. All steps run; the failed ones
are named at the end, with the seconds and the budget of each.
";

/// A guard against hanging for the steps that only compile.
const STEP_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The whole takes less than this on two cores from a clean checkout.
const BUDGET: Duration = Duration::from_secs(30 * 60);

/// One step and the time it should take on two cores from a clean checkout.
struct Step {
    name: &'static str,
    budget: Duration,
    run: fn(&mut Ci) -> Result<()>,
}

/// The budgets add up to less than `BUDGET`.
const STEPS: [Step; 9] = [
    Step { name: "format", budget: Duration::from_secs(20), run: format },
    Step { name: "tools", budget: Duration::from_secs(90), run: tools },
    Step { name: "build", budget: Duration::from_secs(600), run: build },
    Step { name: "tests", budget: Duration::from_secs(500), run: tests },
    Step { name: "clippy", budget: Duration::from_secs(240), run: clippy },
    Step { name: "docs", budget: Duration::from_secs(120), run: docs },
    Step { name: "tidy", budget: Duration::from_secs(20), run: tidy },
    Step { name: "licences", budget: Duration::from_secs(20), run: licences },
    Step { name: "bench --quick", budget: Duration::from_secs(180), run: quick_bench },
];

/// What the steps hand to each other.
struct Ci {
    workspace: Workspace,
    args: TestArgs,
    provided: Option<Vec<Provided>>,
    built: Option<Built>,
}

pub(crate) fn main(words: &[String]) -> Result<()> {
    let args = args::parse_test(words)?;
    if let Some(word) = args.names.first().or(args.cargo.first()) {
        bail!("ci runs everything; what is `{word}`?");
    }
    let mut ci = Ci { workspace: Workspace::open()?, args, provided: None, built: None };
    let started = Instant::now();
    let mut rows = vec![["step", "seconds", "budget", "result"].map(str::to_owned).to_vec()];
    let mut failed = Vec::new();
    for step in &STEPS {
        println!("\n── {} ──", step.name);
        let begun = Instant::now();
        let result = (step.run)(&mut ci);
        let took = begun.elapsed();
        if let Err(error) = &result {
            eprintln!("{} failed: {error:#}", step.name);
            failed.push(step.name);
        }
        let outcome = if result.is_ok() { Outcome::Ok } else { Outcome::Failed };
        rows.push(row(step.name, took, step.budget, outcome));
    }
    let outcome = if failed.is_empty() { Outcome::Ok } else { Outcome::Failed };
    rows.push(row("all", started.elapsed(), BUDGET, outcome));
    println!("\n{}", table::render(&rows));
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

#[derive(Clone, Copy)]
enum Outcome {
    Ok,
    Failed,
}

fn row(name: &str, took: Duration, budget: Duration, outcome: Outcome) -> Vec<String> {
    let result = match outcome {
        Outcome::Ok if took > budget => "ok, over its budget",
        Outcome::Ok => "ok",
        Outcome::Failed => "FAILED",
    };
    vec![name.to_owned(), format!("{:.1}", took.as_secs_f64()), budget.as_secs().to_string(), result.to_owned()]
}

fn format(ci: &mut Ci) -> Result<()> {
    ci.workspace.cargo("fmt", STEP_LIMIT).args(["--all", "--check"]).run()
}

fn tools(ci: &mut Ci) -> Result<()> {
    ci.provided = Some(tools::provide_for_tests(&ci.workspace.tools(), &ci.args.without)?);
    Ok(())
}

fn build(ci: &mut Ci) -> Result<()> {
    ci.built = Some(build::everything(&ci.workspace)?);
    Ok(())
}

fn tests(ci: &mut Ci) -> Result<()> {
    let Some(built) = &ci.built else { bail!("there is no build to test") };
    let Some(provided) = &ci.provided else { bail!("the tools are not there") };
    test::run(&ci.workspace, &Prepared { built, provided }, &ci.args, Size::Small)
}

fn clippy(ci: &mut Ci) -> Result<()> {
    let job = ci.workspace.cargo("clippy", STEP_LIMIT).args(["--workspace", "--all-targets", "--locked"]);
    job.args(["--", "--deny", "warnings"]).run()
}

fn docs(ci: &mut Ci) -> Result<()> {
    let job = ci.workspace.cargo("doc", STEP_LIMIT).args(["--workspace", "--no-deps", "--locked"]);
    job.arg("--document-private-items").env("RUSTDOCFLAGS", "--deny warnings").run()
}

fn tidy(ci: &mut Ci) -> Result<()> {
    if ci.built.is_none() {
        bail!("there is no build whose flags could be read");
    }
    tidy::check(&ci.workspace)
}

fn licences(ci: &mut Ci) -> Result<()> {
    licenses::check(&ci.workspace)
}

fn quick_bench(ci: &mut Ci) -> Result<()> {
    if ci.built.is_none() {
        bail!("there is no build to run");
    }
    bench::quick(&ci.workspace, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budgets_of_the_steps_fit_the_whole() {
        assert!(STEPS.iter().map(|step| step.budget).sum::<Duration>() <= BUDGET);
    }

    #[test]
    fn a_failed_step_says_so_whatever_it_took() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(9));
        assert_eq!(row("a", short, long, Outcome::Ok), ["a", "1.0", "9", "ok"]);
        assert_eq!(row("a", long, short, Outcome::Ok), ["a", "9.0", "1", "ok, over its budget"]);
        assert_eq!(row("a", long, short, Outcome::Failed), ["a", "9.0", "1", "FAILED"]);
    }
}

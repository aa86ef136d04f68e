//! `cargo xtask ci`: all checks in one run.
//!
//! Invariants: all steps run even if one fails, and failed steps are listed at the end; nothing is built in the release
//! profile; no step sets RUSTFLAGS, so that the steps share their builds. A step over its budget is marked, not failed,
//! because timing varies.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::args::{self, TestArgs};
use crate::bench;
use crate::build::{self, BuildOutput};
use crate::licenses;
use crate::table;
use crate::test::{self, TestInputs, TestSize};
use crate::tidy;
use crate::tools::{self, ProvidedTool};
use crate::workspace::Workspace;

pub(crate) const HELP: &str = "\
cargo xtask ci [--without kubectl,python,browser]

Format check, clippy with warnings denied, docs, all tests, tidy, licences, a quick bench. All steps run; the failed ones
are named at the end, with the seconds and the budget of each.
";

/// Bounds a hanging step that only compiles.
const STEP_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Expected limit of the whole run on two cores from a clean checkout.
const BUDGET: Duration = Duration::from_secs(30 * 60);

/// One step, with its expected time on two cores from a clean checkout.
struct CiStep {
    name: &'static str,
    budget: Duration,
    run: fn(&mut Ci) -> Result<()>,
}

/// The budgets sum up to less than [`BUDGET`].
const STEPS: [CiStep; 9] = [
    CiStep { name: "format", budget: Duration::from_secs(20), run: format },
    CiStep { name: "tools", budget: Duration::from_secs(90), run: tools },
    CiStep { name: "build", budget: Duration::from_secs(420), run: build },
    CiStep { name: "tests", budget: Duration::from_secs(700), run: tests },
    CiStep { name: "clippy", budget: Duration::from_secs(240), run: clippy },
    CiStep { name: "docs", budget: Duration::from_secs(120), run: docs },
    CiStep { name: "tidy", budget: Duration::from_secs(20), run: tidy },
    CiStep { name: "licences", budget: Duration::from_secs(20), run: licences },
    CiStep { name: "bench --quick", budget: Duration::from_secs(170), run: quick_bench },
];

/// State that the steps share.
struct Ci {
    workspace: Workspace,
    args: TestArgs,
    tools: Option<Vec<ProvidedTool>>,
    build: Option<BuildOutput>,
}

pub(crate) fn main(words: &[String]) -> Result<()> {
    let args = args::parse_test_args(words)?;
    if let Some(word) = args.names.first().or(args.cargo_args.first()) {
        bail!("`cargo xtask ci` takes no argument `{word}`: it runs everything");
    }
    let mut ci = Ci { workspace: Workspace::open()?, args, tools: None, build: None };
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
        let outcome = if result.is_ok() { StepOutcome::Ok } else { StepOutcome::Failed };
        rows.push(step_row(step.name, took, step.budget, outcome));
    }
    let outcome = if failed.is_empty() { StepOutcome::Ok } else { StepOutcome::Failed };
    rows.push(step_row("all", started.elapsed(), BUDGET, outcome));
    println!("\n{}", table::render(&rows));
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

#[derive(Clone, Copy)]
enum StepOutcome {
    Ok,
    Failed,
}

fn step_row(name: &str, took: Duration, budget: Duration, outcome: StepOutcome) -> Vec<String> {
    let result = match outcome {
        StepOutcome::Ok if took > budget => "ok, over its budget",
        StepOutcome::Ok => "ok",
        StepOutcome::Failed => "FAILED",
    };
    vec![name.to_owned(), format!("{:.1}", took.as_secs_f64()), budget.as_secs().to_string(), result.to_owned()]
}

fn format(ci: &mut Ci) -> Result<()> {
    ci.workspace.cargo("fmt", STEP_TIMEOUT).args(["--all", "--check"]).run()
}

fn tools(ci: &mut Ci) -> Result<()> {
    ci.tools = Some(tools::provide_for_tests(&ci.workspace.tools_dir(), &ci.args.skipped_tools)?);
    Ok(())
}

fn build(ci: &mut Ci) -> Result<()> {
    ci.build = Some(build::build_everything(&ci.workspace)?);
    Ok(())
}

fn tests(ci: &mut Ci) -> Result<()> {
    let Some(built) = &ci.build else { bail!("the build step failed: nothing to test") };
    let Some(provided) = &ci.tools else { bail!("the tools step failed") };
    test::run(&ci.workspace, &TestInputs { build: built, tools: provided }, &ci.args, TestSize::Small)
}

fn clippy(ci: &mut Ci) -> Result<()> {
    let job = ci.workspace.cargo("clippy", STEP_TIMEOUT).args(["--workspace", "--all-targets", "--locked"]);
    job.args(["--", "--deny", "warnings"]).run()
}

fn docs(ci: &mut Ci) -> Result<()> {
    let job = ci.workspace.cargo("doc", STEP_TIMEOUT).args(["--workspace", "--no-deps", "--locked"]);
    job.arg("--document-private-items").env("RUSTDOCFLAGS", "--deny warnings").run()
}

fn tidy(ci: &mut Ci) -> Result<()> {
    if ci.build.is_none() {
        bail!("the build step failed: no binary to read flags from");
    }
    tidy::check(&ci.workspace)
}

fn licences(ci: &mut Ci) -> Result<()> {
    licenses::check(&ci.workspace)
}

fn quick_bench(ci: &mut Ci) -> Result<()> {
    if ci.build.is_none() {
        bail!("the build step failed: nothing to run");
    }
    bench::run_quick(&ci.workspace, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_budgets_fit_the_total_budget() {
        assert!(STEPS.iter().map(|step| step.budget).sum::<Duration>() <= BUDGET);
    }

    #[test]
    fn step_row_shows_failure_and_exceeded_budget() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(9));
        assert_eq!(step_row("a", short, long, StepOutcome::Ok), ["a", "1.0", "9", "ok"]);
        assert_eq!(step_row("a", long, short, StepOutcome::Ok), ["a", "9.0", "1", "ok, over its budget"]);
        assert_eq!(step_row("a", long, short, StepOutcome::Failed), ["a", "9.0", "1", "FAILED"]);
    }
}

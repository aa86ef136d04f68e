//! `cargo xtask bench`: the benchmarks, beside a real etcd.

use std::time::Duration;

use anyhow::Result;

use crate::build;
use crate::process::TimedCommand;
use crate::tools;
use crate::workspace::Workspace;

pub(crate) const HELP: &str = "\
cargo xtask bench [--quick] [<filter>…]

Prints one table with medians, each figure also as a ratio to its peer in the same run. --quick only shows that every
benchmark runs: small sizes, test profile, figures that mean nothing. With KUBEBUILDER_ASSETS, a folder with
kube-apiserver, the groups `apply`, `custom` and `admission` are compared with it.
";

/// Includes an optimised build from scratch.
const BENCH_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

/// Small sizes; only bounds a hanging run.
const QUICK_TIMEOUT: Duration = Duration::from_secs(15 * 60);

pub(crate) fn main(words: &[String]) -> Result<()> {
    let workspace = Workspace::open()?;
    let (quick_flag, filters): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| *word == "--quick");
    if !quick_flag.is_empty() {
        build::build_everything(&workspace)?;
        return run_quick(&workspace, &filters);
    }
    let packages = ["--locked", "--profile", "dist", "--package", "bench", "--package", "unskew"];
    workspace.cargo("build", BENCH_TIMEOUT).args(packages).run()?;
    let job = TimedCommand::new(workspace.dist().join("bench"), BENCH_TIMEOUT).current_dir(&workspace.root);
    let job = job.env("UNSKEW_BIN", workspace.dist().join("unskew"));
    with_nginx(&workspace, with_etcd(&workspace, job)?).args(filters).run()
}

/// Runs the quick benchmarks of the test-profile build, which must exist.
pub(crate) fn run_quick(workspace: &Workspace, filters: &[&String]) -> Result<()> {
    let job =
        TimedCommand::new(workspace.debug_binary("bench"), QUICK_TIMEOUT).current_dir(&workspace.root).arg("--quick");
    let job = job.env("UNSKEW_BIN", workspace.debug_binary("unskew"));
    with_etcd(workspace, job)?.args(filters).run()
}

/// Adds nginx for the gateway comparison; without it the table says so.
fn with_nginx(workspace: &Workspace, job: TimedCommand) -> TimedCommand {
    match tools::provide_nginx(&workspace.tools_dir()) {
        Ok(nginx) => job.env(nginx.variable, &nginx.path),
        Err(error) => {
            println!("nginx could not be provided: {error:#}");
            job
        }
    }
}

fn with_etcd(workspace: &Workspace, job: TimedCommand) -> Result<TimedCommand> {
    let etcd = tools::provide_etcd(&workspace.tools_dir())?;
    Ok(job.envs(etcd.iter().map(|tool| (tool.variable, &tool.path))))
}

//! `cargo xtask bench`: one table of medians, each also as a ratio to a baseline of the same run.
//!
//! Machines are noisy, so compare ratios between runs. A missed goal is printed and never fails the run. `--quick` runs
//! every benchmark once at the smallest size, to show that it works.
#![expect(clippy::print_stdout, reason = "the table is this program's product")]

mod access_bench;
mod api_bench;
mod controllers_bench;
mod discovery_bench;
mod gateway_bench;
mod kinds_bench;
mod peers_bench;
mod serve_bench;
mod store_bench;
mod table;
mod timing;

use table::{BenchTable, VerdictDisplay};

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// Everything once: a smoke test.
    Quick,
    /// Enough samples for a meaningful median.
    Full,
}

/// Effort and filters; a filter selects groups whose name contains it, none selects all.
struct BenchSelection {
    effort: Effort,
    filters: Vec<String>,
}

impl BenchSelection {
    fn from_args(args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut selection = Self { effort: Effort::Full, filters: Vec::new() };
        for arg in args {
            match arg.as_str() {
                "--quick" => selection.effort = Effort::Quick,
                flag if flag.starts_with('-') => {
                    anyhow::bail!("unknown flag {flag}; usage: bench [--quick] [GROUP…], groups: {}", group_names())
                }
                filter => selection.filters.push(filter.to_owned()),
            }
        }
        let unknown = selection.filters.iter().find(|filter| !GROUPS.iter().any(|(name, _)| name.contains(*filter)));
        if let Some(filter) = unknown {
            anyhow::bail!("no benchmark group is called {filter}; groups: {}", group_names());
        }
        Ok(selection)
    }

    fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }
}

type BenchGroup = fn(Effort, &mut BenchTable) -> anyhow::Result<()>;

/// Benchmark groups in the order of the table.
const GROUPS: &[(&str, BenchGroup)] = &[
    ("api", api_bench::run),
    ("kinds", kinds_bench::run),
    ("access", access_bench::run),
    ("discovery", discovery_bench::run),
    ("store", store_bench::run),
    ("serve", serve_bench::run),
    ("custom", serve_bench::run_custom),
    ("apply", serve_bench::run_apply),
    ("admission", serve_bench::run_admission),
    ("peers", peers_bench::run),
    ("gateway", gateway_bench::run),
    ("controllers", controllers_bench::run),
];

fn group_names() -> String {
    GROUPS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some(store_bench::CHILD_FLAG) => return store_bench::run_child(&words.collect::<Vec<_>>()),
        Some(kinds_bench::CHILD_FLAG) => return kinds_bench::run_child(),
        _ => {}
    }
    let selection = BenchSelection::from_args(std::env::args().skip(1))?;
    let is_quick = selection.effort == Effort::Quick;
    let mut table = BenchTable::new(if is_quick { VerdictDisplay::Hidden } else { VerdictDisplay::Shown });
    for (name, run) in GROUPS.iter().filter(|(name, _)| selection.selects(name)) {
        table.section(name);
        run(selection.effort, &mut table)?;
    }
    print!("{table}");
    if is_quick {
        println!("\nquick: every benchmark ran once at the smallest size; the figures are not meaningful");
    }
    Ok(())
}

//! The mixed-version proxy: placing a request, recomputing what follows from a change, and a whole hop beside a direct answer.

mod forwarding;
mod routing;

use crate::Effort;
use crate::table::BenchTable;

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    routing::measure(effort, table)?;
    forwarding::measure(effort, table)
}

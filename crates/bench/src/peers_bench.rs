//! The peer proxy: routing a request, recomputing after a membership change, and forwarding compared with direct
//! requests.

mod forwarding;
mod routing;

use crate::Effort;
use crate::table::BenchTable;

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    routing::measure(effort, table)?;
    forwarding::measure(effort, table)
}

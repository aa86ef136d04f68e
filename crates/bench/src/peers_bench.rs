//! The mixed-version proxy: placing a request, recomputing what follows from a change, and a whole hop beside a direct answer.

mod decisions;
mod hop;

use crate::Effort;
use crate::table::Table;

pub(crate) fn run(effort: Effort, table: &mut Table) -> anyhow::Result<()> {
    decisions::measure(effort, table)?;
    hop::measure(effort, table)
}

//! Evaluates test cases: one JSON object per line in, one per line out. Used to compare with a reference implementation.

#[path = "../tests/it/case.rs"]
mod case;

use std::io::{BufRead, Write};

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let case = serde_json::from_str(&line)?;
        writeln!(out, "{}", case::run(&case))?;
    }
    Ok(())
}

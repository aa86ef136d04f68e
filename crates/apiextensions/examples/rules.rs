//! Reads cases, one JSON value a line, and prints what the rules of their schemas say about the definition and the
//! objects: `{"schema": …, "oldSchema": …, "cases": [{"object": …, "old": …}]}`. For comparison with a real server.

#[path = "../tests/rules/case.rs"]
mod case;

use std::io::{BufRead, Write};

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let result = serde_json::from_str(&line?).map(|case| case::run(&case));
        writeln!(out, "{}", result.unwrap_or_else(|error| error.to_string().into()))?;
    }
    Ok(())
}

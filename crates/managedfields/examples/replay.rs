//! Replays recorded sequences from standard input, one JSON document per line, and counts differences to Kubernetes.

#![allow(clippy::print_stdout, unreachable_pub)]

use std::collections::BTreeMap;
use std::io::BufRead as _;

#[path = "../tests/it/replay.rs"]
mod replay;

fn main() {
    let shown_max = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(5);
    let (mut sequences, mut steps, mut differences) = (0, 0, 0);
    let mut decided: BTreeMap<&str, usize> = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let sequence: serde_json::Value = serde_json::from_str(&line.expect("a line")).expect("a line is JSON");
        sequences += 1;
        steps += sequence["steps"].as_array().map_or(0, Vec::len);
        for finding in replay::replay(&sequence) {
            match finding {
                replay::Finding::Decided(rule) => *decided.entry(rule).or_default() += 1,
                replay::Finding::Difference(text) => {
                    differences += 1;
                    if differences <= shown_max {
                        println!("seed {} {}: {text}\n", sequence["seed"], sequence["kind"]);
                    }
                }
            }
        }
    }
    println!("{sequences} sequences, {steps} steps, {differences} differences, decided {decided:?}");
}

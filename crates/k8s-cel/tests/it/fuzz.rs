//! Mutated expressions: whatever the text, compiling and evaluating end, without panic, and always the same way.
//!
//! The short form runs a fixed sequence; with `UNSKEW_SOAK` the sequence goes on for ten minutes per test.

use std::time::{Duration, Instant};

use fastrand::Rng;
use k8s_cel::{DeclType, Environment, Evaluation, Field, Input, ListKind, Release};
use serde_json::{Value as Json, json};

const SHORT_ITERATIONS: usize = 3_000;
const SOAK: Duration = Duration::from_secs(600);
/// An unoptimised build on a busy machine stays far below; what exceeds it is not bounded by the cost limit.
const SLOW: Duration = Duration::from_secs(20);
const COST_LIMIT: u64 = 100_000;

const TABLES: [&str; 4] = [
    include_str!("data/syntax.jsonl"),
    include_str!("data/schema.jsonl"),
    include_str!("data/library.jsonl"),
    include_str!("data/errors.jsonl"),
];

/// Parts that mutations insert.
const PARTS: [&str; 44] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    ":",
    "?",
    "!",
    "-",
    "&&",
    "||",
    "==",
    "in",
    "'",
    "\"",
    "\\",
    "\n",
    "\u{e9}",
    "\u{1F600}",
    "9223372036854775807",
    "1e308",
    "0x",
    "1u",
    "b'\\xff'",
    "null",
    "self",
    ".all(x, ",
    ".map(x, ",
    ".exists(x, y, ",
    ".filter(x, ",
    "has(",
    ".?",
    "[?",
    "optional.of(",
    "dyn(",
    ".matches('",
    "(a*)*",
    "{1000}",
    ".format([",
    "lists.range(1000000)",
    "+ self.text",
];

fn seeds() -> Vec<String> {
    let rows = TABLES.iter().flat_map(|table| table.lines());
    let rows = rows.filter_map(|line| serde_json::from_str::<Json>(line).ok());
    rows.filter_map(|row| row[0].as_str().map(str::to_owned)).collect()
}

/// A position on a character boundary.
fn position(random: &mut Rng, text: &str) -> usize {
    text.floor_char_boundary(random.usize(..=text.len()))
}

fn mutate(random: &mut Rng, text: &mut String, seeds: &[String]) {
    let (a, b) = (position(random, text), position(random, text));
    let (from, to) = (a.min(b), a.max(b));
    match random.u8(..6) {
        0 => drop(text.drain(from..to)),
        1 => text.insert_str(from, PARTS[random.usize(..PARTS.len())]),
        2 => {
            let part = text[from..to].to_owned();
            let at = position(random, text);
            text.insert_str(at, &part);
        }
        3 => {
            let other = &seeds[random.usize(..seeds.len())];
            let at = position(random, other);
            text.truncate(from);
            text.push_str(&other[at..]);
        }
        4 => {
            let other = &seeds[random.usize(..seeds.len())];
            text.replace_range(from..to, other);
        }
        _ => text.insert(from, char::from(random.u8(32..127))),
    }
    if text.len() > 4096 {
        text.truncate(text.floor_char_boundary(4096));
    }
}

/// Calls `check` with mutated seeds; prints the input that fails or takes long.
fn run(seed: u64, check: impl Fn(&str)) {
    let seeds = seeds();
    let mut random = Rng::with_seed(seed);
    let is_soak = std::env::var_os("UNSKEW_SOAK").is_some();
    let begin = Instant::now();
    let mut count = 0;
    while if is_soak { begin.elapsed() < SOAK } else { count < SHORT_ITERATIONS } {
        count += 1;
        let mut text = seeds[random.usize(..seeds.len())].clone();
        for _ in 0..random.usize(..6) {
            mutate(&mut random, &mut text, &seeds);
        }
        let begin = Instant::now();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&text)));
        assert!(outcome.is_ok(), "fails: {text}");
        assert!(begin.elapsed() < SLOW, "takes {:?}: {text}", begin.elapsed());
    }
}

fn environment(release: u8) -> Environment {
    let text = || DeclType::string(None);
    let port = DeclType::object([Field::new("name", text()), Field::new("port", DeclType::int())]);
    let object = DeclType::object([
        Field::new("text", text()),
        Field::new("name", text()),
        Field::new("items", DeclType::list(text(), Some(50), ListKind::Atomic)),
        Field::new("tags", DeclType::list(text(), None, ListKind::Set)),
        Field::new("ports", DeclType::list(port, None, ListKind::Map(vec!["name".into()]))),
        Field::new("labels", DeclType::map(text(), None)),
        Field::new("any", DeclType::dynamic()),
    ]);
    Environment::for_stored_expressions(Release(release))
        .variable("self", object)
        .variable("l", DeclType::dynamic())
        .variable("s", DeclType::dynamic())
        .variable("m", DeclType::dynamic())
}

#[test]
fn mutated_expressions_compile_or_are_refused() {
    let environments = [environment(31), environment(36), environment(36).unchecked(), Environment::language()];
    run(1, |text| {
        for environment in &environments {
            match (environment.compile(text), environment.compile(text)) {
                (Ok(first), Ok(second)) => {
                    assert_eq!(first.output_type().to_string(), second.output_type().to_string());
                    assert!(first.estimated_cost().min <= first.estimated_cost().max);
                }
                (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
                _ => panic!("compiles only sometimes"),
            }
        }
    });
}

#[test]
fn mutated_expressions_evaluate_within_the_cost_limit() {
    let object = json!({
        "text": "lorem ipsum ".repeat(50), "name": "web-1", "items": ["a", "b"], "tags": ["x", "y"],
        "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53}], "labels": {"app": "web"},
        "any": {"a": [1, 2.5, null, {"b": "c"}]},
    });
    let (list, text, map) = (json!((0..200).collect::<Vec<_>>()), json!("ab".repeat(2_000)), json!({"a": 1, "b": [2]}));
    let inputs = [
        ("self", Input::Json(&object)),
        ("l", Input::Json(&list)),
        ("s", Input::Json(&text)),
        ("m", Input::Json(&map)),
    ];
    let environments = [environment(36), environment(36).unchecked()];
    run(2, |text| {
        for environment in &environments {
            let Ok(program) = environment.compile(text) else { continue };
            let evaluation = Evaluation { cost_limit: COST_LIMIT, ..Evaluation::new(&inputs) };
            let (first, second) = (program.evaluate(&evaluation), program.evaluate(&evaluation));
            assert_eq!(first.cost, second.cost);
            match (first.result, second.result) {
                (Ok(_), Ok(_)) => assert!(first.cost <= COST_LIMIT),
                (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
                _ => panic!("succeeds only sometimes"),
            }
        }
    });
}

#[test]
fn mutated_patterns_compile_or_are_refused() {
    run(3, |text| {
        if let Ok(regex) = re2::compile(text) {
            assert_eq!(regex.is_match("lorem ipsum"), regex.find("lorem ipsum").is_some());
        }
    });
}

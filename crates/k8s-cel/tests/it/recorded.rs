//! Expressions with the type, estimate, cost and result that a Kubernetes 1.36 server computes for them.
//!
//! A table is a sequence of JSON lines: an object is the environment of the rows after it; a row is the expression, then
//! its type, least and most estimated cost, cost and result, or only the error if it does not compile.

use serde_json::{Map, Value as Json, json};

use crate::case;

/// The row that `case` must produce.
fn row(case: &Json) -> Json {
    let outcome = case::run(case);
    let expr = &case["expr"];
    if outcome.get("compile").is_some() {
        return json!([expr, {"compile": outcome["compile"]}]);
    }
    if outcome.get("type").is_none() {
        return json!([expr, {"error": outcome["error"]}]);
    }
    let result = match outcome.get("result") {
        Some(result) => result.clone(),
        None => json!({"error": outcome["error"]}),
    };
    json!([expr, outcome["type"], outcome["estMin"], outcome["estMax"], outcome["cost"], result])
}

#[track_caller]
fn check_table(table: &str, rows_min: usize) {
    let mut environment = Map::new();
    let (mut rows, mut failures) = (0, Vec::new());
    for line in table.lines() {
        let expected: Json = serde_json::from_str(line).expect("a table is JSON lines");
        if let Json::Object(object) = expected {
            environment = object;
            continue;
        }
        let mut case = environment.clone();
        case.insert("expr".into(), expected[0].clone());
        let actual = row(&Json::Object(case));
        rows += 1;
        if actual != expected {
            failures.push(format!("expected {expected}\n  actual {actual}"));
        }
    }
    assert!(failures.is_empty(), "{} of {rows} rows differ\n{}", failures.len(), failures.join("\n"));
    assert!(rows >= rows_min, "the table has {rows} rows only");
}

#[test]
fn syntax_and_type_errors_equal_the_recorded_ones() {
    check_table(include_str!("data/syntax.jsonl"), 450);
}

#[test]
fn costs_over_a_schema_equal_the_recorded_ones() {
    check_table(include_str!("data/schema.jsonl"), 200);
}

#[test]
fn library_results_and_costs_equal_the_recorded_ones() {
    check_table(include_str!("data/library.jsonl"), 300);
}

#[test]
fn errors_of_operands_and_unusual_comparisons_equal_the_recorded_ones() {
    check_table(include_str!("data/errors.jsonl"), 350);
}

#[test]
fn values_of_every_schema_type_equal_the_recorded_ones() {
    check_table(include_str!("data/values.jsonl"), 750);
}

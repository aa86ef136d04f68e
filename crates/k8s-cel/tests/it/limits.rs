//! Bounds of compilation and evaluation.

use k8s_cel::{DeclType, Environment, Evaluation, Input, Release};
use serde_json::json;

#[test]
fn cost_limit_stops_evaluation() {
    let environment = Environment::for_new_expressions(Release(36));
    let program = environment.compile("[1, 2, 3, 4, 5, 6, 7, 8].all(x, x > 0)").expect("the expression is valid");
    let free = program.evaluate(&Evaluation::new(&[]));
    assert!(free.result.is_ok());
    let limited = program.evaluate(&Evaluation { cost_limit: free.cost - 1, ..Evaluation::new(&[]) });
    let error = limited.result.expect_err("the limit is below the cost");
    assert!(error.is_cost_limit());
    assert_eq!(error.to_string(), "operation cancelled: actual cost limit exceeded");
}

fn environment() -> Environment {
    Environment::for_new_expressions(Release(36))
}

#[track_caller]
fn check_refused(expression: &str, expected: &str) {
    let error = environment().compile(expression).expect_err("the expression is too large");
    let message = error.to_string();
    assert!(message.lines().next().is_some_and(|line| line.ends_with(expected)), "{message:.200}");
}

#[test]
fn nesting_is_limited() {
    const DEEP: &str = "expression recursion limit exceeded: 250";
    let nested = |open: &str, close: &str| format!("{}1{}", open.repeat(8_000), close.repeat(8_000));
    for (open, close) in [("(", ")"), ("[", "]"), ("{1:", "}"), ("true ? 1 : ", ""), ("size(", ")")] {
        check_refused(&nested(open, close), DEEP);
    }
    for link in ["+ 1", ".a", "[0]", ".trim()", "== 1", ".?a", ".map(x, x)"] {
        check_refused(&format!("1{}", link.repeat(8_000)), DEEP);
    }
}

#[test]
fn long_chains_of_logic_and_negation_compile() {
    for expression in [format!("true{}", "&& true".repeat(10_000)), format!("{}true", "!".repeat(90_000))] {
        let program = environment().compile(&expression).expect("the expression is valid");
        assert_eq!(program.evaluate(&Evaluation::new(&[])).result.expect("no error").as_bool(), Some(true));
    }
}

#[test]
fn types_and_copies_that_double_are_limited() {
    check_refused(&format!("[1]{}", ".map(y, {y: y})".repeat(40)), "the type of the map has more than 1000 parts");
    check_refused(&format!("optional.of(1){}", ".optMap(x, x)".repeat(60)), "optMap() is nested too deeply");
}

#[test]
fn only_the_first_hundred_issues_are_reported() {
    let error = environment().compile(&"$".repeat(90_000)).expect_err("the expression is invalid");
    assert_eq!(error.issues().len(), 100);
    assert!(error.to_string().ends_with("more errors were truncated"));
}

/// Work that Kubernetes' costs do not cover is bounded by the cost limit too.
#[test]
fn uncosted_work_is_limited() {
    let input = json!({"list": (0..1000).collect::<Vec<_>>(), "text": "a".repeat(20_000)});
    let environment = environment().variable("list", DeclType::dynamic()).variable("text", DeclType::dynamic());
    let doubled = |start: &str, step: &str, count: usize, end: &str| format!("{start}{}{end}", step.repeat(count));
    for expression in [
        doubled("[text]", ".map(x, x + x)", 40, ""),
        doubled("[list]", ".map(x, x + x)", 40, ""),
        doubled("[[list]", ".map(x, [x, x])", 30, "].all(x, x == x)"),
        doubled("[list]", ".map(x, [x, x])", 30, ".flatten(100)"),
        "lists.range(100000000)".to_owned(),
        "list.map(x, lists.range(100000))".to_owned(),
        r"list.map(x, 'a'.matches('[a-z]{1,1000}' + string(x)))".to_owned(),
        "list.map(x, text).join(text)".to_owned(),
        "text.replace('a', text)".to_owned(),
    ] {
        let program = environment.compile(&expression).expect("the expression is valid");
        let variables = [("list", Input::Json(&input["list"])), ("text", Input::Json(&input["text"]))];
        let evaluation = Evaluation { cost_limit: 50_000, ..Evaluation::new(&variables) };
        let error = program.evaluate(&evaluation).result.expect_err("the budget is exhausted");
        assert!(error.is_cost_limit(), "{expression}: {error}");
    }
}

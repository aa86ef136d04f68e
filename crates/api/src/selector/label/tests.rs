use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::selector::LabelOperator;

#[track_caller]
fn check(text: &str, canonical: &str) {
    let selector = LabelSelector::parse(text).unwrap();
    assert_eq!(selector.to_string(), canonical, "{text}");
    assert_eq!(LabelSelector::parse(canonical).as_ref(), Ok(&selector), "{text}");
}

#[track_caller]
fn check_error(text: &str, error: &Expect) {
    error.assert_eq(&LabelSelector::parse(text).unwrap_err().to_string());
}

#[track_caller]
fn check_match(text: &str, labels: &[(&str, &str)], expected: bool) {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let selector = LabelSelector::parse(text).unwrap();
    assert_eq!(selector.matches(|label| labels.get(label).copied()), expected, "{text} {labels:?}");
}

#[test]
fn label_selector_parses_to_canonical_form() {
    check("", "");
    check("  ", "");
    check("x", "x");
    check("!x", "!x");
    check(" ! x ", "!x");
    check("x=a", "x=a");
    check("x==a", "x==a");
    check("x!=a", "x!=a");
    check("x!= ", "x!=");
    check("x=", "x=");
    check("x= ,y", "x=,y");
    check("x=a,y=b,z=c", "x=a,y=b,z=c");
    check("z,y=b , x", "x,y=b,z");
    check("x in (b,a,b)", "x in (a,b)");
    check("x notin\t(a)", "x notin (a)");
    check("x in ()", "x in ()");
    check("x in (,)", "x in ()");
    check("x in (a,,b)", "x in (,a,b)");
    check("x in (,a)", "x in (,a)");
    check("x in (a,)", "x in (,a)");
    check("x in (in, notin)", "x in (in,notin)");
    check("in in (in)", "in in (in)");
    check("notin=in", "notin=in");
    check("x>1", "x>1");
    check("x<007", "x<007");
    check("example.com/x in (a)", "example.com/x in (a)");
    check("x notin (),y", "x notin (),y");
    check("a=1,a=2", "a=1,a=2");
}

#[test]
fn label_selector_errors_match_kubernetes() {
    check_error(",", &expect!["found ',', expected: !, identifier, or 'end of string'"]);
    check_error("=a", &expect!["found '=', expected: !, identifier, or 'end of string'"]);
    check_error("x=a,", &expect!["found '', expected: identifier after ','"]);
    check_error("x,,y", &expect!["found ',', expected: identifier after ','"]);
    check_error("x=a y", &expect!["found 'y', expected: ',' or 'end of string'"]);
    check_error("!x=a", &expect!["found '=', expected: ',' or 'end of string'"]);
    check_error("!", &expect!["unable to parse requirement: found '', expected: identifier"]);
    check_error("!!x", &expect!["unable to parse requirement: found '!', expected: identifier"]);
    check_error("x=(a)", &expect!["unable to parse requirement: found '(', expected: identifier"]);
    check_error("x===a", &expect!["unable to parse requirement: found '=', expected: identifier"]);
    check_error("x y", &expect!["unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt"]);
    check_error("x(a)", &expect!["unable to parse requirement: found '(', expected: in, notin, =, ==, !=, gt, lt"]);
    check_error("x in a", &expect!["unable to parse requirement: found 'a' expected: '('"]);
    check_error("x in", &expect!["unable to parse requirement: found '' expected: '('"]);
    check_error("x in (", &expect!["unable to parse requirement: found '', expected: ',', ')' or identifier"]);
    check_error("x in (=", &expect!["unable to parse requirement: found '=', expected: ',', ')' or identifier"]);
    check_error("x in (a b", &expect!["unable to parse requirement: found 'b', expected: ',' or ')'"]);
    check_error("x in (a,", &expect!["unable to parse requirement: found '', expected: ',', or identifier"]);
}

#[test]
fn label_selector_rejects_invalid_keys_and_values() {
    check_error(
        "-x=a",
        &expect![[
            r#"unable to parse requirement: <nil>: Invalid value: "-x": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#
        ]],
    );
    check_error(
        "x=a/b",
        &expect![[
            r#"unable to parse requirement: values[0][x]: Invalid value: "a/b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
        ]],
    );
    check_error(
        "x>a",
        &expect![[
            r#"unable to parse requirement: values[0]: Invalid value: "a": for 'Gt', 'Lt' operators, the value must be an integer"#
        ]],
    );
    let many = format!("x in ({})", (0..10_000).map(|value| format!("-{value},")).collect::<String>());
    assert!(LabelSelector::parse(&many).unwrap_err().to_string().len() < 10_000);
    assert!(LabelSelector::parse("x\0").is_err());
    assert!(LabelSelector::parse("\0").is_err());
}

#[test]
fn requirement_rejects_wrong_number_of_values() {
    let values = |count: usize| (0..count).map(|value| value.to_string()).collect::<Vec<_>>();
    for (operator, count, error) in [
        (LabelOperator::In, 0, "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        (
            LabelOperator::Equals,
            2,
            r#"values: Invalid value: ["0","1"]: exact-match compatibility requires one single value"#,
        ),
        (
            LabelOperator::Exists,
            1,
            r#"values: Invalid value: ["0"]: values set must be empty for exists and does not exist"#,
        ),
        (
            LabelOperator::LessThan,
            0,
            "values: Invalid value: []: for 'Gt', 'Lt' operators, exactly one value is required",
        ),
    ] {
        assert_eq!(LabelRequirement::new("x", operator, values(count)).unwrap_err().to_string(), error);
    }
}

#[test]
fn label_selector_matches_labels() {
    check_match("", &[], true);
    check_match("x", &[("x", "")], true);
    check_match("x", &[], false);
    check_match("!x", &[], true);
    check_match("!x", &[("x", "")], false);
    check_match("x=a", &[("x", "a")], true);
    check_match("x=a", &[("x", "b")], false);
    check_match("x=", &[("x", "")], true);
    check_match("x=", &[], false);
    check_match("x!=a", &[], true);
    check_match("x!=a", &[("x", "a")], false);
    check_match("x in (a,b)", &[("x", "b")], true);
    check_match("x in (a,b)", &[("x", "c")], false);
    check_match("x notin (a,b)", &[("x", "c")], true);
    check_match("x notin (a,b)", &[("x", "a")], false);
    check_match("x>1", &[("x", "2")], true);
    check_match("x>1", &[("x", "1")], false);
    check_match("x<2", &[("x", "-3")], true);
    check_match("x<2", &[("x", "two")], false);
    check_match("x<2", &[], false);
    check_match("x=a,y", &[("x", "a"), ("y", "")], true);
    check_match("x=a,y", &[("x", "a")], false);
}

proptest! {
    #[test]
    fn parse_never_panics(text in any::<String>()) {
        let _ = LabelSelector::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn label_selector_round_trips_through_display(text in "([a-c!=,() <>]|in |notin |1){0,16}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let canonical = selector.to_string();
            prop_assert_eq!(LabelSelector::parse(&canonical), Ok(selector));
        }
    }
}

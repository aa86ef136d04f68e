use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(text: &str, canonical: &str) {
    let selector = FieldSelector::parse(text).unwrap();
    assert_eq!(selector.to_string(), canonical, "{text}");
}

#[track_caller]
fn check_error(text: &str, error: &str) {
    assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), error, "{text}");
}

#[test]
fn field_selector_parses_to_canonical_form() {
    check("", "");
    check(",,", "");
    check("=", "");
    check("!=", "");
    check("a=b", "a=b");
    check("a==b", "a=b");
    check("a!=b", "a!=b");
    check("a=", "a=");
    check("=b", "=b");
    check("b=1,a=2", "a=2,b=1");
    check("a=b, c=d", " c=d,a=b");
    check(r"a=\,\=\\", r"a=\,\=\\");
    check(r"a=b\,c,d=e", r"a=b\,c,d=e");
    check(r"a\,b=c", r"a\,b=c");
    check("metadata.name=é", "metadata.name=é");
}

#[test]
fn field_selector_errors_match_kubernetes() {
    check_error("a", "invalid selector: 'a'; can't understand 'a'");
    check_error("metadata.name=x,foo", "invalid selector: 'metadata.name=x,foo'; can't understand 'foo'");
    check_error("a!b", "invalid selector: 'a!b'; can't understand 'a!b'");
    check_error(r"a=\b", r"invalid field selector: invalid escape sequence: \b");
    check_error(r"a=b\", r"invalid field selector: invalid escape sequence: \");
    check_error("a=b=c", "invalid field selector: unescaped character in value: 61");
    check_error("a===b", "invalid field selector: unescaped character in value: 61");
}

#[test]
fn field_selector_matches_fields() {
    let phase = |field: &str| (field == "phase").then_some("a,b");
    for (text, expected) in [
        ("", true),
        (r"phase=a\,b", true),
        (r"phase==a\,b", true),
        (r"phase!=a\,b", false),
        ("phase=a", false),
        ("absent=", true),
        ("absent!=", false),
        ("absent=x", false),
        (r"phase=a\,b,absent=x", false),
    ] {
        assert_eq!(FieldSelector::parse(text).unwrap().matches(phase), expected, "{text}");
    }
}

#[test]
fn requires_exact_match_returns_first_equality() {
    let requires = |text: &str| FieldSelector::parse(text).unwrap().requires_exact_match("n").map(str::to_owned);
    assert_eq!(requires("n=a").as_deref(), Some("a"));
    assert_eq!(requires("m=x,n=a").as_deref(), Some("a"));
    // The first one in text order.
    assert_eq!(requires("n=b,n=a").as_deref(), Some("a"));
    assert_eq!(requires("n=a,n==b").as_deref(), Some("b"));
    assert_eq!(requires("n!=a"), None);
    assert_eq!(requires("n!=a,n=b").as_deref(), Some("b"));
}

proptest! {
    #[test]
    fn parse_never_panics(text in any::<String>()) {
        let _ = FieldSelector::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn field_selector_round_trips_through_display(text in r"([a-b!=,\\]){0,12}") {
        if let Ok(selector) = FieldSelector::parse(&text) {
            let mut terms = selector.terms().to_vec();
            let mut again = FieldSelector::parse(&selector.to_string()).unwrap().terms().to_vec();
            terms.sort();
            again.sort();
            prop_assert_eq!(again, terms);
        }
    }

    #[test]
    fn field_term_value_round_trips(value in any::<String>()) {
        let term = FieldTerm { field: "f".to_owned(), operator: FieldOperator::Equals, value };
        prop_assert_eq!(FieldSelector::parse(&term.to_string()), Ok(FieldSelector { terms: vec![term] }));
    }
}

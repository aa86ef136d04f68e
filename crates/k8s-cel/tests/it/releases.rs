//! Which expressions a server of each release accepts.

use k8s_cel::{DeclType, Environment, Release};
use serde_json::Value as Json;

/// Functions that came with a library of the binary: servers before this release do not know them, whatever version they
/// stay compatible with.
const OF_BINARY: [(&str, u8); 5] =
    [(".first()", 33), (".last()", 33), ("optional.unwrap(", 33), (".unwrapOpt()", 33), ("Selector(", 32)];

fn accepts(environment: Environment, expression: &str) -> bool {
    let authorizer = DeclType::library("kubernetes.authorization.Authorizer");
    environment.variable("authorizer", authorizer).compile(expression).is_ok()
}

/// The table names the oldest compatibility version that accepts an expression; null if none does. A server is compatible
/// with the release before its own.
#[test]
fn new_expressions_use_only_what_the_release_before_knows() {
    let mut failures = Vec::new();
    for line in include_str!("data/releases.jsonl").lines() {
        let row: Json = serde_json::from_str(line).expect("a table is JSON lines");
        let expression = row[0].as_str().expect("a row begins with the expression");
        let since = row[1].as_u64().and_then(|since| u8::try_from(since).ok());
        let binary = OF_BINARY.iter().find(|(part, _)| expression.contains(part)).map_or(0, |(_, release)| *release);
        for release in 31..=37 {
            let new = accepts(Environment::for_new_expressions(Release(release)), expression);
            let stored = accepts(Environment::for_stored_expressions(Release(release)), expression);
            let known = since.is_some_and(|since| since.max(30) < release && binary <= release);
            let readable = since.is_some_and(|since| since <= release && binary <= release);
            if (new, stored) != (known, readable) {
                failures.push(format!("1.{release} {expression}: accepted {new}, read {stored}, since {since:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn selectors_of_authorizer_checks_begin_with_1_32() {
    let expression = "authorizer.group('').resource('pods').fieldSelector('a=b').check('list').allowed()";
    assert!(!accepts(Environment::for_new_expressions(Release(31)), expression));
    assert!(accepts(Environment::for_new_expressions(Release(32)), expression));
}

#[test]
fn bindings_encoders_and_math_are_in_no_release() {
    for expression in ["cel.bind(x, 1, x)", "base64.encode(b'a')", "math.abs(-1)"] {
        assert!(!accepts(Environment::for_stored_expressions(Release(37)), expression), "{expression}");
    }
}

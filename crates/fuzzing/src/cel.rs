//! Expressions of validation rules and policies: compiling, and evaluating within a cost limit.

use std::sync::LazyLock;

use k8s_cel::{DeclType, Environment, Evaluation, Field, Input, ListKind, Program, Release};
use serde_json::{Value as Json, json};

pub(crate) const SEEDS: &[&str] = &[
    "self.replicas <= self.maxReplicas && (!has(self.name) || self.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
    "self.ports.all(p, p.port > 0 && p.port < 65536 && self.ports.exists_one(q, q.name == p.name))",
    "self.items.map(x, x.split('-')).filter(l, l.size() == 2)[0][?1].orValue('none').upperAscii()",
    "self.labels.all(k, v, k.startsWith('app') ? v != '' : true) || self.tags == ['x', 'y']",
    "optional.of(self.?any.?a[0]).optMap(x, dyn(x) == 1.0).hasValue() ? 1u + uint(2) : 18446744073709551615u",
    "quantity('1.5Gi').add(1).isGreaterThan(quantity(self.name)) == (semver('1.2.3') < semver('2.0.0'))",
    "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3') && url('https://a:1/b?c=d').getPort() == '1'",
    "'%s %d %.3f %x %b'.format([[1, {'a': null}], -5, 1e300, b'\\xff', true]).replace('e', '', 2).charAt(3)",
    "timestamp('2024-02-29T23:59:59.9Z') - duration('1h2m3.5s') > timestamp(0) && timestamp(0).getDayOfWeek('+02:00') == 4",
    "lists.range(9).transformMap(i, v, i % 2 == 0, v * v).transformList(k, v, [k, v]).flatten().sortBy(x, -x).distinct()",
    "sets.contains(self.any.a, [2.5]) && self.text.find('lo(.)em').reverse().lastIndexOf('o') in {0: 1, 3: 2}",
];
pub(crate) const DICTIONARY: &[&str] = &[
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
    " in ",
    "'",
    "\"",
    "\\",
    "\n",
    "9223372036854775807",
    "1e308",
    "0x",
    "1u",
    "b'\\xff'",
    "null",
    "self",
    "self.text",
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
    ".optMap(x, ",
    ".sum()",
    ".sort()",
    ".join()",
    ".size()",
    "type(",
    "int(",
    "string(",
    "oldSelf",
    "// ",
    "r'''",
];

/// Compilation of an unoptimised build stays far below; the limit of one evaluation is a hundredth of the API's.
const COST_LIMIT: u64 = 10_000;

static ENVIRONMENTS: LazyLock<[Environment; 4]> =
    LazyLock::new(|| [environment(31), environment(36), environment(36).unchecked(), Environment::language()]);
static OBJECT: LazyLock<Json> = LazyLock::new(|| {
    json!({
        "replicas": 3, "maxReplicas": 5, "text": "lorem ipsum ".repeat(50), "name": "web-1", "items": ["a-b", "c"],
        "tags": ["x", "y"], "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53}], "labels": {"app": "web"},
        "any": {"a": [1, 2.5, null, {"b": "c"}]},
    })
});

fn environment(release: u8) -> Environment {
    let text = || DeclType::string(Some(1_000));
    let port = DeclType::object([Field::new("name", text()), Field::new("port", DeclType::int())]);
    let object = DeclType::object([
        Field::new("replicas", DeclType::int()),
        Field::new("maxReplicas", DeclType::int()),
        Field::new("text", text()),
        Field::new("name", text()),
        Field::new("items", DeclType::list(text(), Some(50), ListKind::Atomic)),
        Field::new("tags", DeclType::list(text(), None, ListKind::Set)),
        Field::new("ports", DeclType::list(port, None, ListKind::Map(vec!["name".into()]))),
        Field::new("labels", DeclType::map(text(), None)),
        Field::new("any", DeclType::dynamic()),
    ]);
    Environment::for_stored_expressions(Release(release)).variable("self", object)
}

/// An expression compiles or gives an error, always the same, with a position inside the text and a cost estimate whose
/// least is not more than its most.
pub fn cel_compile(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let lines = text.split('\n').count();
    for environment in &*ENVIRONMENTS {
        match (environment.compile(&text), environment.compile(&text)) {
            (Ok(first), Ok(second)) => {
                assert_eq!(first.output_type().to_string(), second.output_type().to_string());
                assert_eq!(first.estimated_cost(), second.estimated_cost());
                assert!(first.estimated_cost().min <= first.estimated_cost().max);
            }
            (Err(first), Err(second)) => {
                assert_eq!(first.to_string(), second.to_string());
                for issue in first.issues() {
                    assert!(
                        usize::try_from(issue.position.line).is_ok_and(|line| line <= lines)
                            || issue.position.line == -1
                    );
                }
            }
            _ => panic!("compiles only sometimes"),
        }
    }
}

/// Evaluation ends within the cost limit, with the same result and cost every time.
pub fn cel_evaluate(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for environment in &*ENVIRONMENTS {
        if let Ok(program) = environment.compile(&text) {
            check_evaluation(&program);
        }
    }
}

fn check_evaluation(program: &Program) {
    let inputs = [("self", Input::Json(&OBJECT))];
    let evaluation = Evaluation { cost_limit: COST_LIMIT, ..Evaluation::new(&inputs) };
    let (first, second) = (program.evaluate(&evaluation), program.evaluate(&evaluation));
    assert_eq!(first.cost, second.cost);
    match (first.result, second.result) {
        (Ok(first_value), Ok(second_value)) => {
            assert!(first.cost <= COST_LIMIT);
            assert_eq!(first_value.runtime_type().to_string(), second_value.runtime_type().to_string());
        }
        (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
        _ => panic!("succeeds only sometimes"),
    }
}

//! Variables whose fields are computed at their first use.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_cel::{DeclType, Environment, EvalError, Evaluation, Field, Input, LazyFields, Program, Release, Value};
use serde_json::json;

/// One variable of a policy, and how often it was computed.
struct Variables<'a> {
    program: &'a Program,
    inputs: &'a [(&'a str, Input<'a>)],
    value: OnceLock<Result<Value<'a>, EvalError>>,
    computed: AtomicUsize,
}

impl LazyFields for Variables<'_> {
    fn field(&self, name: &str) -> Option<Result<Value<'_>, EvalError>> {
        let compute = || {
            self.computed.fetch_add(1, Ordering::Relaxed);
            self.program.evaluate(&Evaluation::new(self.inputs)).result
        };
        (name == "names").then(|| self.value.get_or_init(compute).clone())
    }
}

#[track_caller]
fn check(expression: &str, expected: &str, computed: usize) {
    let object = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let inputs = [("object", Input::Json(&object))];
    let environment = Environment::for_new_expressions(Release(36)).variable("object", DeclType::dynamic());
    let program = environment.compile("object.containers.map(c, c.name)").expect("valid");
    let fields = [Field::new("names", DeclType::dynamic()), Field::new("missing", DeclType::dynamic())];
    let environment = environment.variable("variables", DeclType::object(fields));
    let user = environment.compile(expression).expect("valid");
    let (value, counter) = (OnceLock::new(), AtomicUsize::new(0));
    let variables = Variables { program: &program, inputs: &inputs, value, computed: counter };
    let lazy = [("object", Input::Json(&object)), ("variables", Input::Lazy(&variables))];
    let outcome = user.evaluate(&Evaluation::new(&lazy));
    let shown = outcome.result.map_or_else(|error| format!("error: {error}"), |value| value.to_string());
    assert_eq!(shown, expected);
    assert_eq!(variables.computed.load(Ordering::Relaxed), computed);
}

#[test]
fn fields_are_computed_once_and_only_if_used() {
    check("variables.names.size() == 2 && 'a' in variables.names", "true", 1);
    check("object.containers.size() == 2 || variables.names == []", "true", 0);
    check("has(variables.names)", "true", 1);
    check("variables.missing", "error: no such key: missing", 0);
    check("variables.?missing.orValue('none')", "none", 0);
    check("variables == variables", "error: no such overload", 0);
}

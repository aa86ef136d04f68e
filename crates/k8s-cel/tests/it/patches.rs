//! What expressions of mutations construct.

use k8s_cel::{DeclType, Environment, Evaluation, Input, Release};
use serde_json::json;

fn environment() -> Environment {
    Environment::for_stored_expressions(Release(36)).variable("object", DeclType::dynamic()).patch_types()
}

/// The JSON that an expression evaluates to and its type, or the error; then the types that stand at a wrong place.
fn evaluate(expression: &str) -> String {
    let program = match environment().compile(expression) {
        Ok(program) => program,
        Err(error) => return error.to_string(),
    };
    let object = json!({"metadata": {"labels": {"a/b": "c~d"}}, "spec": {"items": [{"name": "x"}]}});
    let inputs = [("object", Input::Json(&object))];
    match program.evaluate(&Evaluation::new(&inputs)).result {
        Err(error) => format!("error: {error}"),
        Ok(value) => {
            let json = value.to_json().map_or_else(|error| format!("error: {error}"), |json| json.to_string());
            format!("{}: {json} {}", program.output_type(), value.misplaced_types().join("; "))
        }
    }
}

#[track_caller]
fn check(expression: &str, expected: &str) {
    assert_eq!(evaluate(expression).trim_end(), expected);
}

#[test]
fn objects_of_any_fields_are_constructed() {
    check("Object{}", "Object: {}");
    check(
        "Object{spec: Object.spec{replicas: 3, items: [Object.spec.items{name: 'x'}]}}",
        r#"Object: {"spec":{"items":[{"name":"x"}],"replicas":3}}"#,
    );
    check("Object{metadata: Object.metadata{labels: {'a': 'b'}}}", r#"Object: {"metadata":{"labels":{"a":"b"}}}"#);
    check("Object{spec: object.spec}", r#"Object: {"spec":{"items":[{"name":"x"}]}}"#);
    check("Object{?spec: optional.none()}", "Object: {}");
    check("Object{data: b'hello'}", r#"Object: {"data":"aGVsbG8="}"#);
    check("true ? Object{a: 1} : Object{}", r#"Object: {"a":1}"#);
    check("Object{spec: Object.spec{a: 1}}.spec.a", "dyn: 1");
    check("Object.spec{a: 1}.a == 1", "bool: true");
}

#[test]
fn types_at_wrong_places_are_found() {
    check(
        "Object{spec: Object.status{}}",
        "Object: {\"spec\":{}} unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path \
         from root Object type",
    );
    check(
        "Object{spec: Object.spec{items: [Object.spec.item{}]}}",
        "Object: {\"spec\":{\"items\":[{}]}} unexpected type name \"Object.spec.item\", expected \"Object.spec.items\", which \
         matches field name path from root Object type",
    );
}

#[test]
fn patches_are_lists_of_operations() {
    check(
        "[JSONPatch{op: 'add', path: '/a', value: Object.a{b: 1}}, JSONPatch{op: 'move', from: '/a', path: '/b'}]",
        r#"list(JSONPatch): [{"op":"add","path":"/a","value":{"b":1}},{"from":"/a","op":"move","path":"/b"}]"#,
    );
    check("jsonpatch.escapeKey('a/b~c')", r#"string: "a~1b~0c""#);
    let unknown = evaluate("[JSONPatch{operation: 'add'}]");
    assert!(unknown.contains("expected type of field 'operation' is '' but provided type is 'string'"), "{unknown}");
    let mistyped = evaluate("[JSONPatch{op: 1}]");
    assert!(mistyped.contains("expected type of field 'op' is 'string' but provided type is 'int'"), "{mistyped}");
}

#[test]
fn types_of_patches_are_unknown_elsewhere() {
    let environment = Environment::for_stored_expressions(Release(36));
    for expression in ["Object{}", "[JSONPatch{op: 'add'}]", "jsonpatch.escapeKey('a')"] {
        let error = environment.compile(expression).expect_err(expression).to_string();
        assert!(error.contains("undeclared reference to"), "{error}");
    }
}

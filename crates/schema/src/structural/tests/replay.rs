//! Recorded results of Kubernetes 1.36 for schemas and objects of our own making.
//!
//! A line of `recorded.jsonl` has a schema, an object, an old object, and what Kubernetes' functions gave for them. Lists
//! of validation errors are sorted, because Kubernetes' order is random.

use api::FieldError;
use api::json::{JsonObject, to_go_json};
use serde_json::{Map, Value, json};

use super::super::StructuralSchema;

const RELEASE: u8 = 36;

#[test]
fn recorded_results_of_kubernetes_are_reproduced() {
    let mut count = 0;
    for (number, line) in include_str!("recorded.jsonl").lines().enumerate() {
        let case: Value = serde_json::from_str(line).unwrap();
        let expected = String::from_utf8(to_go_json(&case["expected"])).unwrap();
        let found = String::from_utf8(to_go_json(&outcome(&case))).unwrap();
        assert_eq!(found, expected, "line {}: {line}", number + 1);
        count += 1;
    }
    assert!(count > 200, "{count} cases");
}

/// What our functions give for a case; empty results are left out.
pub(super) fn outcome(case: &Value) -> Value {
    let mut schema = match StructuralSchema::from_json(&case["schema"]) {
        Ok(schema) => schema,
        Err(_) => return json!({"schemaError": true}),
    };
    let object_meta = crate::built_in_types(RELEASE)
        .for_definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        .expect("the table has ObjectMeta");
    schema.prune_defaults(object_meta);
    let object = case["object"].as_object().expect("objects are objects");
    let mut results = Map::new();

    let mut request = object.clone();
    let request = match schema.decode_request(&mut request, object_meta) {
        Ok(unknown) => with_unknown(request, unknown),
        Err(error) => json!({"error": error.to_string()}),
    };
    results.insert("request".to_owned(), request);
    let mut stored = object.clone();
    let stored = match schema.decode_stored(&mut stored, object_meta) {
        Ok(()) => with_unknown(stored, Vec::new()),
        Err(error) => json!({"error": error.to_string()}),
    };
    results.insert("storage".to_owned(), stored);
    let mut pruned = object.clone();
    let unknown = schema.prune(&mut pruned, true);
    results.insert("pruned".to_owned(), with_unknown(pruned, unknown));
    let mut defaulted = object.clone();
    schema.set_defaults(&mut defaulted);
    results.insert("defaulted".to_owned(), with_unknown(defaulted, Vec::new()));

    let mut add = |name: &str, errors: Vec<FieldError>| {
        let mut texts: Vec<_> = errors.iter().map(|error| format!("{} | {error}", error.kind().reason())).collect();
        texts.sort();
        if !texts.is_empty() {
            results.insert(name.to_owned(), texts.into());
        }
    };
    add("validate", schema.validate(&case["object"], None, RELEASE));
    add("embedded", schema.validate_embedded(object, object_meta, &|_| Vec::new()));
    add("lists", schema.validate_lists(object, None));
    if let Some(old) = case["old"].as_object() {
        add("update", schema.validate(&case["object"], Some(&case["old"]), RELEASE));
        add("updateLists", schema.validate_lists(object, Some(old)));
        add("status", schema.validate_status(object, old, RELEASE));
    }
    results.into()
}

fn with_unknown(object: JsonObject, unknown: Vec<String>) -> Value {
    let mut result = Map::new();
    if !object.is_empty() {
        result.insert("object".to_owned(), object.into());
    }
    if !unknown.is_empty() {
        result.insert("unknown".to_owned(), unknown.into());
    }
    result.into()
}

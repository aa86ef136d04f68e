//! A case: a schema with rules and objects, and what a server says about them, in the form of the recorded table.

#[path = "../it/options.rs"]
mod options;

use std::sync::Arc;

use api::FieldError;
use apiextensions::rules::Rules;
use apiextensions::validation::{validate_definition, validate_definition_update};
use k8s_cel::Release;
use schema::structural::StructuralSchema;
use serde_json::{Map, Value, json};

use options::options;

/// Checks the schema as a definition is written, and evaluates the rules for every pair of objects.
pub(crate) fn run(case: &Value) -> Value {
    let schema = match StructuralSchema::from_json(&case["schema"]) {
        Ok(schema) => Arc::new(schema),
        Err(error) => return json!({"decode": error.to_string()}),
    };
    let rules = Rules::new(Arc::clone(&schema), Release(36));
    let objects = case["cases"].as_array().into_iter().flatten();
    let results: Vec<Value> = objects.map(|pair| evaluate(&rules, pair)).collect();
    json!({"crd": causes(&check(case)), "results": results})
}

/// Validates a definition with the schema, as a new one or as an update of one with the stored schema.
fn check(case: &Value) -> Vec<FieldError> {
    let (new, options) = (definition(&case["schema"]), options(36));
    match case.get("oldSchema") {
        None => validate_definition(&new, &options),
        Some(stored) => validate_definition_update(&definition(stored), &new, &options),
    }
}

fn definition(schema: &Value) -> Map<String, Value> {
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let spec = json!({
        "group": "example.com", "scope": "Namespaced", "names": names, "versions": [version],
        "conversion": {"strategy": "None"},
    });
    let metadata = json!({"name": "things.example.com", "resourceVersion": "1"});
    let status = json!({"storedVersions": ["v1"]});
    [("metadata", metadata), ("spec", spec), ("status", status)]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

fn evaluate(rules: &Rules, pair: &Value) -> Value {
    let empty = Map::new();
    let outcome = rules.evaluate(pair["object"].as_object().unwrap_or(&empty), pair["old"].as_object());
    let mut warnings = outcome.warnings;
    warnings.sort();
    let mut result = json!({"errors": causes(&outcome.errors)});
    if !warnings.is_empty() {
        result["warnings"] = warnings.into();
    }
    result
}

/// The errors in a stable order: Kubernetes visits properties in a random one.
fn causes(errors: &[FieldError]) -> Value {
    let mut causes: Vec<_> = errors.iter().map(|error| (error.field(), error.kind().reason(), error.body())).collect();
    causes.sort();
    causes.into_iter().map(|(field, kind, body)| json!([field, kind, body])).collect()
}

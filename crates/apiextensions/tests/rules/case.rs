//! A case: a schema with rules and objects, and what a server says about them, in the form of the recorded table.

use std::sync::Arc;

use api::FieldError;
use apiextensions::rules::{ExpressionCheck, Rules, StoredExpressions, check_expressions, check_rule_fields};
use k8s_cel::Release;
use schema::structural::StructuralSchema;
use serde_json::{Map, Value, json};

/// The path of the schema in a definition with one version.
const PATH: &str = "spec.validation.openAPIV3Schema";

/// Checks the schema as a definition is written, and evaluates the rules for every pair of objects.
pub(crate) fn run(case: &Value) -> Value {
    let schema = match StructuralSchema::from_json(&case["schema"]) {
        Ok(schema) => Arc::new(schema),
        Err(error) => return json!({"decode": error.to_string()}),
    };
    let rules = Rules::new(Arc::clone(&schema), Release(36));
    let objects = case["cases"].as_array().into_iter().flatten();
    let results: Vec<Value> = objects.map(|pair| evaluate(&rules, pair)).collect();
    json!({"crd": causes(&check(case, &schema)), "results": results})
}

fn check(case: &Value, schema: &StructuralSchema) -> Vec<FieldError> {
    let mut stored = StoredExpressions::default();
    stored.add_schema(&case["oldSchema"]);
    let mut errors = Vec::new();
    check_fields(&case["schema"], PATH, &mut errors);
    let has_schema_errors = |path: &str| {
        let is_below = |field: &str| field.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        errors.iter().any(|error| is_below(error.field()))
    };
    let is_unchanged = case["schema"] == case["oldSchema"];
    let check =
        ExpressionCheck { release: Release(36), stored: &stored, is_unchanged, has_schema_errors: &has_schema_errors };
    let expressions = check_expressions(&case["schema"], schema, PATH, &check);
    errors.into_iter().chain(expressions).collect()
}

fn check_fields(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["additionalProperties", "items"] {
        if schema[name].is_object() {
            check_fields(&schema[name], &format!("{path}.{name}"), errors);
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        check_fields(property, &format!("{path}.properties[{name}]"), errors);
    }
    errors.extend(check_rule_fields(schema, path));
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

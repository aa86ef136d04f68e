//! What differs between releases.

use api::json::JsonObject;
use apiextensions::lifecycle::{set_defaults, set_initial_status};
use apiextensions::validation::{ValidationOptions, validate_definition, validate_definition_update, warnings};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::options;

fn definition(version: &Value) -> JsonObject {
    let mut definition = json!({
        "metadata": {"name": "widgets.ex.io"},
        "spec": {"group": "ex.io", "names": {"plural": "widgets", "kind": "Widget"}, "scope": "Cluster", "versions": [version]},
    });
    let definition = definition.as_object_mut().unwrap();
    set_defaults(definition);
    set_initial_status(definition);
    definition.clone()
}

fn with_schema(spec: &Value) -> JsonObject {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    definition(&json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}))
}

/// Compares a line per release, one for releases that give the same result.
fn check(expected: &Expect, result: impl Fn(&ValidationOptions) -> Vec<String>) {
    let mut lines: Vec<(u8, Vec<String>)> = Vec::new();
    for minor in 31..=37 {
        let result = result(&options(minor));
        if lines.last().is_none_or(|(_, last)| *last != result) {
            lines.push((minor, result));
        }
    }
    let lines: Vec<_> = lines.iter().map(|(minor, result)| format!("1.{minor} {}\n", result.join("; "))).collect();
    expected.assert_eq(&lines.concat());
}

fn errors(definition: &JsonObject, options: &ValidationOptions) -> Vec<String> {
    validate_definition(definition, options).iter().map(ToString::to_string).collect()
}

#[test]
fn texts_change_between_releases() {
    let missing = definition(&json!({"name": "v1", "served": true, "storage": true}));
    check(
        &expect![[r#"
            1.31 spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required
            1.34 spec.versions[0].schema.openAPIV3Schema: Required value
        "#]],
        |options| errors(&missing, options),
    );
    let rule = json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "message": " "}]});
    let rule = with_schema(&rule);
    check(
        &expect![[r#"
            1.31 spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].message: Invalid value: " ": message must be non-empty if specified
            1.34 spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].message: Invalid value: " ": must be non-empty if specified
        "#]],
        |options| errors(&rule, options),
    );
    let mut moved = with_schema(&json!({"type": "object"}));
    moved["status"]["storedVersions"] = json!(["v0", "v1"]);
    check(
        &expect![[r#"
            1.31 status.storedVersions[0]: Invalid value: "v0": must appear in spec.versions
            1.33 status.storedVersions[0]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions
        "#]],
        |options| errors(&moved, options),
    );
}

#[test]
fn documentation_of_metadata_counts_since_1_36() {
    let mut documented = with_schema(&json!({"type": "object"}));
    let metadata = json!({"type": "object", "externalDocs": {"url": "u"}});
    documented["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["metadata"] = metadata;
    check(
        &expect![[r#"
            1.31 
            1.36 spec.validation.openAPIV3Schema.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified
        "#]],
        |options| errors(&documented, options),
    );
}

#[test]
fn unchanged_selectable_fields_may_be_too_many_since_1_35() {
    let properties: serde_json::Map<_, _> = (0..9).map(|at| (format!("f{at}"), json!({"type": "string"}))).collect();
    let mut many = with_schema(&json!({"type": "object", "properties": properties}));
    let paths: Vec<_> = (0..9).map(|at| json!({"jsonPath": format!(".spec.f{at}")})).collect();
    many["spec"]["versions"][0]["selectableFields"] = paths.into();
    check(
        &expect![[r#"
            1.31 spec.selectableFields: Too many: 9: must have at most 8 items
            1.35 
        "#]],
        |options| validate_definition_update(&many, &many, options).iter().map(ToString::to_string).collect(),
    );
    check(
        &expect![[r#"
            1.31 spec.selectableFields: Too many: 9: must have at most 8 items
        "#]],
        |options| errors(&many, options),
    );
}

#[test]
fn warnings_begin_with_1_34() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "format": "weird"},
        "b": {"type": "string", "format": "k8s-short-name"},
        "c": {"type": "string", "format": "date-time"},
        "d": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object", "x-kubernetes-map-type": "atomic"}},
    }});
    let formats = with_schema(&schema);
    check(
        &expect![[r#"
            1.31 
            1.34 unrecognized format "weird"; unrecognized format "k8s-short-name"
            1.35 unrecognized format "weird"
            1.37 unrecognized format "weird"; x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL validation rules
        "#]],
        |options| warnings(None, &formats, options),
    );
    check(&expect![["1.31 \n"]], |options| warnings(Some(&formats), &formats, options));
}

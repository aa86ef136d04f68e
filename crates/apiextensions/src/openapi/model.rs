//! The models of a version: its schema with Kubernetes' own fields.

use schema::openapi::{Dialect, descriptions};
use serde_json::{Map, Value, json};

use super::{META_V1, model_name};
use crate::custom_resource::CustomResourceVersion;
use crate::definition::SchemaJson;

/// Keywords whose value is a schema, a list of schemas or schemas by name.
const JUNCTORS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that are published as they are, unless they are empty.
const PLAIN: [&str; 28] = [
    "type",
    "nullable",
    "description",
    "title",
    "externalDocs",
    "format",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "minProperties",
    "required",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];
/// Schemas nest no deeper than the JSON parser allows; the rest of a deeper one is left out.
const DEPTH_MAX: usize = 128;

pub(super) fn object_model(version: &CustomResourceVersion, is_structural: bool, dialect: Dialect) -> Value {
    let schema = version.version().schema.open_api_v3_schema.as_ref().filter(|_| is_structural);
    let schema = schema.map(SchemaJson::to_value);
    let preserves = version.definition().spec.preserve_unknown_fields;
    let mut model = match schema.as_ref().and_then(Value::as_object) {
        Some(schema) if dialect == Dialect::V3 || !(preserves || is_true(schema, PRESERVE)) => {
            let mut model = published(schema, dialect, 0);
            set_metadata(&mut model, "ObjectMeta", descriptions::METADATA, dialect);
            set_type_properties(&mut model);
            add_embedded(&mut model, dialect, 0);
            model
        }
        Some(_) | None => Map::from_iter([("type".to_owned(), json!("object"))]),
    };
    add_extensions(&mut model, version, &version.names().kind);
    Value::Object(model)
}

pub(super) fn list_model(version: &CustomResourceVersion, dialect: Dialect) -> Value {
    let item = dialect.reference(&model_name(version.group_version_kind()));
    let mut model = Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("required".to_owned(), json!(["items"])),
        ("properties".to_owned(), json!({"items": {"type": "array", "items": item}})),
    ]);
    set_metadata(&mut model, "ListMeta", descriptions::LIST_METADATA, dialect);
    set_type_properties(&mut model);
    add_extensions(&mut model, version, version.list_kind());
    Value::Object(model)
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn add_extensions(model: &mut Map<String, Value>, version: &CustomResourceVersion, kind: &str) {
    let group_version = version.group_version();
    let kinds = json!([{"group": group_version.group, "version": group_version.version, "kind": kind}]);
    model.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
    let fields = version.version().selectable_fields.iter();
    let fields: Vec<Value> = fields
        .map(|field| json!({"fieldPath": field.json_path.strip_prefix('.').unwrap_or(&field.json_path)}))
        .collect();
    if !fields.is_empty() {
        model.insert("x-kubernetes-selectable-fields".to_owned(), fields.into());
    }
}

/// A schema as it is published: known keywords that are not empty; for v2 without what its clients do not understand.
fn published(schema: &Map<String, Value>, dialect: Dialect, depth: usize) -> Map<String, Value> {
    let mut model = Map::new();
    if depth > DEPTH_MAX {
        return model;
    }
    for name in PLAIN {
        model.extend(schema.get(name).filter(|value| !is_empty(value)).map(|value| (name.to_owned(), value.clone())));
    }
    let inner = |value: &Value| match value {
        Value::Object(schema) => Value::Object(published(schema, dialect, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => value.clone(),
    };
    for name in ["items", "additionalProperties", "not"] {
        model.extend(schema.get(name).filter(|value| !value.is_null()).map(|value| (name.to_owned(), inner(value))));
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty()) {
        let properties: Map<String, Value> =
            properties.iter().map(|(name, value)| (name.clone(), inner(value))).collect();
        model.insert("properties".to_owned(), properties.into());
    }
    for name in JUNCTORS {
        if let Some(schemas) = schema.get(name).and_then(Value::as_array).filter(|schemas| !schemas.is_empty()) {
            model.insert(name.to_owned(), schemas.iter().map(inner).collect());
        }
    }
    match dialect {
        Dialect::V3 => {
            for name in ["default", "example"] {
                model.extend(
                    schema.get(name).filter(|value| !value.is_null()).map(|value| (name.to_owned(), value.clone())),
                );
            }
            unfold_int_or_string(&mut model);
        }
        Dialect::V2 => {
            model.extend(
                schema
                    .get("example")
                    .filter(|value| !value.is_null())
                    .map(|value| ("example".to_owned(), value.clone())),
            );
            simplify(&mut model, schema);
        }
    }
    model
}

fn unfold_int_or_string(model: &mut Map<String, Value>) {
    let alternatives = json!([{"type": "integer"}, {"type": "string"}]);
    if !is_true(model, "x-kubernetes-int-or-string") {
        return;
    }
    let names_both = |any_of: Option<&Value>| {
        let types = any_of.and_then(Value::as_array).map(|types| types.iter().map(|schema| &schema["type"]));
        types.is_some_and(|types| types.eq([&json!("integer"), &json!("string")]))
    };
    if names_both(model.get("anyOf")) || names_both(model.get("allOf").and_then(|all_of| all_of[0].get("anyOf"))) {
        return;
    }
    if model.contains_key("anyOf") {
        let all_of = model.entry("allOf").or_insert_with(|| json!([]));
        if let Some(all_of) = all_of.as_array_mut() {
            all_of.insert(0, json!({ "anyOf": alternatives }));
        }
    } else {
        model.insert("anyOf".to_owned(), alternatives);
    }
}

/// Removes what clients of v2 do not understand.
fn simplify(model: &mut Map<String, Value>, schema: &Map<String, Value>) {
    for name in JUNCTORS.iter().chain(&["not"]) {
        model.remove(*name);
    }
    let preserves = is_true(model, PRESERVE);
    let is_nullable = model.remove("nullable").is_some();
    if is_nullable || preserves {
        model.remove("items");
        model.remove("properties");
    }
    let is_type = |model: &Map<String, Value>, name: &str| model.get("type").is_some_and(|found| found == name);
    let is_array_of_anything = is_type(model, "array") && !model.contains_key("items");
    if is_nullable || is_array_of_anything || preserves && is_type(model, "object") {
        model.remove("type");
    }
    let is_nullable_property = |name: &Value| {
        let property = name.as_str().and_then(|name| schema.get("properties")?.get(name)?.as_object());
        property.is_some_and(|property| is_true(property, "nullable"))
    };
    let has_properties = model.contains_key("properties");
    if let Some(required) = model.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !(has_properties && is_nullable_property(name)));
        let values = schema.get("additionalProperties").and_then(Value::as_object);
        if required.is_empty() || values.is_some_and(|values| is_true(values, "nullable")) {
            model.remove("required");
        }
    }
}

/// Adds type and metadata to embedded resources, at any depth but below junctors.
fn add_embedded(model: &mut Map<String, Value>, dialect: Dialect, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    if let Some(properties) = model.get_mut("properties").and_then(Value::as_object_mut) {
        properties
            .values_mut()
            .filter_map(Value::as_object_mut)
            .for_each(|inner| add_embedded(inner, dialect, depth + 1));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = model.get_mut(name).and_then(Value::as_object_mut) {
            add_embedded(inner, dialect, depth + 1);
        }
    }
    if !is_true(model, "x-kubernetes-embedded-resource") || dialect == Dialect::V2 && is_true(model, PRESERVE) {
        return;
    }
    set_type_properties(model);
    set_metadata(model, "ObjectMeta", descriptions::METADATA, dialect);
    let required = model.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|found| found == name) {
                required.push(name.into());
            }
        }
    }
}

fn set_type_properties(model: &mut Map<String, Value>) {
    set_property(model, "apiVersion", json!({"type": "string", "description": descriptions::API_VERSION}));
    set_property(model, "kind", json!({"type": "string", "description": descriptions::KIND}));
}

/// Sets the property `metadata` to a reference.
fn set_metadata(model: &mut Map<String, Value>, definition: &str, description: &str, dialect: Dialect) {
    let reference = dialect.reference(&format!("{META_V1}.{definition}"));
    let mut schema = match dialect {
        Dialect::V2 => reference,
        // Siblings of a reference mean nothing in OpenAPI 3.0, so the reference goes one level down.
        Dialect::V3 => json!({ "allOf": [reference] }),
    };
    schema["description"] = description.into();
    set_property(model, "metadata", schema);
}

fn set_property(model: &mut Map<String, Value>, name: &str, schema: Value) {
    let properties = model.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(name.to_owned(), schema);
    }
}

fn is_true(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
    }
}

//! Type check of `ObjectMeta`, with the error messages of Go's decoder.
//!
//! The schema checks kind-specific fields. Metadata is the same for every kind, and the rest of the crate relies on its
//! types.

use serde_json::{Map, Value};

enum MetadataType {
    Str,
    /// A string of a type with a name in Go.
    NamedStr(&'static str),
    Integer,
    Bool,
    Time,
    /// An object with string values.
    StringMap,
    StringList,
    /// A list of objects, with the name of Go's struct and their fields.
    ObjectList(&'static str, &'static [(&'static str, MetadataType)]),
    /// An object with any content.
    AnyObject,
}

const OBJECT_META: &[(&str, MetadataType)] = &[
    ("annotations", MetadataType::StringMap),
    ("creationTimestamp", MetadataType::Time),
    ("deletionGracePeriodSeconds", MetadataType::Integer),
    ("deletionTimestamp", MetadataType::Time),
    ("finalizers", MetadataType::StringList),
    ("generateName", MetadataType::Str),
    ("generation", MetadataType::Integer),
    ("labels", MetadataType::StringMap),
    ("managedFields", MetadataType::ObjectList("ManagedFieldsEntry", MANAGED_FIELDS)),
    ("name", MetadataType::Str),
    ("namespace", MetadataType::Str),
    ("ownerReferences", MetadataType::ObjectList("OwnerReference", OWNER_REFERENCE)),
    ("resourceVersion", MetadataType::Str),
    ("selfLink", MetadataType::Str),
    ("uid", MetadataType::NamedStr("types.UID")),
];

const OWNER_REFERENCE: &[(&str, MetadataType)] = &[
    ("apiVersion", MetadataType::Str),
    ("blockOwnerDeletion", MetadataType::Bool),
    ("controller", MetadataType::Bool),
    ("kind", MetadataType::Str),
    ("name", MetadataType::Str),
    ("uid", MetadataType::NamedStr("types.UID")),
];

const MANAGED_FIELDS: &[(&str, MetadataType)] = &[
    ("apiVersion", MetadataType::Str),
    ("fieldsType", MetadataType::Str),
    ("fieldsV1", MetadataType::AnyObject),
    ("manager", MetadataType::Str),
    ("operation", MetadataType::NamedStr("v1.ManagedFieldsOperationType")),
    ("subresource", MetadataType::Str),
    ("time", MetadataType::Time),
];

/// Rejects metadata fields of wrong types and drops null ones.
pub(super) fn check_metadata(object: &mut Map<String, Value>, kind: &str) -> Result<(), String> {
    match object.get_mut("metadata") {
        None => Ok(()),
        Some(Value::Null) => {
            object.remove("metadata");
            Ok(())
        }
        Some(Value::Object(metadata)) => check_fields(metadata, OBJECT_META, "ObjectMeta", "metadata"),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_))) => {
            Err(type_mismatch_error(other, &format!("{kind}.metadata"), "v1.ObjectMeta"))
        }
    }
}

/// `struct_name` is that of Go's struct with the fields, `path` leads to it from the object.
fn check_fields(
    object: &mut Map<String, Value>,
    types: &[(&str, MetadataType)],
    struct_name: &str,
    path: &str,
) -> Result<(), String> {
    for (name, expected) in types {
        match object.get_mut(*name) {
            None => {}
            Some(Value::Null) => {
                object.remove(*name);
            }
            Some(value) => check_value(value, expected, struct_name, &format!("{path}.{name}"))?,
        }
    }
    Ok(())
}

fn check_value(value: &mut Value, expected: &MetadataType, struct_name: &str, path: &str) -> Result<(), String> {
    let field = format!("{struct_name}.{path}");
    match (expected, &mut *value) {
        (MetadataType::Str | MetadataType::NamedStr(_), Value::String(_))
        | (MetadataType::Bool, Value::Bool(_))
        | (MetadataType::AnyObject, Value::Object(_)) => Ok(()),
        (MetadataType::Integer, Value::Number(number)) if number.is_i64() => Ok(()),
        // `-0`, which is an integer for Go.
        (MetadataType::Integer, Value::Number(number)) if number.as_f64() == Some(0.0) => {
            *value = 0.into();
            Ok(())
        }
        (MetadataType::Integer, Value::Number(number)) => {
            Err(format!("json: cannot unmarshal number {number} into Go struct field {field} of type int64"))
        }
        (MetadataType::Time, Value::String(text)) => {
            *text = schema::canonical_time(text)?;
            Ok(())
        }
        (MetadataType::StringMap, Value::Object(map)) => expect_strings(map.values_mut(), &field),
        (MetadataType::StringList, Value::Array(items)) => expect_strings(items.iter_mut(), &field),
        (MetadataType::ObjectList(name, types), Value::Array(items)) => check_items(items, types, name, path, &field),
        (MetadataType::Str | MetadataType::Time, _) => Err(type_mismatch_error(value, &field, "string")),
        (MetadataType::NamedStr(name), _) => Err(type_mismatch_error(value, &field, name)),
        (MetadataType::Integer, _) => Err(type_mismatch_error(value, &field, "int64")),
        (MetadataType::Bool, _) => Err(type_mismatch_error(value, &field, "bool")),
        (MetadataType::StringMap, _) => Err(type_mismatch_error(value, &field, "map[string]string")),
        (MetadataType::StringList, _) => Err(type_mismatch_error(value, &field, "[]string")),
        (MetadataType::ObjectList(name, _), _) => Err(type_mismatch_error(value, &field, &format!("[]v1.{name}"))),
        (MetadataType::AnyObject, _) => Err(type_mismatch_error(value, &field, "v1.FieldsV1")),
    }
}

fn check_items(
    items: &mut [Value],
    types: &[(&str, MetadataType)],
    struct_name: &str,
    path: &str,
    field: &str,
) -> Result<(), String> {
    for item in items {
        match item {
            Value::Object(item) => check_fields(item, types, struct_name, path)?,
            Value::Null => *item = Value::Object(Map::new()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(type_mismatch_error(item, field, &format!("v1.{struct_name}")));
            }
        }
    }
    Ok(())
}

/// Null in a list or map of texts is the empty text, as in Go.
fn expect_strings<'a>(values: impl Iterator<Item = &'a mut Value>, field: &str) -> Result<(), String> {
    for value in values {
        match value {
            Value::String(_) => {}
            Value::Null => *value = "".into(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return Err(type_mismatch_error(value, field, "string"));
            }
        }
    }
    Ok(())
}

fn type_mismatch_error(value: &Value, field: &str, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field {field} of type {expected}", go_json_type_name(value))
}

/// Name of a JSON type in Go's decoder errors.
pub fn go_json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

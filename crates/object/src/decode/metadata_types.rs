//! Type check of `ObjectMeta`, with the error messages of Go's decoder.
//!
//! The schema checks kind-specific fields. Metadata is the same for every kind, and the rest of the crate relies on its
//! types.

use api::time::Time;
use serde_json::{Map, Value};

enum MetadataType {
    Str,
    Integer,
    Bool,
    Time,
    /// An object with string values.
    StringMap,
    StringList,
    /// A list of objects, with Go's type name and their fields.
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
    ("managedFields", MetadataType::ObjectList("v1.ManagedFieldsEntry", MANAGED_FIELDS)),
    ("name", MetadataType::Str),
    ("namespace", MetadataType::Str),
    ("ownerReferences", MetadataType::ObjectList("v1.OwnerReference", OWNER_REFERENCE)),
    ("resourceVersion", MetadataType::Str),
    ("selfLink", MetadataType::Str),
    ("uid", MetadataType::Str),
];

const OWNER_REFERENCE: &[(&str, MetadataType)] = &[
    ("apiVersion", MetadataType::Str),
    ("blockOwnerDeletion", MetadataType::Bool),
    ("controller", MetadataType::Bool),
    ("kind", MetadataType::Str),
    ("name", MetadataType::Str),
    ("uid", MetadataType::Str),
];

const MANAGED_FIELDS: &[(&str, MetadataType)] = &[
    ("apiVersion", MetadataType::Str),
    ("fieldsType", MetadataType::Str),
    ("fieldsV1", MetadataType::AnyObject),
    ("manager", MetadataType::Str),
    ("operation", MetadataType::Str),
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
        Some(Value::Object(metadata)) => check_fields(metadata, OBJECT_META, "ObjectMeta.metadata"),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_))) => {
            Err(type_mismatch_error(other, &format!("{kind}.metadata"), "v1.ObjectMeta"))
        }
    }
}

fn check_fields(object: &mut Map<String, Value>, types: &[(&str, MetadataType)], path: &str) -> Result<(), String> {
    for (name, expected) in types {
        match object.get_mut(*name) {
            None => {}
            Some(Value::Null) => {
                object.remove(*name);
            }
            Some(value) => check_value(value, expected, &format!("{path}.{name}"))?,
        }
    }
    Ok(())
}

fn check_value(value: &mut Value, expected: &MetadataType, path: &str) -> Result<(), String> {
    match (expected, &mut *value) {
        (MetadataType::Str, Value::String(_))
        | (MetadataType::Bool, Value::Bool(_))
        | (MetadataType::AnyObject, Value::Object(_)) => Ok(()),
        (MetadataType::Integer, Value::Number(number)) if number.is_i64() => Ok(()),
        (MetadataType::Integer, Value::Number(number)) => {
            Err(format!("json: cannot unmarshal number {number} into Go struct field {path} of type int64"))
        }
        (MetadataType::Time, Value::String(text)) if text.parse::<Time>().is_ok() => Ok(()),
        (MetadataType::Time, Value::String(text)) => {
            Err(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\""))
        }
        (MetadataType::StringMap, Value::Object(map)) => {
            map.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
            expect_strings(map.values(), path)
        }
        (MetadataType::StringList, Value::Array(items)) => expect_strings(items.iter(), path),
        (MetadataType::ObjectList(name, types), Value::Array(items)) => {
            for item in items {
                match item {
                    Value::Object(item) => check_fields(item, types, path)?,
                    Value::Null => *item = Value::Object(Map::new()),
                    Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                        return Err(type_mismatch_error(item, path, name));
                    }
                }
            }
            Ok(())
        }
        (MetadataType::Str | MetadataType::Time, _) => Err(type_mismatch_error(value, path, "string")),
        (MetadataType::Integer, _) => Err(type_mismatch_error(value, path, "int64")),
        (MetadataType::Bool, _) => Err(type_mismatch_error(value, path, "bool")),
        (MetadataType::StringMap, _) => Err(type_mismatch_error(value, path, "map[string]string")),
        (MetadataType::StringList, _) => Err(type_mismatch_error(value, path, "[]string")),
        (MetadataType::ObjectList(name, _), _) => Err(type_mismatch_error(value, path, &format!("[]{name}"))),
        (MetadataType::AnyObject, _) => Err(type_mismatch_error(value, path, "v1.FieldsV1")),
    }
}

fn expect_strings<'a>(mut values: impl Iterator<Item = &'a Value>, path: &str) -> Result<(), String> {
    values.find(|value| !value.is_string()).map_or(Ok(()), |wrong| Err(type_mismatch_error(wrong, path, "string")))
}

fn type_mismatch_error(value: &Value, path: &str, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field {path} of type {expected}", go_json_type_name(value))
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

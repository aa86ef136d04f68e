//! The types of `ObjectMeta`, checked in the words of Go's decoder.
//!
//! Kind-specific fields are the schema's business; metadata is the same for every kind, and all else here relies on it.

use api::time::Time;
use serde_json::{Map, Value};

enum Type {
    Text,
    Integer,
    Bool,
    Time,
    /// A map of strings.
    Texts,
    TextList,
    /// A list of objects, with Go's name for them.
    ObjectList(&'static str, &'static [(&'static str, Type)]),
    /// An object without a schema.
    Free,
}

const OBJECT_META: &[(&str, Type)] = &[
    ("annotations", Type::Texts),
    ("creationTimestamp", Type::Time),
    ("deletionGracePeriodSeconds", Type::Integer),
    ("deletionTimestamp", Type::Time),
    ("finalizers", Type::TextList),
    ("generateName", Type::Text),
    ("generation", Type::Integer),
    ("labels", Type::Texts),
    ("managedFields", Type::ObjectList("v1.ManagedFieldsEntry", MANAGED_FIELDS)),
    ("name", Type::Text),
    ("namespace", Type::Text),
    ("ownerReferences", Type::ObjectList("v1.OwnerReference", OWNER_REFERENCE)),
    ("resourceVersion", Type::Text),
    ("selfLink", Type::Text),
    ("uid", Type::Text),
];

const OWNER_REFERENCE: &[(&str, Type)] = &[
    ("apiVersion", Type::Text),
    ("blockOwnerDeletion", Type::Bool),
    ("controller", Type::Bool),
    ("kind", Type::Text),
    ("name", Type::Text),
    ("uid", Type::Text),
];

const MANAGED_FIELDS: &[(&str, Type)] = &[
    ("apiVersion", Type::Text),
    ("fieldsType", Type::Text),
    ("fieldsV1", Type::Free),
    ("manager", Type::Text),
    ("operation", Type::Text),
    ("subresource", Type::Text),
    ("time", Type::Time),
];

/// Refuses metadata of wrong types and drops its nulls.
pub(super) fn check(object: &mut Map<String, Value>) -> Result<(), String> {
    match object.get_mut("metadata") {
        None => Ok(()),
        Some(Value::Null) => {
            object.remove("metadata");
            Ok(())
        }
        Some(Value::Object(metadata)) => fields(metadata, OBJECT_META, "ObjectMeta.metadata"),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_))) => {
            Err(mismatch(other, ".metadata", "v1.ObjectMeta"))
        }
    }
}

fn fields(object: &mut Map<String, Value>, types: &[(&str, Type)], path: &str) -> Result<(), String> {
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

fn check_value(value: &mut Value, expected: &Type, path: &str) -> Result<(), String> {
    match (expected, &mut *value) {
        (Type::Text, Value::String(_)) | (Type::Bool, Value::Bool(_)) | (Type::Free, Value::Object(_)) => Ok(()),
        (Type::Integer, Value::Number(number)) if number.is_i64() => Ok(()),
        (Type::Integer, Value::Number(number)) => {
            Err(format!("json: cannot unmarshal number {number} into Go struct field {path} of type int64"))
        }
        (Type::Time, Value::String(text)) if text.parse::<Time>().is_ok() => Ok(()),
        (Type::Time, Value::String(text)) => Err(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\"")),
        (Type::Texts, Value::Object(map)) => {
            map.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
            expect_texts(map.values(), path)
        }
        (Type::TextList, Value::Array(items)) => expect_texts(items.iter(), path),
        (Type::ObjectList(name, types), Value::Array(items)) => {
            for item in items {
                match item {
                    Value::Object(item) => fields(item, types, path)?,
                    Value::Null => *item = Value::Object(Map::new()),
                    Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                        return Err(mismatch(item, path, name));
                    }
                }
            }
            Ok(())
        }
        (Type::Text | Type::Time, _) => Err(mismatch(value, path, "string")),
        (Type::Integer, _) => Err(mismatch(value, path, "int64")),
        (Type::Bool, _) => Err(mismatch(value, path, "bool")),
        (Type::Texts, _) => Err(mismatch(value, path, "map[string]string")),
        (Type::TextList, _) => Err(mismatch(value, path, "[]string")),
        (Type::ObjectList(name, _), _) => Err(mismatch(value, path, &format!("[]{name}"))),
        (Type::Free, _) => Err(mismatch(value, path, "v1.FieldsV1")),
    }
}

fn expect_texts<'a>(mut values: impl Iterator<Item = &'a Value>, path: &str) -> Result<(), String> {
    values.find(|value| !value.is_string()).map_or(Ok(()), |wrong| Err(mismatch(wrong, path, "string")))
}

fn mismatch(value: &Value, path: &str, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field {path} of type {expected}", go_name(value))
}

/// What Go's decoder calls a value.
pub(crate) fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

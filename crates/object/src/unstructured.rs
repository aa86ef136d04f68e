//! Accessors for objects held as JSON.
//!
//! A value that is missing, null or of another type counts as absent.

use api::json::JsonObject;
use serde_json::{Map, Value};

/// The value at a path of field names.
pub fn get<'a>(object: &'a JsonObject, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let start = object.get(*first)?;
    rest.iter().try_fold(start, |value, name| value.as_object()?.get(*name))
}

/// The string at a path; empty when absent.
pub fn text<'a>(object: &'a JsonObject, path: &[&str]) -> &'a str {
    get(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a path.
pub fn integer(object: &JsonObject, path: &[&str]) -> Option<i64> {
    get(object, path)?.as_i64()
}

/// The bool at a path; false when absent.
pub fn flag(object: &JsonObject, path: &[&str]) -> bool {
    get(object, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The list at a path; empty when absent.
pub fn list<'a>(object: &'a JsonObject, path: &[&str]) -> &'a [Value] {
    get(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The objects of the list at a path; items of other types are skipped.
pub fn objects<'a>(object: &'a JsonObject, path: &[&str]) -> impl Iterator<Item = &'a JsonObject> + Clone {
    list(object, path).iter().filter_map(Value::as_object)
}

/// The strings of the list at a path; items of other types are skipped.
pub fn texts<'a>(object: &'a JsonObject, path: &[&str]) -> impl Iterator<Item = &'a str> + Clone {
    list(object, path).iter().filter_map(Value::as_str)
}

/// The object at a path.
pub fn nested_object<'a>(object: &'a JsonObject, path: &[&str]) -> Option<&'a JsonObject> {
    get(object, path)?.as_object()
}

/// The object in a field, created if absent. A value of another type is replaced.
pub fn nested_object_mut<'a>(object: &'a mut JsonObject, name: &str) -> &'a mut JsonObject {
    let value = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("the value was just set to an object")
}

/// `metadata` of an object, created if absent.
pub fn metadata_mut(object: &mut JsonObject) -> &mut JsonObject {
    nested_object_mut(object, "metadata")
}

/// String field of `metadata`; empty when absent.
pub fn metadata_string<'a>(object: &'a JsonObject, name: &str) -> &'a str {
    text(object, &["metadata", name])
}

/// Sets a field; removes it for `None`.
pub fn set_or_remove(object: &mut JsonObject, name: &str, value: Option<Value>) {
    match value {
        Some(value) => object.insert(name.to_owned(), value),
        None => object.remove(name),
    };
}

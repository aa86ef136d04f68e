//! Fields of JSON objects, read as Go reads them: null and absent are the same, and wrong types count as absent.

use std::sync::LazyLock;

use api::json::JsonObject;
use serde_json::Value;

static EMPTY: LazyLock<JsonObject> = LazyLock::new(JsonObject::new);

/// A string; absent is empty.
pub(crate) fn text<'a>(object: &'a JsonObject, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn flag(object: &JsonObject, field: &str) -> bool {
    object.get(field).and_then(Value::as_bool) == Some(true)
}

pub(crate) fn list<'a>(object: &'a JsonObject, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The strings of a list.
pub(crate) fn texts<'a>(object: &'a JsonObject, field: &str) -> impl Iterator<Item = &'a str> {
    list(object, field).iter().map(|item| item.as_str().unwrap_or_default())
}

pub(crate) fn object<'a>(object: &'a JsonObject, field: &str) -> Option<&'a JsonObject> {
    object.get(field).and_then(Value::as_object)
}

/// An object; absent is empty.
pub(crate) fn object_or_empty<'a>(from: &'a JsonObject, field: &str) -> &'a JsonObject {
    object(from, field).unwrap_or(&EMPTY)
}

/// The objects of a list; null is empty.
pub(crate) fn objects<'a>(object: &'a JsonObject, field: &str) -> impl Iterator<Item = &'a JsonObject> {
    list(object, field).iter().map(|item| item.as_object().unwrap_or(&EMPTY))
}

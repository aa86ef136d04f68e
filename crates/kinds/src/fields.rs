//! Fields of unstructured objects: how rules of several kinds read, complete and check them.

use api::json::JsonObject;
use object::unstructured::set_or_remove;
use serde_json::{Map, Value};

/// The items of a list; none if the list is absent.
pub(crate) fn list_items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn string_field<'a>(object: &'a JsonObject, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Sets an absent field.
pub(crate) fn set_if_absent(object: &mut JsonObject, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets a field that is absent or empty, which Go cannot tell apart.
pub(crate) fn set_if_empty(object: &mut JsonObject, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(is_empty_value) {
        object.insert(name.to_owned(), value.into());
    }
}

/// Whether a value is the empty value of its type.
pub(crate) fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The object in a field, created if absent; `None` if the field has another type.
pub(crate) fn object_field_mut<'a>(object: &'a mut JsonObject, name: &str) -> Option<&'a mut JsonObject> {
    set_if_absent(object, name, Map::new());
    object.get_mut(name)?.as_object_mut()
}

/// The objects of the list in a field.
pub(crate) fn objects_mut<'a>(object: &'a mut JsonObject, name: &str) -> impl Iterator<Item = &'a mut JsonObject> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Removes an empty list from a part of an object: a kube-apiserver loses it in storage, where it is protobuf.
pub(crate) fn drop_empty_list(object: &mut JsonObject, part: &str, name: &str) {
    if let Some(part) = object.get_mut(part).and_then(Value::as_object_mut)
        && part.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty)
    {
        part.remove(name);
    }
}

/// Renames a field.
pub(crate) fn rename_field(object: &mut JsonObject, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

/// Restores a field of the metadata from the stored object.
pub(crate) fn restore_metadata_field(old: &JsonObject, new: &mut JsonObject, field: &str) {
    let kept = old.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    set_or_remove(metadata, field, kept);
}

//! Common columns, and helpers that compute cells.

use api::json::JsonObject;
use api::time::{MicroTime, Time};
use jiff::Timestamp;
use serde_json::Value;

use super::{Column, human_duration};
use crate::label_selector;
use crate::unstructured::{self, metadata_string, objects};

/// Column `Name`.
pub const NAME: Column = Column {
    format: "name",
    ..string_column("Name", "The name of the object.", |object, _| metadata_string(object, "name").into())
};
/// Column `Age`: time since creation.
pub const AGE: Column = string_column("Age", "How long ago it was created.", age_cell);
/// A column of strings.
pub const fn string_column(
    name: &'static str,
    description: &'static str,
    cell: fn(&JsonObject, Time) -> Value,
) -> Column {
    Column { name, cell_type: "string", format: "", description, priority: 0, cell }
}

/// A column of strings for wide output.
pub const fn wide_column(
    name: &'static str,
    description: &'static str,
    cell: fn(&JsonObject, Time) -> Value,
) -> Column {
    Column { priority: 1, ..string_column(name, description, cell) }
}

/// A column of integers.
pub const fn integer_column(
    name: &'static str,
    description: &'static str,
    cell: fn(&JsonObject, Time) -> Value,
) -> Column {
    Column { cell_type: "integer", ..string_column(name, description, cell) }
}

/// A column of bools.
pub const fn boolean_column(
    name: &'static str,
    description: &'static str,
    cell: fn(&JsonObject, Time) -> Value,
) -> Column {
    Column { cell_type: "boolean", ..string_column(name, description, cell) }
}

fn age_cell(object: &JsonObject, now: Time) -> Value {
    time_since(metadata_string(object, "creationTimestamp"), now).into()
}

/// Creation timestamp; Go's zero time if absent.
pub(super) fn created_at_cell(object: &JsonObject, _: Time) -> Value {
    match metadata_string(object, "creationTimestamp") {
        "" => "0001-01-01T00:00:00Z".into(),
        time => time.into(),
    }
}

/// Time since an RFC 3339 timestamp in short form; `<unknown>` if it does not parse.
pub fn time_since(time: &str, now: Time) -> String {
    parse_instant(time)
        .map_or_else(|| "<unknown>".to_owned(), |then| human_duration(now.timestamp().duration_since(then)))
}

/// Parses an RFC 3339 timestamp with seconds or microseconds.
pub fn parse_instant(time: &str) -> Option<Timestamp> {
    time.parse::<MicroTime>().ok().map(MicroTime::timestamp)
}

/// String at a path; empty if absent.
pub fn string_cell(object: &JsonObject, path: &[&str]) -> Value {
    unstructured::text(object, path).into()
}

/// String at a path; a placeholder if absent or empty.
pub fn string_cell_or(object: &JsonObject, path: &[&str], placeholder: &str) -> Value {
    or_placeholder(unstructured::text(object, path).to_owned(), placeholder)
}

/// The text; a placeholder if it is empty.
pub fn or_placeholder(text: String, placeholder: &str) -> Value {
    if text.is_empty() { placeholder.into() } else { text.into() }
}

/// Integer at a path; 0 if absent.
pub fn integer_cell(object: &JsonObject, path: &[&str]) -> Value {
    unstructured::integer(object, path).unwrap_or_default().into()
}

/// Number of list items or object fields at a path; 0 for anything else.
pub fn count_at(object: &JsonObject, path: &[&str]) -> usize {
    match unstructured::get(object, path) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => 0,
    }
}

/// The condition of a type in `status.conditions`.
pub fn find_condition<'a>(object: &'a JsonObject, kind: &str) -> Option<&'a JsonObject> {
    objects(object, &["status", "conditions"]).find(|condition| unstructured::text(condition, &["type"]) == kind)
}

/// True if the condition exists with status `True`.
pub fn is_condition_true(object: &JsonObject, kind: &str) -> bool {
    find_condition(object, kind).is_some_and(|condition| unstructured::text(condition, &["status"]) == "True")
}

/// A map of labels as `a=b,c=d`, or `<none>`.
pub fn labels_cell(object: &JsonObject, path: &[&str]) -> Value {
    or_placeholder(
        unstructured::nested_object(object, path).map(label_selector::labels_to_string).unwrap_or_default(),
        "<none>",
    )
}

/// Label selector as a string; empty if it is absent or selects everything, `<error>` for an unknown operator.
pub fn selector_text(object: &JsonObject, path: &[&str]) -> String {
    let selector = unstructured::nested_object(object, path).map(label_selector::selector_to_string);
    selector.unwrap_or(Some(String::new())).unwrap_or_else(|| "<error>".to_owned())
}

/// The first three items and the number of others, such as `a,b,c + 2 more...`; a placeholder for none.
pub fn first_few_cell(items: impl Iterator<Item = String>, placeholder: &str) -> Value {
    const SHOWN_MAX: usize = 3;
    let mut items = items.fuse();
    let shown: Vec<String> = items.by_ref().take(SHOWN_MAX).collect();
    let rest = items.count();
    let shown = shown.join(",");
    if rest > 0 { format!("{shown} + {rest} more...").into() } else { or_placeholder(shown, placeholder) }
}

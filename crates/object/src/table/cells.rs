//! Columns and cells that many kinds share.

use api::time::{MicroTime, Time};
use jiff::Timestamp;
use serde_json::Value;

use super::{Column, human_duration};
use crate::access::{self, Object, metadata_text, objects};
use crate::label_selector;

pub(super) const NAME: Column = Column {
    format: "name",
    ..text("Name", "The name of the object.", |object, _| metadata_text(object, "name").into())
};
pub(super) const AGE: Column = text("Age", "How long ago it was created.", age);
pub(super) const CONTAINERS: Column =
    wide("Containers", "The names of the containers.", |object, _| containers(object, "name"));
pub(super) const IMAGES: Column =
    wide("Images", "The images of the containers.", |object, _| containers(object, "image"));

/// A column of strings.
pub(super) const fn text(name: &'static str, description: &'static str, cell: fn(&Object, Time) -> Value) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0, cell }
}

/// A column of strings for wide output.
pub(super) const fn wide(name: &'static str, description: &'static str, cell: fn(&Object, Time) -> Value) -> Column {
    Column { priority: 1, ..text(name, description, cell) }
}

/// A column of integers.
pub(super) const fn number(name: &'static str, description: &'static str, cell: fn(&Object, Time) -> Value) -> Column {
    Column { kind: "integer", ..text(name, description, cell) }
}

/// A column of bools.
pub(super) const fn boolean(name: &'static str, description: &'static str, cell: fn(&Object, Time) -> Value) -> Column {
    Column { kind: "boolean", ..text(name, description, cell) }
}

pub(super) fn age(object: &Object, now: Time) -> Value {
    since(metadata_text(object, "creationTimestamp"), now).into()
}

/// When it was created, as a timestamp; Go's zero time when nobody knows.
pub(super) fn created_at(object: &Object, _: Time) -> Value {
    match metadata_text(object, "creationTimestamp") {
        "" => "0001-01-01T00:00:00Z".into(),
        time => time.into(),
    }
}

/// How long ago a time on the wire was.
pub(super) fn since(time: &str, now: Time) -> String {
    instant(time).map_or_else(|| "<unknown>".to_owned(), |then| human_duration(now.timestamp().duration_since(then)))
}

/// A time on the wire, to the second or finer.
pub(super) fn instant(time: &str) -> Option<Timestamp> {
    time.parse::<MicroTime>().ok().map(MicroTime::timestamp)
}

/// The string at a path.
pub(super) fn text_at(object: &Object, path: &[&str]) -> Value {
    access::text(object, path).into()
}

/// The string at a path, or a placeholder.
pub(super) fn text_or(object: &Object, path: &[&str], placeholder: &str) -> Value {
    or(access::text(object, path).to_owned(), placeholder)
}

/// A string, or a placeholder for the empty one.
pub(super) fn or(text: String, placeholder: &str) -> Value {
    if text.is_empty() { placeholder.into() } else { text.into() }
}

/// The integer at a path, or 0.
pub(super) fn number_at(object: &Object, path: &[&str]) -> Value {
    access::integer(object, path).unwrap_or_default().into()
}

/// How many items or fields there are at a path.
pub(super) fn count_at(object: &Object, path: &[&str]) -> usize {
    match access::get(object, path) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => 0,
    }
}

/// How many pods a workload wants; one if it does not say.
pub(super) fn desired(object: &Object) -> i64 {
    access::integer(object, &["spec", "replicas"]).unwrap_or(1)
}

/// A status of one type among the conditions of an object.
pub(super) fn condition<'a>(object: &'a Object, kind: &str) -> Option<&'a Object> {
    objects(object, &["status", "conditions"]).find(|condition| access::text(condition, &["type"]) == kind)
}

/// Whether a condition is there and true.
pub(super) fn is_true(object: &Object, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| access::text(condition, &["status"]) == "True")
}

/// A field of each container of the pod template, or of the job template's.
fn containers(object: &Object, field: &str) -> Value {
    let paths: [&[&str]; 3] = [
        &["spec", "template", "spec", "containers"],
        &["spec", "jobTemplate", "spec", "template", "spec", "containers"],
        &["template", "spec", "containers"],
    ];
    let of_template = paths.into_iter().flat_map(|path| objects(object, path));
    let fields: Vec<&str> = of_template.map(|container| access::text(container, &[field])).collect();
    fields.join(",").into()
}

/// A map of labels as `a=b,c=d`, or `<none>`.
pub(super) fn labels(object: &Object, path: &[&str]) -> Value {
    or(access::part(object, path).map(label_selector::labels_to_text).unwrap_or_default(), "<none>")
}

/// A label selector as a string; empty when it selects everything or nothing.
pub(super) fn selector(object: &Object, path: &[&str]) -> String {
    let selector = access::part(object, path).map(label_selector::to_text);
    selector.unwrap_or(Some(String::new())).unwrap_or_else(|| "<error>".to_owned())
}

/// A few items and how many more there are, or a placeholder for none.
pub(super) fn first_few(items: impl Iterator<Item = String>, placeholder: &str) -> Value {
    const SHOWN_MAX: usize = 3;
    let mut items = items.fuse();
    let shown: Vec<String> = items.by_ref().take(SHOWN_MAX).collect();
    let rest = items.count();
    let shown = shown.join(",");
    if rest > 0 { format!("{shown} + {rest} more...").into() } else { or(shown, placeholder) }
}

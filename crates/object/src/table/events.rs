//! Events, in the form of the core group and in that of `events.k8s.io`.

use api::json::JsonObject;
use api::time::Time;
use serde_json::Value;

use super::Column;
use super::cells::{NAME, string_cell, string_column, time_since, wide_column};
use crate::unstructured;

pub(super) const EVENTS: &[Column] = &[
    string_column("Last Seen", "When it happened last.", |event, now| last_seen(event, now).into()),
    string_column("Type", "Normal or Warning.", |event, _| string_cell(event, &["type"])),
    string_column("Reason", "Why it happened, in one word.", |event, _| string_cell(event, &["reason"])),
    string_column("Object", "What it happened to.", |event, _| {
        let kind = involved_object_field(event, "kind").to_lowercase();
        match involved_object_field(event, "name") {
            "" => kind.into(),
            name => format!("{kind}/{name}").into(),
        }
    }),
    wide_column("Subobject", "The part of the object it happened to.", |event, _| {
        involved_object_field(event, "fieldPath").into()
    }),
    wide_column("Source", "Who reports it.", |event, _| source_cell(event)),
    string_column("Message", "What happened.", |event, _| {
        first_non_empty(event, &["message"], &["note"]).trim().into()
    }),
    wide_column("First Seen", "When it happened first.", |event, now| first_seen(event, now).into()),
    wide_column("Count", "How often it happened.", |event, _| count(event).into()),
    Column { priority: 1, ..NAME },
];

/// A field under its name in the core group or, if that is absent, in `events.k8s.io`.
fn first_non_empty<'a>(event: &'a JsonObject, core: &[&str], events: &[&str]) -> &'a str {
    match unstructured::text(event, core) {
        "" => unstructured::text(event, events),
        text => text,
    }
}

fn involved_object_field<'a>(event: &'a JsonObject, field: &str) -> &'a str {
    first_non_empty(event, &["involvedObject", field], &["regarding", field])
}

fn source_cell(event: &JsonObject) -> Value {
    let part = |in_core: &str, reporting: &str| {
        let own = first_non_empty(event, &["source", in_core], &["deprecatedSource", in_core]);
        if own.is_empty() { unstructured::text(event, &[reporting]).to_owned() } else { own.to_owned() }
    };
    let component = first_non_empty(event, &["reportingComponent"], &["reportingController"]);
    let component = match part("component", "") {
        own if own.is_empty() => component.to_owned(),
        own => own,
    };
    match part("host", "reportingInstance") {
        host if host.is_empty() => component.into(),
        host => format!("{component}, {host}").into(),
    }
}

fn first_seen(event: &JsonObject, now: Time) -> String {
    let first = first_non_empty(event, &["firstTimestamp"], &["deprecatedFirstTimestamp"]);
    time_since(if first.is_empty() { unstructured::text(event, &["eventTime"]) } else { first }, now)
}

fn last_seen(event: &JsonObject, now: Time) -> String {
    let last = first_non_empty(event, &["lastTimestamp"], &["deprecatedLastTimestamp"]);
    if unstructured::nested_object(event, &["series"]).is_some() {
        return time_since(unstructured::text(event, &["series", "lastObservedTime"]), now);
    }
    if last.is_empty() { first_seen(event, now) } else { time_since(last, now) }
}

/// A single event may have no count.
fn count(event: &JsonObject) -> i64 {
    if unstructured::nested_object(event, &["series"]).is_some() {
        return unstructured::integer(event, &["series", "count"]).unwrap_or_default();
    }
    let counted =
        unstructured::integer(event, &["count"]).or_else(|| unstructured::integer(event, &["deprecatedCount"]));
    counted.filter(|count| *count != 0).unwrap_or(1)
}

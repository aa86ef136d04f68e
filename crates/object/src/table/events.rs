//! Events, in the form of the core group and in that of `events.k8s.io`.

use api::time::Time;
use serde_json::Value;

use super::Column;
use super::cells::{NAME, since, text, text_at, wide};
use crate::access::{self, Object};

pub(super) const EVENTS: &[Column] = &[
    text("Last Seen", "When it happened last.", |event, now| last_seen(event, now).into()),
    text("Type", "Normal or Warning.", |event, _| text_at(event, &["type"])),
    text("Reason", "Why it happened, in one word.", |event, _| text_at(event, &["reason"])),
    text("Object", "What it happened to.", |event, _| {
        let kind = of_object(event, "kind").to_lowercase();
        match of_object(event, "name") {
            "" => kind.into(),
            name => format!("{kind}/{name}").into(),
        }
    }),
    wide("Subobject", "The part of the object it happened to.", |event, _| of_object(event, "fieldPath").into()),
    wide("Source", "Who reports it.", |event, _| source(event)),
    text("Message", "What happened.", |event, _| either(event, &["message"], &["note"]).trim().into()),
    wide("First Seen", "When it happened first.", |event, now| first_seen(event, now).into()),
    wide("Count", "How often it happened.", |event, _| count(event).into()),
    Column { priority: 1, ..NAME },
];

/// A field under its name in the core group or, if that is absent, in `events.k8s.io`.
fn either<'a>(event: &'a Object, core: &[&str], events: &[&str]) -> &'a str {
    match access::text(event, core) {
        "" => access::text(event, events),
        text => text,
    }
}

fn of_object<'a>(event: &'a Object, field: &str) -> &'a str {
    either(event, &["involvedObject", field], &["regarding", field])
}

fn source(event: &Object) -> Value {
    let part = |in_core: &str, reporting: &str| {
        let own = either(event, &["source", in_core], &["deprecatedSource", in_core]);
        if own.is_empty() { access::text(event, &[reporting]).to_owned() } else { own.to_owned() }
    };
    let component = either(event, &["reportingComponent"], &["reportingController"]);
    let component = match part("component", "") {
        own if own.is_empty() => component.to_owned(),
        own => own,
    };
    match part("host", "reportingInstance") {
        host if host.is_empty() => component.into(),
        host => format!("{component}, {host}").into(),
    }
}

fn first_seen(event: &Object, now: Time) -> String {
    let first = either(event, &["firstTimestamp"], &["deprecatedFirstTimestamp"]);
    since(if first.is_empty() { access::text(event, &["eventTime"]) } else { first }, now)
}

fn last_seen(event: &Object, now: Time) -> String {
    let last = either(event, &["lastTimestamp"], &["deprecatedLastTimestamp"]);
    if access::part(event, &["series"]).is_some() {
        return since(access::text(event, &["series", "lastObservedTime"]), now);
    }
    if last.is_empty() { first_seen(event, now) } else { since(last, now) }
}

/// A single event may have no count.
fn count(event: &Object) -> i64 {
    if access::part(event, &["series"]).is_some() {
        return access::integer(event, &["series", "count"]).unwrap_or_default();
    }
    let counted = access::integer(event, &["count"]).or_else(|| access::integer(event, &["deprecatedCount"]));
    counted.filter(|count| *count != 0).unwrap_or(1)
}

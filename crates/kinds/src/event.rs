//! Events: one kind under two groups, with different names for the same fields.

use std::borrow::Cow;
use std::time::Duration;

use api::json::JsonObject;
use api::time::Time;
use object::KindRules;
use object::rules::{GarbageCollectionPolicy, GenerateNameRule, NameRule};
use object::selectable_fields::SelectableFields;
use object::table::Column;
use object::table::cells::{NAME, string_cell, string_column, time_since, wide_column};
use object::unstructured;
use serde_json::Value;

use crate::fields::rename_field;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;
use crate::validation::Field;

/// The events of the core group.
pub(crate) static CORE_STRATEGY: KindStrategy = KindStrategy {
    allows_any_finalizer: true,
    rules: KindRules { name_rule: NameRule::PathSegment, ..EITHER_GROUP.rules },
    validate: |event| check_event(event, &CORE_FIELDS),
    selectable_fields: &SelectableFields {
        names: &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        value: selectable_value,
        ..SelectableFields::LISTED
    },
    ..EITHER_GROUP
};

/// The events of `events.k8s.io`. Error messages use the field names of the core group.
pub(crate) static EVENTS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generate_name: GenerateNameRule::OnCreate, ..EITHER_GROUP.rules },
    validate: |event| {
        check_event(event, &EVENTS_FIELDS);
        if event.at("series").is_present() {
            check_series(event.at("series"));
        }
    },
    validate_create: check_new_event,
    immutable_fields: &[
        fixed_field("regarding").displayed_as("involvedObject"),
        fixed_field("reason"),
        fixed_field("note").displayed_as("message"),
        fixed_field("deprecatedSource").displayed_as("source"),
        fixed_field("deprecatedFirstTimestamp").displayed_as("firstTimestamp"),
        fixed_field("deprecatedLastTimestamp").displayed_as("lastTimestamp"),
        fixed_field("deprecatedCount").displayed_as("count"),
        fixed_field("type"),
        fixed_field("eventTime"),
        fixed_field("action"),
        fixed_field("related"),
        fixed_field("reportingController"),
        fixed_field("reportingInstance"),
    ],
    selectable_fields: &SelectableFields {
        names: &[
            "metadata.name",
            "metadata.namespace",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        value: selectable_value,
        ..SelectableFields::LISTED
    },
    ..EITHER_GROUP
};

const EITHER_GROUP: KindStrategy = KindStrategy {
    rules: KindRules {
        allows_create_on_update: true,
        garbage_collection: GarbageCollectionPolicy::Unsupported,
        ttl: Some(EVENT_TTL),
        ..RULES
    },
    columns: EVENTS,
    conversion: |from, to| match (from.group, to.group) {
        ("", "events.k8s.io") => Some(core_to_events),
        ("events.k8s.io", "") => Some(events_to_core),
        _ => None,
    },
    ..KindStrategy::DEFAULT
};

/// The names that the rules need, which differ between the groups. Messages use those of the core group.
struct EventFields {
    subject: &'static str,
    note: &'static str,
    reporter: &'static str,
}

const CORE_FIELDS: EventFields =
    EventFields { subject: "involvedObject", note: "message", reporter: "reportingComponent" };
const EVENTS_FIELDS: EventFields = EventFields { subject: "regarding", note: "note", reporter: "reportingController" };

const NAMESPACE_DIFFERS: &str = "does not match event.namespace";
const NOTE_LENGTH_MAX: usize = 1024;
const REASON_LENGTH_MAX: usize = 128;

/// An event without `eventTime` is of the old form, which has fewer rules.
fn check_event(event: Field<'_>, names: &EventFields) {
    let namespace = event.path("metadata.namespace").text();
    let of_subject = event.at(names.subject).at("namespace").rooted_at("involvedObject.namespace");
    let is_cluster_scoped = of_subject.text().is_empty();
    if !event.at("eventTime").is_present() {
        let agrees = if is_cluster_scoped { namespace == "default" } else { namespace == of_subject.text() };
        if !agrees {
            of_subject.invalid_text(NAMESPACE_DIFFERS);
        }
        return;
    }
    if is_cluster_scoped && !["default", "kube-system"].contains(&namespace) {
        of_subject.invalid_text(NAMESPACE_DIFFERS);
    }
    let reporter = event.at(names.reporter);
    reporter.require_text();
    reporter.qualified_name();
    for field in ["reportingInstance", "action", "reason"].map(|name| event.at(name)) {
        field.require_text();
        check_length(field, REASON_LENGTH_MAX);
    }
    check_length(event.at(names.note).rooted_at("message"), NOTE_LENGTH_MAX);
}

fn check_length(text: Field<'_>, max: usize) {
    if text.text().len() > max {
        text.invalid_as("", format!("can have at most {max} characters"));
    }
}

/// What `events.k8s.io` adds for new events.
fn check_new_event(event: Field<'_>) {
    if !event.at("eventTime").is_present() {
        event.at("eventTime").required("");
    }
    let kind = event.at("type");
    if !["Normal", "Warning"].contains(&kind.text()) {
        kind.invalid_as("", format!("has invalid value: {}", kind.text()));
    }
    for (old, shown) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ] {
        if !event.at(old).is_zero() {
            event.at(old).rooted_at(shown).invalid_as("", "needs to be unset");
        }
    }
}

fn check_series(series: Field<'_>) {
    if series.at("count").integer_or_zero() < 2 {
        series.at("count").invalid_as("", "should be at least 2");
    }
    if !series.at("lastObservedTime").is_present() {
        series.at("lastObservedTime").required("");
    }
}

/// How long events are kept; kube-apiserver's `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// Names in the core group and in `events.k8s.io`.
const FIELD_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn core_to_events(event: &mut JsonObject) {
    FIELD_NAMES.into_iter().for_each(|(core, events)| rename_field(event, core, events));
}

fn events_to_core(event: &mut JsonObject) {
    FIELD_NAMES.into_iter().for_each(|(core, events)| rename_field(event, events, core));
}

/// The value of a selectable field; the stored object may have the names of either group.
fn selectable_value<'o>(event: &'o JsonObject, field: &str) -> Option<Cow<'o, str>> {
    let reporter = || first_non_empty(event, &["reportingComponent"], &["reportingController"]);
    Some(Cow::Borrowed(match field {
        "reportingComponent" | "reportingController" => reporter(),
        "source" => match first_non_empty(event, &["source", "component"], &["deprecatedSource", "component"]) {
            "" => reporter(),
            component => component,
        },
        _ => involved_object_field(event, field.strip_prefix("involvedObject.").or(field.strip_prefix("regarding."))?),
    }))
}

const EVENTS: &[Column] = &[
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

/// The count of an event, or of its series; an event without a count counts as one.
fn count(event: &JsonObject) -> i64 {
    if unstructured::nested_object(event, &["series"]).is_some() {
        return unstructured::integer(event, &["series", "count"]).unwrap_or_default();
    }
    let counted =
        unstructured::integer(event, &["count"]).or_else(|| unstructured::integer(event, &["deprecatedCount"]));
    counted.filter(|count| *count != 0).unwrap_or(1)
}

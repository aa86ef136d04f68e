//! Events: one kind under two groups, with other names for the same fields.

use serde_json::{Map, Value};

use super::rename_field;

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

pub(super) fn core_to_events(event: &mut Map<String, Value>) {
    FIELD_NAMES.into_iter().for_each(|(core, events)| rename_field(event, core, events));
}

pub(super) fn events_to_core(event: &mut Map<String, Value>) {
    FIELD_NAMES.into_iter().for_each(|(core, events)| rename_field(event, events, core));
}

//! Events: one kind under two groups, with other names for the same fields.

use serde_json::{Map, Value};

use super::rename;

/// Names in the core group and in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn from_core(event: &mut Map<String, Value>) {
    NAMES.into_iter().for_each(|(core, events)| rename(event, core, events));
}

pub(super) fn to_core(event: &mut Map<String, Value>) {
    NAMES.into_iter().for_each(|(core, events)| rename(event, events, core));
}

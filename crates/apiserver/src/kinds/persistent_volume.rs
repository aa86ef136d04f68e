//! Volumes and claims to them: new ones are not bound yet.

use api::json::JsonObject;
use serde_json::{Value, json};

/// A new claim waits for a volume.
pub(super) fn prepare_claim_for_create(object: &mut JsonObject) {
    object.insert("status".to_owned(), json!({"phase": "Pending"}));
}

/// A new volume waits to be offered, since it was made.
pub(super) fn prepare_volume_for_create(object: &mut JsonObject) {
    let creation_timestamp = object.get("metadata").and_then(|metadata| metadata.get("creationTimestamp")).cloned();
    let mut status = json!({"phase": "Pending"});
    if let Some(creation_timestamp @ Value::String(_)) = creation_timestamp {
        status["lastPhaseTransitionTime"] = creation_timestamp;
    }
    object.insert("status".to_owned(), status);
}

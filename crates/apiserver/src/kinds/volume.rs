//! Volumes and claims to them: new ones are not bound yet.

use serde_json::{Value, json};

use crate::forms::Object;

/// A new claim waits for a volume.
pub(super) fn complete_claim(object: &mut Object) {
    object.insert("status".to_owned(), json!({"phase": "Pending"}));
}

/// A new volume waits to be offered, since it was made.
pub(super) fn complete_volume(object: &mut Object) {
    let made = object.get("metadata").and_then(|metadata| metadata.get("creationTimestamp")).cloned();
    let mut status = json!({"phase": "Pending"});
    if let Some(made @ Value::String(_)) = made {
        status["lastPhaseTransitionTime"] = made;
    }
    object.insert("status".to_owned(), status);
}

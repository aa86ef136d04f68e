//! The condition `Available` of an APIService.

use api::json::JsonObject;
use api::time::Time;
use serde_json::{Value, json};

/// The type of the condition.
const AVAILABLE: &str = "Available";

/// A judgement of availability, without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// A word in CamelCase.
    pub reason: &'static str,
    /// Kubernetes' text for the reason.
    pub message: String,
}

impl Availability {
    /// The availability of a group-version that the API servers serve themselves.
    pub fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Self { status: "True", reason: "Local", message }
    }
}

/// True if an APIService names no service, so that the API servers serve its group-version themselves.
pub fn is_local(api_service: &JsonObject) -> bool {
    api_service.get("spec").and_then(|spec| spec.get("service")).is_none_or(Value::is_null)
}

/// Sets the condition and returns whether it changed. `lastTransitionTime` changes only with the status; other conditions stay.
pub fn set_available(api_service: &mut JsonObject, availability: &Availability, now: Time) -> bool {
    let status = api_service.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    if !status.get("conditions").is_some_and(Value::is_array) {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return false };
    let known = conditions.iter_mut().find(|condition| condition["type"] == AVAILABLE);
    let since = match &known {
        Some(known) if known["status"] == availability.status => known["lastTransitionTime"].clone(),
        Some(_) | None => now.to_string().into(),
    };
    let next = json!({"lastTransitionTime": since, "message": availability.message, "reason": availability.reason,
        "status": availability.status, "type": AVAILABLE});
    match known {
        Some(known) if *known == next => false,
        Some(known) => {
            *known = next;
            true
        }
        None => {
            conditions.push(next);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> JsonObject {
        let Value::Object(object) = value else { unreachable!("test values are objects") };
        object
    }

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn transition_time_changes_with_the_status_only() {
        let (first, later) = (time("2026-01-01T00:00:00Z"), time("2026-01-02T00:00:00Z"));
        let mut service = object(json!({"status": {"conditions": [{"type": "Other"}]}}));
        assert!(set_available(&mut service, &Availability::local(), first));
        assert!(!set_available(&mut service, &Availability::local(), later), "an equal judgement changes nothing");
        let renamed =
            Availability { reason: "Passed", message: "all checks passed".to_owned(), ..Availability::local() };
        assert!(set_available(&mut service, &renamed, later));
        let conditions = service["status"]["conditions"].clone();
        assert_eq!(conditions[0], json!({"type": "Other"}), "other conditions stay");
        assert_eq!(
            (&conditions[1]["reason"], &conditions[1]["lastTransitionTime"]),
            (&json!("Passed"), &json!("2026-01-01T00:00:00Z"))
        );
        let failing = Availability { status: "False", reason: "ServiceNotFound", message: String::new() };
        assert!(set_available(&mut service, &failing, later));
        assert_eq!(service["status"]["conditions"][1]["lastTransitionTime"], "2026-01-02T00:00:00Z");
    }
}

//! Rules around the write: times of unchanged entries, and entries after mutating admission.

use api::json::JsonObject;
use serde_json::Value;

use crate::entries::{decode_entries, managed_fields};

/// Restores the times of entries if they are all that the write changes, so that nothing is written.
pub fn keep_times_if_unchanged(old: &JsonObject, new: &mut JsonObject) {
    let (Some(Value::Array(old_entries)), Some(Value::Array(new_entries))) = (managed_fields(old), managed_fields(new))
    else {
        return;
    };
    if old_entries == new_entries || old_entries.len() != new_entries.len() {
        return;
    }
    let equal_entries = old_entries.iter().zip(new_entries).all(|(one, other)| equal_but(one, other, &["time"]));
    let equal_metadata = match (old.get("metadata"), new.get("metadata")) {
        (Some(one), Some(other)) => equal_but(one, other, &["managedFields", "resourceVersion"]),
        _ => false,
    };
    let others = |object: &'_ JsonObject| object.iter().filter(|(name, _)| *name != "metadata").count();
    let equal_rest = old.iter().all(|(name, value)| name == "metadata" || new.get(name) == Some(value));
    if equal_entries && equal_metadata && equal_rest && others(old) == others(new) {
        let entries = managed_fields(old).cloned();
        crate::entries::set_managed_fields(new, entries);
    }
}

/// Equality of two objects but for some fields.
fn equal_but(one: &Value, other: &Value, ignored: &[&str]) -> bool {
    let (Value::Object(one), Value::Object(other)) = (one, other) else { return one == other };
    let counted = |object: &JsonObject| object.keys().filter(|name| !ignored.contains(&name.as_str())).count();
    let same = |(name, value): (&String, &Value)| ignored.contains(&name.as_str()) || other.get(name) == Some(value);
    counted(one) == counted(other) && one.iter().all(same)
}

/// Checks the entries of an object that mutating admission returned. On an error the caller restores those from before
/// admission and warns: `.metadata.managedFields was in an invalid state after admission; …`.
pub fn check_entries(object: &JsonObject) -> Result<(), String> {
    decode_entries(managed_fields(object)).map(drop).map_err(|error| error.0)
}

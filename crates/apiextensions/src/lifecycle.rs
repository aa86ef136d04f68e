//! The life of a definition object: its defaults, its first status, and what an update or a deletion adds to it.

use api::json::JsonObject;
use api::time::Time;
use serde_json::{Value, json};

use crate::definition::CLEANUP_FINALIZER;

/// The port of a webhook's service if the definition names none.
const SERVICE_PORT: i64 = 443;

/// Sets the defaults of absent fields, those of the status included: a definition always has a stored version.
pub fn set_defaults(definition: &mut JsonObject) {
    if let Some(spec) = object_mut(definition, "spec") {
        set_spec_defaults(spec);
    }
    if let Some(storage) = storage_version(definition) {
        let status = status_mut(definition);
        let is_empty = |versions: &Value| versions.as_array().is_none_or(Vec::is_empty);
        if status.get("storedVersions").is_none_or(is_empty) {
            status.insert("storedVersions".to_owned(), json!([storage]));
        }
    }
}

fn set_spec_defaults(spec: &mut JsonObject) {
    if let Some(names) = object_mut(spec, "names") {
        let text =
            |names: &JsonObject, name: &str| names.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = text(names, "kind");
        for (name, default) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
            if !kind.is_empty() && text(names, name).is_empty() {
                names.insert(name.to_owned(), default.into());
            }
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    let webhook = object_mut(spec, "conversion").and_then(|conversion| object_mut(conversion, "webhook"));
    let config = webhook.and_then(|webhook| object_mut(webhook, "clientConfig"));
    if let Some(service) = config.and_then(|config| object_mut(config, "service"))
        && service.get("port").is_none_or(Value::is_null)
    {
        service.insert("port".to_owned(), SERVICE_PORT.into());
    }
}

/// Gives a new definition the status that controllers start from. Whatever the client sent is dropped.
pub fn set_initial_status(definition: &mut JsonObject) {
    let stored = storage_version(definition).map(|version| json!([version]));
    let status = json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored,
    });
    definition.insert("status".to_owned(), status);
}

/// Adds the storage version of an updated definition to its stored versions. None is ever removed here: that is for
/// those who have migrated all objects.
pub fn add_stored_version(definition: &mut JsonObject) {
    let Some(storage) = storage_version(definition) else { return };
    let stored = status_mut(definition).entry("storedVersions").or_insert(Value::Null);
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut()
        && !stored.iter().any(|version| *version == storage)
    {
        stored.push(storage.into());
    }
}

/// Marks a definition for deletion: its objects are deleted first, which the finalizer waits for.
pub fn begin_deletion(definition: &mut JsonObject, now: Time) {
    if let Some(metadata) = object_mut(definition, "metadata") {
        metadata.insert("deletionTimestamp".to_owned(), now.to_string().into());
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut()
            && !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER)
        {
            finalizers.push(CLEANUP_FINALIZER.into());
        }
    }
    let condition = Condition {
        condition_type: "Terminating",
        status: "True",
        reason: "InstanceDeletionPending",
        message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    };
    set_condition(definition, &condition, now);
}

/// A condition of a definition that a server sets.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'a> {
    /// `Established`, `NamesAccepted`, `Terminating` and others.
    pub condition_type: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// One word for programs.
    pub reason: &'a str,
    /// Text for people.
    pub message: &'a str,
}

/// Sets or replaces a condition. The transition time moves only if the status changes.
pub fn set_condition(definition: &mut JsonObject, condition: &Condition<'_>, now: Time) {
    let conditions = status_mut(definition).entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let known =
        conditions.iter().position(|known| known.get("type").is_some_and(|kind| kind == condition.condition_type));
    let at = known.unwrap_or_else(|| {
        conditions.push(json!({"type": condition.condition_type}));
        conditions.len() - 1
    });
    let Some(fields) = conditions[at].as_object_mut() else { return };
    let has_same_status = fields.get("status").is_some_and(|status| status == condition.status);
    if !has_same_status || fields.get("lastTransitionTime").is_none_or(Value::is_null) {
        fields.insert("lastTransitionTime".to_owned(), now.to_string().into());
    }
    let values = [("status", condition.status), ("reason", condition.reason), ("message", condition.message)];
    fields.extend(values.map(|(name, value)| (name.to_owned(), value.into())));
}

/// The name of the first version that is marked as storage version.
fn storage_version(definition: &JsonObject) -> Option<String> {
    let versions = definition.get("spec")?.get("versions")?.as_array()?;
    let storage = versions.iter().find(|version| version.get("storage").and_then(Value::as_bool) == Some(true))?;
    Some(storage.get("name").and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn status_mut(definition: &mut JsonObject) -> &mut JsonObject {
    let status = definition.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    status.as_object_mut().expect("the status was just made an object")
}

fn object_mut<'a>(object: &'a mut JsonObject, field: &str) -> Option<&'a mut JsonObject> {
    object.get_mut(field).and_then(Value::as_object_mut)
}

//! ConfigMaps and Secrets: data that may be made immutable, and secrets that may be written as text.

use api::FieldError;
use api::json::JsonObject;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use object::Rejection;
use serde_json::{Value, json};

/// What both kinds may together hold; Kubernetes' limit.
const DATA_BYTES_MAX: usize = 1 << 20;

/// Turns a secret's `stringData` into `data`, and gives it a type.
pub(super) fn prepare_secret(object: &mut JsonObject) {
    if let Some(Value::Object(texts)) = object.remove("stringData") {
        let data = object.entry("data").or_insert_with(|| json!({}));
        if !data.is_object() {
            *data = json!({});
        }
        for (key, text) in texts {
            data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
    let kind = object.entry("type").or_insert_with(|| "Opaque".into());
    if kind.as_str().is_some_and(str::is_empty) {
        *kind = "Opaque".into();
    }
}

/// Refuses what cannot be stored, and changes of what was made immutable.
pub(super) fn validate_data(old: Option<&JsonObject>, new: &JsonObject) -> Result<(), Rejection> {
    let mut errors = Vec::new();
    let total_bytes: usize = ["data", "binaryData"].iter().filter_map(|part| new.get(*part)).map(data_bytes).sum();
    if total_bytes > DATA_BYTES_MAX {
        errors.push(FieldError::too_long("data", DATA_BYTES_MAX));
    }
    let is_immutable = |object: &JsonObject| object.get("immutable") == Some(&Value::Bool(true));
    if let Some(old) = old.filter(|old| is_immutable(old)) {
        if !is_immutable(new) {
            errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for part in ["data", "binaryData"] {
            if old.get(part) != new.get(part) {
                errors.push(FieldError::forbidden(part, "field is immutable when `immutable` is set"));
            }
        }
    }
    Rejection::ensure_no_errors(errors)
}

fn data_bytes(part: &Value) -> usize {
    let values = part.as_object().into_iter().flatten();
    values.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

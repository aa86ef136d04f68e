//! ConfigMaps and Secrets: data that may be made immutable, and secrets that may be written as text.

use api::FieldError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use object::Refusal;
use serde_json::{Value, json};

use crate::forms::Object;

/// What both kinds may together hold; Kubernetes' limit.
const BYTES_MAX: usize = 1 << 20;

/// Turns a secret's `stringData` into `data`, and gives it a type.
pub(super) fn complete_secret(object: &mut Object) {
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
pub(super) fn check(old: Option<&Object>, new: &Object) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    let size: usize = ["data", "binaryData"].iter().filter_map(|part| new.get(*part)).map(weight).sum();
    if size > BYTES_MAX {
        errors.push(FieldError::too_long("data", BYTES_MAX));
    }
    let is_fixed = |object: &Object| object.get("immutable") == Some(&Value::Bool(true));
    if let Some(old) = old.filter(|old| is_fixed(old)) {
        if !is_fixed(new) {
            errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for part in ["data", "binaryData"] {
            if old.get(part) != new.get(part) {
                errors.push(FieldError::forbidden(part, "field is immutable when `immutable` is set"));
            }
        }
    }
    Refusal::invalid_unless_empty(errors)
}

fn weight(part: &Value) -> usize {
    let values = part.as_object().into_iter().flatten();
    values.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

//! Config maps, and the rules shared with secrets: keys, sizes, immutable data.

use api::FieldError;
use api::json::JsonObject;
use object::Rejection;
use object::table::Column;
use object::table::cells::{AGE, NAME, count_at, string_column};
use serde_json::{Map, Value};

use crate::strategy::KindStrategy;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    prepare_for_create: |_, map| validate_data(None, map),
    prepare_for_update: |old, map| validate_data(Some(old), map),
    validate: |errors, map| check_data_keys(errors, map, &["data", "binaryData"]),
    columns: CONFIG_MAPS,
    ..KindStrategy::DEFAULT
};

/// The limit for the data of a config map or a secret, as in Kubernetes.
const DATA_BYTES_MAX: usize = 1 << 20;

/// Rejects data beyond the limit, and changes of an object that is marked immutable.
pub(crate) fn validate_data(old: Option<&JsonObject>, new: &JsonObject) -> Result<(), Rejection> {
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

/// Rejects keys that cannot be file names.
pub(crate) fn check_data_keys(errors: &mut Vec<FieldError>, object: &JsonObject, parts: &[&str]) {
    for part in parts {
        for key in object.get(*part).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            if let Some(error) = data_key_error(key) {
                errors.push(FieldError::invalid(format!("{part}[{key}]"), key.as_str(), error));
            }
        }
    }
}

fn data_key_error(key: &str) -> Option<String> {
    const LENGTH_MAX: usize = 253;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match key {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if key.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ if key.len() > LENGTH_MAX => Some(format!("must be no more than {LENGTH_MAX} characters")),
        _ if key.is_empty() || !key.bytes().all(is_allowed) => Some(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  \
             or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        ),
        _ => None,
    }
}

const CONFIG_MAPS: &[Column] = &[
    NAME,
    string_column("Data", "How many keys it has.", |map, _| {
        (count_at(map, &["data"]) + count_at(map, &["binaryData"])).into()
    }),
    AGE,
];

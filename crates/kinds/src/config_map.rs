//! Config maps, and the rules shared with secrets: keys, sizes, immutable data.

use api::FieldError;
use api::json::JsonObject;
use api::validation::validate_config_key;
use object::Rejection;
use object::table::Column;
use object::table::cells::{AGE, NAME, count_at, string_column};
use serde_json::Value;

use crate::strategy::KindStrategy;
use crate::validation::Field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    prepare_for_create: |_, map| validate_data(None, map),
    prepare_for_update: |old, map| validate_data(Some(old), map),
    validate: |map| {
        let data = map.at("data");
        for (key, value) in data.entries() {
            validate_config_key(key).into_iter().for_each(|error| value.invalid_as(key, error));
            if map.at("binaryData").key(key).is_present() {
                value.invalid_as(key, "duplicate of key present in binaryData");
            }
        }
        check_data_keys(map.at("binaryData"));
    },
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

/// Keys are file names.
pub(crate) fn check_data_keys(data: Field<'_>) {
    for (key, value) in data.entries() {
        validate_config_key(key).into_iter().for_each(|error| value.invalid_as(key, error));
    }
}

const CONFIG_MAPS: &[Column] = &[
    NAME,
    string_column("Data", "How many keys it has.", |map, _| {
        (count_at(map, &["data"]) + count_at(map, &["binaryData"])).into()
    }),
    AGE,
];

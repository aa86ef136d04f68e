//! Secrets.

use api::json::JsonObject;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use object::selectable_fields::SelectableFields;
use object::table::Column;
use object::table::cells::{AGE, NAME, count_at, string_cell, string_column};
use serde_json::{Value, json};

use crate::config_map::{check_data_keys, validate_data};
use crate::strategy::KindStrategy;
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    prepare_for_create: |_, secret| {
        prepare(secret);
        validate_data(None, secret)
    },
    prepare_for_update: |old, secret| {
        prepare(secret);
        validate_data(Some(old), secret)
    },
    validate: |errors, secret| check_data_keys(errors, secret, &["data"]),
    immutable_fields: &[fixed_field("type")],
    columns: SECRETS,
    selectable_fields: &SelectableFields {
        names: &["metadata.name", "metadata.namespace", "type"],
        ..SelectableFields::LISTED
    },
    ..KindStrategy::DEFAULT
};

/// Merges `stringData` into `data`, and sets the default type.
fn prepare(object: &mut JsonObject) {
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

const SECRETS: &[Column] = &[
    NAME,
    string_column("Type", "What it is used for.", |secret, _| string_cell(secret, &["type"])),
    string_column("Data", "How many keys it has.", |secret, _| count_at(secret, &["data"]).into()),
    AGE,
];

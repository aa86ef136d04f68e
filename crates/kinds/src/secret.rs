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
use crate::validation::Field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    prepare_for_create: |_, secret| {
        prepare(secret);
        validate_data(None, secret)
    },
    prepare_for_update: |old, secret| {
        prepare(secret);
        validate_data(Some(old), secret)
    },
    validate: |secret| {
        check_data_keys(secret.at("data"));
        check_type(secret);
    },
    immutable_fields: &[fixed_field("type")],
    columns: SECRETS,
    selectable_fields: &SelectableFields {
        names: &["metadata.name", "metadata.namespace", "type"],
        ..SelectableFields::LISTED
    },
    ..KindStrategy::DEFAULT
};

/// A secret of a known type has the keys of that type.
fn check_type(secret: Field<'_>) {
    let data = secret.at("data");
    let require = |key| {
        if !data.key(key).is_present() {
            data.key(key).required("");
        }
    };
    match secret.at("type").text() {
        "kubernetes.io/service-account-token" => {
            let name = secret.path("metadata.annotations").key("kubernetes.io/service-account.name");
            if name.text().is_empty() {
                name.required("");
            }
        }
        "kubernetes.io/dockercfg" => check_json(data.key(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => check_json(data.key(".dockerconfigjson")),
        "kubernetes.io/basic-auth" if data.key("username").is_present() || data.key("password").is_present() => {}
        "kubernetes.io/basic-auth" => ["username", "password"].into_iter().for_each(require),
        "kubernetes.io/ssh-auth" if data.key("ssh-privatekey").text().is_empty() => {
            data.key("ssh-privatekey").required("");
        }
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().for_each(require),
        _ => {}
    }
}

/// A file of credentials for registries.
fn check_json(file: Field<'_>) {
    if !file.is_present() {
        return file.required("");
    }
    let bytes = STANDARD.decode(file.text()).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<JsonObject>(&bytes) {
        let words = if bytes.is_empty() || error.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else {
            go_syntax_error(&bytes)
        };
        file.invalid_as("<secret contents redacted>", words);
    }
}

/// Go's words for the first character that is not JSON.
fn go_syntax_error(bytes: &[u8]) -> String {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace()).copied().unwrap_or_default();
    format!("invalid character {:?} looking for beginning of value", char::from(first))
}

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

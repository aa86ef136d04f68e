//! Resource quotas.

use std::collections::BTreeSet;

use api::FieldError;
use api::json::JsonObject;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell_or, string_column};
use object::unstructured;
use serde_json::Value;

use crate::fields::list_items;
use crate::strategy::KindStrategy;
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    validate_update: |quota, _| check_update(quota),
    columns: QUOTAS,
    ..KindStrategy::DEFAULT
};

/// The set of scopes is immutable; their order may change.
fn check_update(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.scopes";
    let scopes = |value: Option<&Value>| -> BTreeSet<String> {
        list_items(value).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if scopes(update.old_value(path)) == scopes(update.new_value(path)) {
        return Vec::new();
    }
    vec![FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE)]
}

const QUOTAS: &[Column] = &[
    NAME,
    string_column("Request", "What is used, of how much.", |quota, _| {
        quota_usage_cell(quota, |resource| !is_limit(resource))
    }),
    string_column("Limit", "What limits are used, of how much.", |quota, _| quota_usage_cell(quota, is_limit)),
    AGE,
];

fn is_limit(resource: &str) -> bool {
    resource.starts_with("limits.")
}

fn quota_usage_cell(quota: &JsonObject, is_shown: fn(&str) -> bool) -> Value {
    let hard = unstructured::nested_object(quota, &["status", "hard"]).into_iter().flatten();
    let shown: Vec<String> = hard
        .filter(|(resource, _)| is_shown(resource))
        .map(|(resource, hard)| {
            let used = string_cell_or(quota, &["status", "used", resource], "0");
            format!("{resource}: {}/{}", used.as_str().unwrap_or_default(), hard.as_str().unwrap_or("0"))
        })
        .collect();
    shown.join(", ").into()
}

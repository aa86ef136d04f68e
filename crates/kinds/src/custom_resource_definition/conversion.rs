//! Conversion of definitions: served as v1 and stored as v1beta1, which has fields common to all versions at the top of
//! the spec.

use api::json::JsonObject;
use object::unstructured::nested_object_mut;
use serde_json::{Map, Value, json};

use crate::fields::rename_field;

/// Fields of a version, and the names that v1beta1 gives them when all versions share them.
const SHARED_FIELDS: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// The names of a printer column's path in the two versions.
const PATH_V1: &str = "jsonPath";

const PATH_V1BETA1: &str = "JSONPath";

/// Converts the stored version to the served one.
pub(crate) fn v1beta1_to_v1(object: &mut JsonObject) {
    let spec = nested_object_mut(object, "spec");
    let first = spec.remove("version");
    let lists_none = versions_mut(spec).next().is_none();
    if let Some(name) = first.filter(|_| lists_none) {
        // The oldest definitions name one version and list none.
        spec.insert("versions".to_owned(), json!([{"name": name, "served": true, "storage": true}]));
    }
    for (own, above) in SHARED_FIELDS {
        let Some(shared) = spec.remove(above) else { continue };
        for version in versions_mut(spec) {
            version.entry(own).or_insert_with(|| shared.clone());
        }
    }
    versions_mut(spec).for_each(|version| rename_column_paths(version, PATH_V1BETA1, PATH_V1));
    if let Some(Value::Object(conversion)) = spec.get_mut("conversion") {
        let mut webhook = Map::new();
        for (flat, nested) in
            [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
        {
            if let Some(value) = conversion.remove(flat) {
                webhook.insert(nested.to_owned(), value);
            }
        }
        if !webhook.is_empty() {
            conversion.insert("webhook".to_owned(), webhook.into());
        }
    }
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
}

/// Converts the served version to the stored one.
pub(crate) fn v1_to_v1beta1(object: &mut JsonObject) {
    let spec = nested_object_mut(object, "spec");
    versions_mut(spec).for_each(|version| rename_column_paths(version, PATH_V1, PATH_V1BETA1));
    let first = versions_mut(spec).next().and_then(|version| version.get("name").cloned());
    if let Some(name) = first {
        spec.insert("version".to_owned(), name);
    }
    for (own, above) in SHARED_FIELDS {
        if let Some(shared) = value_shared_by_all_versions(spec, own) {
            versions_mut(spec).for_each(|version| drop(version.remove(own)));
            spec.insert(above.to_owned(), shared);
        }
    }
    if let Some(Value::Object(conversion)) = spec.get_mut("conversion")
        && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
    {
        rename_field(&mut webhook, "clientConfig", "webhookClientConfig");
        conversion.extend(webhook);
    }
    spec.entry("preserveUnknownFields").or_insert(Value::Bool(false));
}

fn versions_mut(spec: &mut JsonObject) -> impl Iterator<Item = &mut JsonObject> {
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    versions.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The value that all versions share; `None` if they differ or one lacks it.
fn value_shared_by_all_versions(spec: &mut JsonObject, field: &str) -> Option<Value> {
    let mut values = versions_mut(spec).map(|version| version.get(field).cloned());
    let first = values.next()??;
    values.all(|value| value.as_ref() == Some(&first)).then_some(first)
}

fn rename_column_paths(version: &mut JsonObject, from: &str, to: &str) {
    let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        rename_field(column, from, to);
    }
}

//! `x-kubernetes-list-type`, `x-kubernetes-list-map-keys` and `x-kubernetes-map-type`.

use std::collections::HashSet;

use api::FieldError;
use serde_json::Value;

use super::error_list::ErrorList;
use super::schema_fields::go_items;
use super::schema_node::{Items, SchemaNode};

const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";

pub(super) fn check_map_type(errors: &mut ErrorList, node: SchemaNode<'_>, path: &str) {
    let Some(map_type) = node.optional_text(MAP_TYPE) else { return };
    check_node_type(errors, node, path, "object", MAP_TYPE);
    if !["atomic", "granular"].contains(&map_type) {
        errors.push(FieldError::not_supported(format!("{path}.{MAP_TYPE}"), map_type, &["atomic", "granular"]));
    }
}

/// Reports a node of another type than an extension needs.
fn check_node_type(errors: &mut ErrorList, node: SchemaNode<'_>, path: &str, expected: &str, extension: &str) {
    let detail = format!("must be {expected} if {extension} is specified");
    match node.schema_type() {
        "" => errors.push(FieldError::required(format!("{path}.type"), detail)),
        found if found == expected => {}
        other => errors.push(FieldError::invalid(format!("{path}.type"), other, detail)),
    }
}

pub(super) fn check_list_type(errors: &mut ErrorList, node: SchemaNode<'_>, path: &str, requires_atomic_sets: bool) {
    let Some(list_type) = node.optional_text(LIST_TYPE) else { return };
    check_node_type(errors, node, path, "array", LIST_TYPE);
    if node.schema_type() == "array" && requires_atomic_sets {
        check_atomic_items(errors, node, path);
    }
    if !["atomic", "set", "map"].contains(&list_type) {
        errors.push(FieldError::not_supported(format!("{path}.{LIST_TYPE}"), list_type, &["atomic", "set", "map"]));
    }
}

fn check_atomic_items(errors: &mut ErrorList, node: SchemaNode<'_>, path: &str) {
    let Some(extension) = non_atomic_items(node) else { return };
    // Kubernetes shows the list type of the items in both cases.
    let shown = node.item_schema().and_then(|items| items.value(LIST_TYPE)).cloned().unwrap_or_default();
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    errors.push(FieldError::invalid(format!("{path}.items.{extension}"), shown, detail));
}

/// The extension by which the items of a set are not atomic.
pub(super) fn non_atomic_items(node: SchemaNode<'_>) -> Option<&'static str> {
    let items = node.item_schema().filter(|_| node.optional_text(LIST_TYPE) == Some("set"))?;
    match items.schema_type() {
        "array" if !matches!(items.optional_text(LIST_TYPE), None | Some("atomic")) => Some(LIST_TYPE),
        "object" if items.optional_text(MAP_TYPE) != Some("atomic") => Some(MAP_TYPE),
        _ => None,
    }
}

/// Checks the keys of a list of type `map`.
pub(super) fn check_map_list(errors: &mut ErrorList, node: SchemaNode<'_>, path: &str) {
    let (list_type, keys) = (node.optional_text(LIST_TYPE), node.list(LIST_MAP_KEYS));
    if !keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.push(FieldError::required(format!("{path}.{LIST_TYPE}"), detail)),
            Some("map") => {}
            Some(other) => errors.push(FieldError::invalid(format!("{path}.{LIST_TYPE}"), other, detail)),
        }
    }
    if list_type != Some("map") {
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.{LIST_MAP_KEYS}"), detail));
    }
    let items_path = format!("{path}.items");
    match node.items() {
        None => {
            errors.push(FieldError::required(items_path, "must have a schema if x-kubernetes-list-type is map"));
        }
        Some(Items::Many(_)) => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            errors.push(FieldError::invalid_printed(items_path, &go_items(node), detail));
        }
        Some(Items::One(items)) if items.schema_type() == "object" => check_keys(errors, items, keys, path),
        Some(Items::One(items)) => {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(format!("{items_path}.type"), items.schema_type(), detail));
        }
    }
}

fn check_keys(errors: &mut ErrorList, items: SchemaNode<'_>, keys: &[Value], path: &str) {
    let keys_path = format!("{path}.{LIST_MAP_KEYS}");
    let mut seen = HashSet::new();
    for key in keys.iter().map(|key| key.as_str().unwrap_or_default()) {
        match items.property(key) {
            Some(property) if ["array", "object"].contains(&property.schema_type()) => {
                let path = format!("{path}.items.properties[{key}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(path, items.schema_type(), detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(&keys_path, keys.to_vec(), detail));
            }
        }
        if !seen.insert(key) {
            errors.push(FieldError::invalid(&keys_path, keys.to_vec(), "must not contain duplicate entries"));
        }
    }
}

/// Checks that items of a set or map are never null and that their keys always have a value.
pub(super) fn check_items_of_set_or_map(errors: &mut ErrorList, node: SchemaNode<'_>, path: &str) {
    let Some(list_type @ ("set" | "map")) = node.optional_text(LIST_TYPE) else { return };
    let Some(items) = node.item_schema() else { return };
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let required: HashSet<_> = items.texts("required").collect();
    for key in node.texts(LIST_MAP_KEYS) {
        let Some(property) = items.property(key) else { continue };
        let path = format!("{path}.items.properties[{key}]");
        let prefix = "this property is in x-kubernetes-list-map-keys, so it";
        if !required.contains(key) && !property.is_set("default") {
            let detail = format!("{prefix} must have a default or be a required property");
            errors.push(FieldError::required(format!("{path}.default"), detail));
        }
        if property.flag("nullable") {
            errors.push(FieldError::forbidden(format!("{path}.nullable"), format!("{prefix} cannot be nullable")));
        }
    }
}

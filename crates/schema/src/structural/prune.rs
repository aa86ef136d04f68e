//! Pruning of fields that a schema does not specify, and of nulls that it does not allow.

use std::fmt::Write as _;

use api::json::JsonObject;
use serde_json::Value;

use super::node::{AdditionalProperties, SchemaNode};

/// Whether a field of a resource is kept without being in the schema.
pub(super) fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Removes the fields of a resource that the schema does not specify; returns their paths, sorted, if asked for.
pub(super) fn prune(object: &mut JsonObject, schema: &SchemaNode, reports: bool) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), unknown: reports.then(Vec::new) };
    pruner.object(object, Some(schema), true);
    let mut unknown = pruner.unknown.unwrap_or_default();
    unknown.sort();
    unknown
}

/// Removes nulls of fields that are neither nullable nor have a default.
pub(super) fn drop_nulls(object: &mut JsonObject, schema: &SchemaNode) {
    object.retain(|name, value| {
        let Some(field) = schema.field(name) else { return true };
        if value.is_null() {
            return field.is_nullable() || field.default().is_some();
        }
        drop_nulls_in_value(value, field);
        true
    });
}

fn drop_nulls_in_value(value: &mut Value, schema: &SchemaNode) {
    match value {
        Value::Object(object) => drop_nulls(object, schema),
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| drop_nulls_in_value(item, schema));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Pruner {
    /// The path of the current value; empty unless paths are reported.
    path: String,
    unknown: Option<Vec<String>>,
}

impl Pruner {
    fn object(&mut self, object: &mut JsonObject, schema: Option<&SchemaNode>, is_resource: bool) {
        let Some(schema) = schema else {
            object.keys().for_each(|name| self.record(name));
            object.clear();
            return;
        };
        let is_resource = is_resource || schema.is_embedded_resource();
        object.retain(|name, value| {
            if is_resource && is_meta_field(name) {
                return true;
            }
            if let Some(property) = schema.property(name) {
                self.field(name, value, Some(property));
                return true;
            }
            match schema.additional_properties() {
                AdditionalProperties::Schema(values) => self.field(name, value, Some(values)),
                AdditionalProperties::Allowed(_) => self.field(name, value, None),
                AdditionalProperties::Absent if schema.preserves_unknown_fields() => {}
                AdditionalProperties::Absent => {
                    self.record(name);
                    return false;
                }
            }
            true
        });
    }

    fn field(&mut self, name: &str, value: &mut Value, schema: Option<&SchemaNode>) {
        let length = self.path.len();
        self.push_key(name);
        self.value(value, schema);
        self.path.truncate(length);
    }

    fn value(&mut self, value: &mut Value, schema: Option<&SchemaNode>) {
        match value {
            Value::Object(object) => self.object(object, schema, false),
            Value::Array(items) => {
                let preserves = schema.is_some_and(SchemaNode::preserves_unknown_fields);
                self.items(items, schema.and_then(SchemaNode::items), preserves);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Items of a list that preserves unknown fields preserve them, too.
    fn items(&mut self, items: &mut [Value], schema: Option<&SchemaNode>, preserves: bool) {
        if preserves && schema.is_none() {
            return;
        }
        let length = self.path.len();
        for (index, item) in items.iter_mut().enumerate() {
            if self.unknown.is_some() {
                let _ = write!(self.path, "[{index}]");
            }
            match (preserves, schema, &mut *item) {
                (true, Some(schema), Value::Object(object)) => self.preserved_object(object, schema),
                (true, Some(schema), Value::Array(inner)) => self.items(inner, schema.items(), true),
                _ => self.value(item, schema),
            }
            self.path.truncate(length);
        }
    }

    fn preserved_object(&mut self, object: &mut JsonObject, schema: &SchemaNode) {
        for (name, value) in object.iter_mut() {
            if schema.is_embedded_resource() && is_meta_field(name) {
                continue;
            }
            if let Some(property) = schema.property(name) {
                self.field(name, value, Some(property));
                continue;
            }
            match schema.additional_properties() {
                AdditionalProperties::Schema(values) => self.field(name, value, Some(values)),
                AdditionalProperties::Allowed(_) => self.field(name, value, None),
                AdditionalProperties::Absent => {}
            }
        }
    }

    fn record(&mut self, name: &str) {
        let length = self.path.len();
        self.push_key(name);
        let path = self.path.clone();
        self.unknown.iter_mut().for_each(|unknown| unknown.push(path.clone()));
        self.path.truncate(length);
    }

    fn push_key(&mut self, name: &str) {
        if self.unknown.is_none() {
            return;
        }
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

/// Removes the fields of a value that the schema does not specify.
pub(super) fn prune_value(value: &mut Value, schema: &SchemaNode) {
    Pruner { path: String::new(), unknown: None }.value(value, Some(schema));
}

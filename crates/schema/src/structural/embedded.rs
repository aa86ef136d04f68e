//! Metadata of resources: at the root and in embedded resources.
//!
//! Kubernetes decodes it into its Go type and encodes it again: unknown fields go, times are in UTC, empty values are
//! absent.

use std::fmt::Write as _;

use api::FieldError;
use api::json::JsonObject;
use api::validation::validate_dns1035_label;
use serde_json::Value;

use super::node::SchemaNode;
use super::object_meta::{MetadataType, round_trip, salvage};

/// Decodes the metadata of embedded resources of a request; reports unknown fields of it as paths.
pub(super) fn coerce(
    object: &mut JsonObject,
    schema: &SchemaNode,
    metadata: MetadataType<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    let mut walk = Coercion { metadata, path: String::new(), unknown: Vec::new(), is_lenient: false };
    walk.object(object, schema, false)?;
    walk.unknown.sort();
    unknown.append(&mut walk.unknown);
    Ok(())
}

/// Drops malformed metadata of embedded resources of a stored object; with `is_resource` that of the object, too.
pub(super) fn repair(object: &mut JsonObject, schema: &SchemaNode, is_resource: bool, metadata: MetadataType<'_>) {
    let mut walk = Coercion { metadata, path: String::new(), unknown: Vec::new(), is_lenient: true };
    // A lenient walk has no errors.
    let _ = walk.object(object, schema, is_resource);
}

/// Decodes and validates `apiVersion`, `kind` and `metadata` of the resources in a value of a node. With `is_resource` the value is
/// one itself.
pub(super) fn check(
    value: &mut Value,
    schema: &SchemaNode,
    is_resource: bool,
    metadata: MetadataType<'_>,
    validator: MetadataValidator<'_>,
) -> Vec<FieldError> {
    let mut decoding = Coercion { metadata, path: String::new(), unknown: Vec::new(), is_lenient: false };
    let decoded = match value.as_object_mut() {
        Some(object) => decoding.object(object, schema, is_resource),
        None => decoding.value(value, schema),
    };
    if let Err(error) = decoded {
        return vec![error];
    }
    let mut walk = Validation { metadata, validator, path: String::new(), errors: Vec::new() };
    match value.as_object() {
        Some(object) => walk.object(object, schema, is_resource),
        None => walk.value(value, schema),
    }
    walk.errors
}

struct Coercion<'t> {
    metadata: MetadataType<'t>,
    path: String,
    unknown: Vec<String>,
    /// Drop what is malformed.
    is_lenient: bool,
}

impl Coercion<'_> {
    fn object(&mut self, object: &mut JsonObject, schema: &SchemaNode, is_resource: bool) -> Result<(), FieldError> {
        if is_resource || schema.is_embedded_resource() {
            self.resource(object)?;
        }
        for (name, value) in object {
            let length = self.path.len();
            let field = match (schema.property(name), schema.additional_schema()) {
                (Some(property), _) => {
                    push_child(&mut self.path, name);
                    property
                }
                (None, Some(values)) => {
                    let _ = write!(self.path, "[{name}]");
                    values
                }
                (None, None) => continue,
            };
            self.value(value, field)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn value(&mut self, value: &mut Value, schema: &SchemaNode) -> Result<(), FieldError> {
        match value {
            Value::Object(object) => self.object(object, schema, false),
            Value::Array(items) => {
                let Some(schema) = schema.items() else { return Ok(()) };
                let length = self.path.len();
                for (index, item) in items.iter_mut().enumerate() {
                    let _ = write!(self.path, "[{index}]");
                    self.value(item, schema)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn resource(&mut self, object: &mut JsonObject) -> Result<(), FieldError> {
        for name in ["apiVersion", "kind"] {
            match object.get(name) {
                None | Some(Value::String(_)) => {}
                Some(_) if self.is_lenient => {
                    object.remove(name);
                }
                Some(other) => return Err(FieldError::invalid(self.child(name), other.clone(), "must be a string")),
            }
        }
        let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
        if self.is_lenient {
            // What is no object stays.
            let _ = salvage(metadata, self.metadata);
            return Ok(());
        }
        match round_trip(metadata, self.metadata) {
            Ok(unknown) => {
                let path = self.child("metadata");
                self.unknown.extend(unknown.iter().map(|field| format!("{path}.{field}")));
                Ok(())
            }
            Err(error) => Err(FieldError::invalid(self.child("metadata"), metadata.clone(), error)),
        }
    }

    fn child(&self, name: &str) -> String {
        let mut path = self.path.clone();
        push_child(&mut path, name);
        path
    }
}

pub(super) fn push_child(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Validates the metadata of an embedded resource: gets `{"metadata": …}` and returns errors with paths from there.
pub type MetadataValidator<'v> = &'v dyn Fn(&JsonObject) -> Vec<FieldError>;

/// Validates `apiVersion`, `kind` and `metadata` of embedded resources.
pub(super) fn validate(
    object: &JsonObject,
    schema: &SchemaNode,
    metadata: MetadataType<'_>,
    validator: MetadataValidator<'_>,
) -> Vec<FieldError> {
    let mut walk = Validation { metadata, validator, path: String::new(), errors: Vec::new() };
    walk.object(object, schema, false);
    walk.errors
}

struct Validation<'t> {
    metadata: MetadataType<'t>,
    validator: MetadataValidator<'t>,
    path: String,
    errors: Vec<FieldError>,
}

impl Validation<'_> {
    fn object(&mut self, object: &JsonObject, schema: &SchemaNode, is_resource: bool) {
        if is_resource || schema.is_embedded_resource() {
            self.resource(object);
        }
        for (name, value) in object {
            let length = self.path.len();
            match (schema.property(name), schema.additional_schema()) {
                (Some(property), _) => {
                    push_child(&mut self.path, name);
                    self.value(value, property);
                }
                (None, Some(values)) => {
                    let _ = write!(self.path, "[{name}]");
                    self.value(value, values);
                }
                (None, None) => {}
            }
            self.path.truncate(length);
        }
    }

    fn value(&mut self, value: &Value, schema: &SchemaNode) {
        match value {
            Value::Object(object) => self.object(object, schema, false),
            Value::Array(items) => {
                let Some(schema) = schema.items() else { return };
                let length = self.path.len();
                for (index, item) in items.iter().enumerate() {
                    let _ = write!(self.path, "[{index}]");
                    self.value(item, schema);
                    self.path.truncate(length);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn resource(&mut self, object: &JsonObject) {
        let length = self.path.len();
        for name in ["apiVersion", "kind"] {
            if !object.contains_key(name) {
                push_child(&mut self.path, name);
                self.errors.push(FieldError::required(self.path.clone(), ""));
                self.path.truncate(length);
            }
        }
        for name in ["apiVersion", "kind"] {
            let Some(value) = object.get(name) else { continue };
            push_child(&mut self.path, name);
            if let Some(problem) = type_meta_problem(name, value) {
                self.errors.push(FieldError::invalid(self.path.clone(), value.clone(), problem));
            }
            self.path.truncate(length);
        }
        if let Some(metadata) = object.get("metadata") {
            self.metadata(metadata);
        }
    }

    fn metadata(&mut self, value: &Value) {
        let mut metadata = value.clone();
        if let Err(error) = round_trip(&mut metadata, self.metadata) {
            let mut path = self.path.clone();
            push_child(&mut path, "metadata");
            self.errors.push(FieldError::invalid(path, value.clone(), error));
            return;
        }
        if let Value::Object(metadata) = &mut metadata
            && metadata.get("name").is_none_or(|name| name == "")
        {
            // A name is not required here.
            metadata.insert("name".to_owned(), "fakename".into());
        }
        let object = JsonObject::from_iter([("metadata".to_owned(), metadata)]);
        let errors = (self.validator)(&object);
        self.errors.extend(errors.into_iter().map(|error| error.below(&self.path)));
    }
}

fn type_meta_problem(name: &str, value: &Value) -> Option<String> {
    let Value::String(text) = value else { return Some("must be a string".to_owned()) };
    if text.is_empty() {
        return Some("must not be empty".to_owned());
    }
    if name == "apiVersion" {
        let slashes = text.matches('/').count();
        return (slashes > 1).then(|| format!("unexpected GroupVersion string: {text}"));
    }
    let errors = validate_dns1035_label(&text.to_lowercase());
    (!errors.is_empty()).then(|| format!("may have mixed case, but should otherwise match: {}", errors.join(",")))
}

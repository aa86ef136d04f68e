//! Validation of a value against a schema, with Kubernetes' verdicts, paths and messages.
//!
//! Errors of sibling fields come sorted by name; Kubernetes reports them in random order. At most [`ERRORS_MAX`] errors
//! are reported.

mod junctors;
mod number;
mod outcome;

use std::borrow::Cow;
use std::fmt::Write as _;

use api::FieldError;
use api::json::{JsonObject, to_go_json};
use api::quote::Quoted;
use serde_json::Value;

use super::correlate::{OldItems, is_correlated_equal};
use super::formats;
use super::node::{AdditionalProperties, SchemaNode, SchemaType};
use number::Num;
use outcome::Outcome;
pub(super) use outcome::{ERRORS_MAX, go_value};

/// Validates a value. With an old value, errors of what has not changed since are dropped. `parent` is the path of the
/// value; empty for whole objects.
pub(super) fn validate(
    value: &Value,
    old: Option<&Value>,
    schema: &SchemaNode,
    parent: &'static str,
    release: u8,
) -> Vec<FieldError> {
    let mut validator = Validator { release, parent, path: String::new() };
    validator.ratcheted(value, old, schema).into_errors()
}

struct Validator {
    release: u8,
    parent: &'static str,
    /// In the notation of messages, relative to `parent`.
    path: String,
}

impl Validator {
    /// Validates a value, and drops the errors if it equals the old one that corresponds to it.
    fn ratcheted(&mut self, value: &Value, old: Option<&Value>, schema: &SchemaNode) -> Outcome {
        let mut outcome = self.check(value, old, schema);
        if !outcome.is_valid() && old.is_some_and(|old| is_correlated_equal(value, old, schema)) {
            outcome.clear_errors();
        }
        outcome
    }

    fn check(&mut self, value: &Value, old: Option<&Value>, schema: &SchemaNode) -> Outcome {
        let mut outcome = Outcome::default();
        if value.is_null() {
            self.check_null(schema, &mut outcome);
            self.check_enum(value, schema, &mut outcome);
            return outcome;
        }
        let format = formats::enforced(schema, self.release);
        if has_type(schema) || format.is_some() {
            self.check_type(value, schema, format, &mut outcome);
            outcome.count();
        }
        self.check_junctors(value, schema, &mut outcome);
        outcome.count();
        match value {
            Value::String(text) => {
                self.check_text(text, schema, &mut outcome);
                outcome.count();
                if let Some(format) = format
                    && let Some(is_valid) = formats::validate(format, text)
                {
                    if !is_valid {
                        self.invalid_type(&mut outcome, format, text);
                    }
                    outcome.count();
                }
            }
            Value::Number(number) => {
                self.check_number(Num::from(number), schema, &mut outcome);
                outcome.count();
            }
            Value::Array(items) => {
                self.check_items(items, old, schema, &mut outcome);
                outcome.count();
            }
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        self.check_enum(value, schema, &mut outcome);
        outcome.count();
        if let Value::Object(object) = value {
            self.check_object(object, old, schema, &mut outcome);
            outcome.count();
        }
        outcome.count();
        outcome
    }

    fn check_null(&self, schema: &SchemaNode, outcome: &mut Outcome) {
        if has_type(schema) && !schema.is_nullable() {
            self.invalid_type(outcome, &type_names(schema), "null");
        } else {
            outcome.count();
        }
    }

    fn check_type(&self, value: &Value, schema: &SchemaNode, format: Option<&str>, outcome: &mut Outcome) {
        let (found, found_format) = type_of(value);
        let is_integral = match value {
            Value::Number(number) => match Num::from(number) {
                Num::Int(_) => has(schema, SchemaType::Number),
                Num::Float(float) => number::is_json_integer(float) && has(schema, SchemaType::Integer),
            },
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => false,
        };
        let matches = has(schema, found) || is_integral;
        let is_text_or_list = matches!(value, Value::String(_) | Value::Array(_));
        match format {
            Some(format) if !is_text_or_list && !matches && found_format != format => {
                self.invalid_type(outcome, format, found_format);
            }
            // A list passes for a text with a format, as in Kubernetes.
            Some(_) if is_text_or_list && !has(schema, SchemaType::Number) && !has(schema, SchemaType::Integer) => {
                outcome.count();
            }
            _ if !matches => self.invalid_type(outcome, &type_names(schema), found.name()),
            _ => outcome.count(),
        }
    }

    fn invalid_type(&self, outcome: &mut Outcome, expected: &str, found: &str) {
        let text = format!("{} in body must be of type {expected}: {}", self.path, Quoted(found));
        outcome.add(&text.clone(), || FieldError::type_invalid(self.field(), found, text));
    }

    fn check_text(&self, text: &str, schema: &SchemaNode, outcome: &mut Outcome) {
        let (max, min) = (schema.max_length(), schema.min_length());
        if max.is_some() || min.is_some() {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            if let Some(max) = max.filter(|max| length > *max) {
                let message = format!("{} in body should be at most {max} chars long", self.path);
                outcome.add(&message, || match usize::try_from(max) {
                    Ok(max) => FieldError::too_long(self.field(), max),
                    Err(_) => FieldError::too_long(self.field(), 0).with_detail("value is too long"),
                });
                return;
            }
            if let Some(min) = min.filter(|min| length < *min) {
                self.invalid(outcome, text, &format!("should be at least {min} chars long"));
                return;
            }
        }
        let Some(pattern) = schema.pattern() else { return };
        match pattern.is_match(text) {
            Ok(true) => {}
            Ok(false) => self.invalid(outcome, text, &format!("should match '{}'", pattern.as_str())),
            Err(error) => {
                let problem = format!("should match '{}, but pattern is invalid: {error}'", pattern.as_str());
                self.invalid(outcome, text, &problem);
            }
        }
    }

    /// Adds an error with the message `<path> in body <problem>`.
    fn invalid(&self, outcome: &mut Outcome, value: impl Into<Value>, problem: &str) {
        let text = format!("{} in body {problem}", self.path);
        outcome.add(&text.clone(), || FieldError::invalid(self.field(), value, text));
    }

    /// Adds an error that Kubernetes reports without a field.
    fn without_field(&self, outcome: &mut Outcome, text: String) {
        outcome.add(&text.clone(), || FieldError::invalid(field_path(self.parent, ""), "", text));
    }

    fn check_enum(&self, value: &Value, schema: &SchemaNode, outcome: &mut Outcome) {
        let allowed = schema.enum_values();
        if allowed.is_empty() || allowed.iter().any(|allowed| number::is_enum_match(value, allowed)) {
            return;
        }
        let shown: Vec<_> = allowed.iter().map(go_value).collect();
        let text = format!("{} in body should be one of [{}]", self.path, shown.join(" "));
        outcome.add(&text, || {
            let shown = allowed.iter().map(|value| match value {
                Value::String(text) => Cow::from(text),
                _ => String::from_utf8_lossy(&to_go_json(value)).into_owned().into(),
            });
            let shown: Vec<Cow<'_, str>> = shown.collect();
            let names: Vec<_> = shown.iter().map(|name| &**name).collect();
            FieldError::not_supported(self.field(), value.clone(), &names)
        });
    }

    fn check_items(&mut self, items: &[Value], old: Option<&Value>, schema: &SchemaNode, outcome: &mut Outcome) {
        if let Some(item_schema) = schema.items() {
            let old = old.and_then(|old| OldItems::new(old, schema));
            let length = self.path.len();
            for (index, item) in items.iter().enumerate() {
                let _ = write!(self.path, "[{index}]");
                let old = old.as_ref().and_then(|old| old.get(item));
                outcome.merge(self.ratcheted(item, old, item_schema));
                self.path.truncate(length);
            }
        }
        let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_items().filter(|min| size < *min) {
            self.invalid(outcome, size, &format!("should have at least {min} items"));
        }
        if let Some(max) = schema.max_items().filter(|max| size > *max) {
            self.too_many(outcome, items.len(), max, "items");
        }
        if schema.has_unique_items() && has_duplicates(items) {
            self.invalid(outcome, "", "shouldn't contain duplicates");
        }
        outcome.count();
    }

    fn too_many(&self, outcome: &mut Outcome, actual: usize, max: i64, unit: &str) {
        let text = format!("{} in body should have at most {max} {unit}", self.path);
        outcome.add(&text, || match usize::try_from(max) {
            Ok(max) => FieldError::too_many(self.field(), actual, max),
            Err(_) => FieldError::too_many(self.field(), actual, 0).with_detail("has too many items"),
        });
    }

    fn check_object(&mut self, object: &JsonObject, old: Option<&Value>, schema: &SchemaNode, outcome: &mut Outcome) {
        let size = i64::try_from(object.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_properties().filter(|min| size < *min) {
            self.invalid(outcome, size, &format!("should have at least {min} properties"));
        }
        if let Some(max) = schema.max_properties().filter(|max| size > *max) {
            self.too_many(outcome, object.len(), max, "properties");
        }
        self.check_additional(object, old, schema, outcome);
        if !schema.properties().is_empty() {
            for (name, value) in object {
                let Some(property) = schema.property(name) else { continue };
                let old = self.old_field(old, name);
                let length = self.path.len();
                super::embedded::push_child(&mut self.path, name);
                outcome.merge(self.ratcheted(value, old, property));
                self.path.truncate(length);
            }
        }
        for name in schema.required() {
            if !object.contains_key(&**name) {
                let path = format!("{}.{name}", self.path);
                let text = format!("{path} in body is required");
                outcome.add(&text, || FieldError::required(field_path(self.parent, &path), ""));
            }
        }
    }

    fn check_additional(
        &mut self,
        object: &JsonObject,
        old: Option<&Value>,
        schema: &SchemaNode,
        outcome: &mut Outcome,
    ) {
        match schema.additional_properties() {
            AdditionalProperties::Absent | AdditionalProperties::Allowed(true) => {}
            AdditionalProperties::Allowed(false) => {
                for name in object.keys().filter(|name| schema.property(name).is_none()) {
                    let text = format!("{}.{name} in body is a forbidden property", self.path);
                    outcome.add(&text.clone(), || FieldError::invalid(self.field(), name.as_str(), text));
                }
            }
            AdditionalProperties::Schema(values) => {
                for (name, value) in object.iter().filter(|(name, _)| schema.property(name).is_none()) {
                    let old = self.old_field(old, name);
                    let length = self.path.len();
                    self.path.push('.');
                    self.path.push_str(name);
                    outcome.merge(self.ratcheted(value, old, values));
                    self.path.truncate(length);
                }
            }
        }
    }

    /// The old value of a field. Changes of `apiVersion` cannot be seen at the root.
    fn old_field<'v>(&self, old: Option<&'v Value>, name: &str) -> Option<&'v Value> {
        let is_type_meta = self.path.is_empty() && matches!(name, "apiVersion" | "kind");
        if is_type_meta { None } else { old?.as_object()?.get(name) }
    }

    fn field(&self) -> String {
        field_path(self.parent, &self.path)
    }
}

/// The path of an error: that of the message without a leading dot.
fn field_path(parent: &str, path: &str) -> String {
    let name = path.strip_prefix('.').unwrap_or(path);
    match (parent, name) {
        ("", "") => "<nil>".to_owned(),
        ("", name) => name.to_owned(),
        (parent, "") => parent.to_owned(),
        (parent, name) => format!("{parent}.{name}"),
    }
}

fn has_type(schema: &SchemaNode) -> bool {
    schema.is_int_or_string() || schema.schema_type().is_some()
}

/// Whether the schema lists this type; int-or-string lists two, whatever `type` says.
fn has(schema: &SchemaNode, found: SchemaType) -> bool {
    if schema.is_int_or_string() {
        return matches!(found, SchemaType::Integer | SchemaType::String);
    }
    schema.schema_type() == Some(found)
}

fn type_names(schema: &SchemaNode) -> Cow<'static, str> {
    if schema.is_int_or_string() {
        return "integer,string".into();
    }
    schema.schema_type().map_or("", SchemaType::name).into()
}

/// The type of a value that is not null, and its format in Go.
fn type_of(value: &Value) -> (SchemaType, &'static str) {
    match value {
        Value::Null | Value::Object(_) => (SchemaType::Object, ""),
        Value::Bool(_) => (SchemaType::Boolean, ""),
        Value::String(_) => (SchemaType::String, ""),
        Value::Array(_) => (SchemaType::Array, ""),
        Value::Number(number) => match Num::from(number) {
            Num::Int(_) => (SchemaType::Integer, "int64"),
            Num::Float(_) => (SchemaType::Number, "float64"),
        },
    }
}

/// Compares the texts of items, which are equal exactly if the items are.
fn has_duplicates(items: &[Value]) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(items.len());
    items.iter().any(|item| !seen.insert(item.to_string()))
}

//! How clients see objects: printer columns, subresources and selectable fields.

use std::collections::HashSet;

use api::FieldError;
use api::json::JsonObject;
use serde_json::Value;

use super::error_list::ErrorList;
use super::json_fields::{object, text};
use super::schema_fields::go_value;
use super::schema_node::SchemaNode;
use crate::rules::resolve;

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];

const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Types that a selectable field may have.
const SELECTABLE_TYPES: [&str; 3] = ["string", "boolean", "integer"];

/// Selectable fields that a version may have.
pub(super) const SELECTABLE_FIELDS_MAX: usize = 8;

/// Checks one entry of `additionalPrinterColumns`.
pub(super) fn validate_column(errors: &mut ErrorList, path: &str, column: &Value) {
    let field = |name: &str| column.get(name).and_then(Value::as_str).unwrap_or_default();
    if field("name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let must_be_one_of = |allowed: &[&str]| format!("must be one of {}", allowed.join(","));
    match field("type") {
        "" => errors.push(FieldError::required(format!("{path}.type"), must_be_one_of(COLUMN_TYPES))),
        known if COLUMN_TYPES.contains(&known) => {}
        other => errors.push(FieldError::invalid(format!("{path}.type"), other, must_be_one_of(COLUMN_TYPES))),
    }
    let format = field("format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        errors.push(FieldError::invalid(format!("{path}.format"), format, must_be_one_of(COLUMN_FORMATS)));
    }
    let json_path = format!("{path}.JSONPath");
    match field("jsonPath") {
        "" => errors.push(FieldError::required(json_path, "")),
        value => errors.extend(simple_path_error(&json_path, value)),
    }
}

fn simple_path_error(path: &str, value: &str) -> Option<FieldError> {
    (!value.starts_with('.')).then(|| FieldError::invalid(path, value, "must be a simple json path starting with ."))
}

/// Checks the paths of the scale subresource.
pub(super) fn validate_subresources(errors: &mut ErrorList, path: &str, subresources: Option<&JsonObject>) {
    let Some(scale) = subresources.and_then(|subresources| object(subresources, "scale")) else { return };
    for (name, prefix) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let path = format!("{path}.scale.{name}");
        let value = text(scale, name);
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if let Some(error) = simple_path_error(&path, value) {
            errors.push(error);
        } else if !is_below(value, prefix) {
            errors.push(FieldError::invalid(path, value, format!("should be a json path under {prefix}")));
        }
    }
    let (path, value) = (format!("{path}.scale.labelSelectorPath"), text(scale, "labelSelectorPath"));
    if value.is_empty() {
        return;
    }
    if let Some(error) = simple_path_error(&path, value) {
        errors.push(error);
    } else if ![".spec", ".status"].into_iter().any(|prefix| is_below(value, prefix)) {
        let detail = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid_printed(path, &go_value(&value.into()), detail));
    }
}

fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'))
}

/// Checks `selectableFields` against the schema that is at the same place; `allows_too_many` if the old definition had
/// the same fields.
pub(super) fn validate_selectable_fields(
    errors: &mut ErrorList,
    path: &str,
    fields: &[Value],
    schema: SchemaNode<'_>,
    allows_too_many: bool,
) {
    let mut seen = HashSet::new();
    for (at, field) in fields.iter().enumerate() {
        let path = format!("{path}[{at}].jsonPath");
        let json_path = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        if json_path.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let (resolved, field) = match resolve(json_path, schema, false) {
            Ok(found) => found,
            Err(problem) => {
                errors.push(FieldError::invalid(path, json_path, format!("is an invalid path: {problem}")));
                continue;
            }
        };
        if resolved.split(['.', '[']).next() == Some("metadata") {
            errors.push(FieldError::invalid(&path, json_path, "must not point to fields in metadata"));
        }
        if !field.is_some_and(|schema| SELECTABLE_TYPES.contains(&schema.schema_type())) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.push(FieldError::invalid(&path, json_path, detail));
        }
        if !seen.insert(resolved) {
            errors.push(FieldError::duplicate(path, json_path));
        }
    }
    if seen.len() > SELECTABLE_FIELDS_MAX && !allows_too_many {
        errors.push(FieldError::too_many(path, seen.len(), SELECTABLE_FIELDS_MAX));
    }
}

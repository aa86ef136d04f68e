//! Strategic merge patch: a merge patch with a schema that defines which lists merge, and by which key.
//!
//! Directives: `$patch: delete` or `replace` in an object or an item, `$deleteFromPrimitiveList/<field>`,
//! `$setElementOrder/<field>` and `$retainKeys`. Fields outside the schema, such as those of
//! another release, can be patched too: objects merge, lists are replaced.

mod lists;

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::decode::Decoded;
use crate::rejection::Rejection;
use schema::SchemaCursor;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

const INVALID_PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const INVALID_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const INVALID_ELEMENT_ORDER: &str = "invalid patch format of setElementOrder list";

/// A strategic merge patch of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategicPatch(pub Map<String, Value>);

impl StrategicPatch {
    /// Parses a patch, which must be a JSON object.
    pub fn parse(body: &[u8]) -> Result<Decoded<Self>, Rejection> {
        let Decoded { value, duplicate_fields } = super::decode_patch_object(body, "")?;
        Ok(Decoded { value: Self(value.unwrap_or_default()), duplicate_fields })
    }

    /// Merges the patch into a copy of the object; `schema` is that of the object.
    pub fn apply(&self, object: &Map<String, Value>, schema: SchemaCursor<'_>) -> Result<Value, Rejection> {
        merge_object(object.clone(), &self.0, schema).map(Value::Object)
    }
}

fn merge_object(
    mut original: Map<String, Value>,
    patch: &Map<String, Value>,
    schema: SchemaCursor<'_>,
) -> Result<Map<String, Value>, Rejection> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None => {}
        Some(Some("replace")) => return Ok(strip_directives_from_fields(patch)),
        Some(Some("delete")) => return Ok(Map::new()),
        Some(_) => return Err(unknown_directive_error(patch)),
    }
    retain_keys(&mut original, patch)?;
    let ordered = merge_ordered_lists(&mut original, patch, schema)?;
    for (name, value) in patch {
        if name == RETAIN_KEYS || name.starts_with(SET_ELEMENT_ORDER) || ordered.contains(name.as_str()) {
            continue;
        }
        if name.starts_with(DELETE_FROM_PRIMITIVE_LIST) {
            delete_primitives(&mut original, name, value)?;
        } else {
            merge_field(&mut original, name, value, schema)?;
        }
    }
    Ok(original)
}

fn merge_field(
    original: &mut Map<String, Value>,
    name: &str,
    patch: &Value,
    schema: SchemaCursor<'_>,
) -> Result<(), Rejection> {
    let (field, inside) = schema.field_or_default(name);
    let merged = match (original.remove(name), patch) {
        (_, Value::Null) => None,
        (Some(Value::Object(before)), Value::Object(patch)) if !field.replaces_objects => {
            Some(Value::Object(merge_object(before, patch, inside)?))
        }
        (Some(Value::Array(before)), Value::Array(patch)) if field.merges_lists => {
            Some(Value::Array(lists::merge(before, patch, field.merge_key, inside)?))
        }
        (_, patch) => strip_directives(patch),
    };
    if let Some(merged) = merged {
        original.insert(name.to_owned(), merged);
    }
    Ok(())
}

/// Removes fields that `$retainKeys` does not list. Fails if the patch sets such a field.
fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), Rejection> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let bad = || Rejection::BadRequest(INVALID_RETAIN_KEYS.to_owned());
    let keys: HashSet<&str> = keys.as_array().ok_or_else(bad)?.iter().filter_map(Value::as_str).collect();
    let is_exempt = |name: &str, value: &Value| value.is_null() || name.starts_with('$');
    if patch.iter().any(|(name, value)| !is_exempt(name, value) && !keys.contains(name.as_str())) {
        return Err(bad());
    }
    original.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

/// Merges and orders the lists that have a `$setElementOrder` directive; returns their field names.
fn merge_ordered_lists<'p>(
    original: &mut Map<String, Value>,
    patch: &'p Map<String, Value>,
    schema: SchemaCursor<'_>,
) -> Result<HashSet<&'p str>, Rejection> {
    let bad = || Rejection::BadRequest(INVALID_ELEMENT_ORDER.to_owned());
    let mut done = HashSet::new();
    for (directive, order) in patch.iter().filter(|(name, _)| name.starts_with(SET_ELEMENT_ORDER)) {
        let name = directive.strip_prefix(SET_ELEMENT_ORDER).and_then(|rest| rest.strip_prefix('/')).ok_or_else(bad)?;
        let order = order.as_array().ok_or_else(bad)?;
        let (field, inside) = schema.field_or_default(name);
        if !field.merges_lists {
            continue;
        }
        let as_list = |value: Option<&Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items.clone())),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => Err(bad()),
        };
        let (before, patched) = (as_list(original.get(name))?, patch.get(name));
        let patched = match patched {
            Some(Value::Null) => continue,
            other => as_list(other)?,
        };
        if before.is_none() && patched.is_none() {
            continue;
        }
        let arranged = lists::merge_in_order(before, patched.as_deref(), order, field.merge_key, inside)?;
        original.insert(name.to_owned(), Value::Array(arranged));
        done.insert(name);
    }
    Ok(done)
}

fn delete_primitives(original: &mut Map<String, Value>, directive: &str, items: &Value) -> Result<(), Rejection> {
    let bad = || Rejection::BadRequest(INVALID_PRIMITIVE_LIST.to_owned());
    let name =
        directive.strip_prefix(DELETE_FROM_PRIMITIVE_LIST).and_then(|rest| rest.strip_prefix('/')).ok_or_else(bad)?;
    let items = items.as_array().ok_or_else(bad)?;
    let gone: HashSet<String> = items.iter().map(Value::to_string).collect();
    if let Some(Value::Array(list)) = original.get_mut(name) {
        list.retain(|item| !gone.contains(&item.to_string()));
    }
    Ok(())
}

/// A part of the patch without directives and null fields, to be stored where there is nothing to merge with. `None` if
/// the part itself has a `$patch` directive.
fn strip_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(strip_directives_from_fields(fields))),
        Value::Array(items) => Some(items.iter().filter_map(strip_directives).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
    }
}

fn strip_directives_from_fields(fields: &Map<String, Value>) -> Map<String, Value> {
    let is_directive = |name: &str| {
        name == DIRECTIVE
            || name == RETAIN_KEYS
            || name.starts_with(DELETE_FROM_PRIMITIVE_LIST)
            || name.starts_with(SET_ELEMENT_ORDER)
    };
    let kept = fields.iter().filter(|(name, value)| !is_directive(name) && !value.is_null());
    kept.filter_map(|(name, value)| Some((name.clone(), strip_directives(value)?))).collect()
}

fn unknown_directive_error(patch: &Map<String, Value>) -> Rejection {
    let directive = &patch[DIRECTIVE];
    let shown = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    Rejection::Unclassified(format!("unknown patch type: {shown} in map: {}", excerpt(patch)))
}

/// The first 200 characters of a part of the patch, for an error message.
fn excerpt(fields: &Map<String, Value>) -> String {
    Value::Object(fields.clone()).to_string().chars().take(200).collect()
}

#[cfg(test)]
mod tests;

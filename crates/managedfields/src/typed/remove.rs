//! Removal of fields and items from an object.

use api::json::JsonObject;
use serde_json::Value;

use super::atom::{Handled, Type};
use super::items::{element_of_item, first_positions};
use crate::field_set::{FieldSet, PathElement};

/// The object without the fields and items of a set.
pub(crate) fn remove_items(object: &JsonObject, removed: &FieldSet, object_type: Type<'_>) -> JsonObject {
    let Handled::Map(map) = object_type.atom().first() else { return object.clone() };
    fields(object, removed, &|name| map.child(name))
}

fn fields<'t>(object: &JsonObject, removed: &FieldSet, type_of: &dyn Fn(&str) -> Option<Type<'t>>) -> JsonObject {
    let mut rest = JsonObject::new();
    for (name, value) in object {
        let value = match (removed.get(&PathElement::field(name)), type_of(name)) {
            (Some(node), _) if node.is_member => continue,
            (Some(node), Some(field)) => remove_inside(value, &node.children, field),
            _ => value.clone(),
        };
        rest.insert(name.clone(), value);
    }
    rest
}

/// The rest of a value of which something inside is removed; null if nothing is left.
fn remove_inside(value: &Value, removed: &FieldSet, value_type: Type<'_>) -> Value {
    match (value_type.handled(value), value) {
        (Handled::Scalar(_), _) => value.clone(),
        (Handled::Map(map), Value::Object(object)) if !map.is_atomic => {
            let rest = fields(object, removed, &|name| map.child(name));
            if rest.is_empty() { Value::Null } else { Value::Object(rest) }
        }
        (Handled::List(list), Value::Array(items)) if !list.is_atomic() => {
            let rest = items.iter().filter_map(|item| {
                let node = element_of_item(list, item).ok().and_then(|element| removed.get(&element));
                match node {
                    Some(node) if node.is_member => None,
                    Some(node) => Some(remove_inside(item, &node.children, list.items)),
                    None => Some(item.clone()),
                }
            });
            let rest: Vec<Value> = rest.collect();
            if rest.is_empty() { Value::Null } else { Value::Array(rest) }
        }
        _ => Value::Null,
    }
}

/// Writes the empty objects and lists of a configuration where removal left null or nothing: in Kubernetes that stays, though
/// the schema may not allow null, and only a second apply of the same configuration corrects it.
pub(crate) fn restore_applied_empty(object: &mut JsonObject, config: &JsonObject, object_type: Type<'_>) {
    if let Handled::Map(map) = object_type.atom().first() {
        restore_in_fields(object, config, &|name| map.child(name));
    }
}

fn restore_in_fields<'t>(object: &mut JsonObject, config: &JsonObject, type_of: &dyn Fn(&str) -> Option<Type<'t>>) {
    for (name, applied) in config {
        let Some(field) = type_of(name) else { continue };
        match object.get_mut(name) {
            Some(value) => restore_in_value(value, applied, field),
            None if is_empty(applied) => {
                object.insert(name.clone(), applied.clone());
            }
            None => {}
        }
    }
}

fn restore_in_value(value: &mut Value, applied: &Value, value_type: Type<'_>) {
    match (value_type.handled(applied), applied, value) {
        (_, _, value @ Value::Null) if is_empty(applied) => *value = applied.clone(),
        (Handled::Map(map), Value::Object(fields), Value::Object(object)) if !map.is_atomic => {
            restore_in_fields(object, fields, &|name| map.child(name));
        }
        (Handled::List(list), Value::Array(applied), Value::Array(items)) if !list.is_atomic() => {
            let positions = first_positions(list, items);
            for applied in applied.iter().filter(|applied| applied.is_object()) {
                let position = element_of_item(list, applied).ok().and_then(|element| positions.get(&element));
                if let Some(item) = position.and_then(|position| items.get_mut(*position)) {
                    restore_in_value(item, applied, list.items);
                }
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

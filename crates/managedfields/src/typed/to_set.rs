//! The set of the fields of an object: what a manager that applies it owns.

use api::json::JsonObject;
use serde_json::Value;

use super::atom::{Handled, List, MapOf, Type};
use super::items::indexed_items;
use crate::field_set::{FieldSet, PathElement};

/// The fields of an object.
pub(crate) fn to_set(object: &JsonObject, object_type: Type<'_>) -> FieldSet {
    match object_type.atom().first() {
        Handled::Map(map) => fields(object, map),
        Handled::Scalar(_) | Handled::List(_) => FieldSet::default(),
    }
}

/// Whether the value is a member, and the fields below it.
fn value_set(value: &Value, value_type: Type<'_>) -> (bool, FieldSet) {
    match (value_type.handled(value), value) {
        (Handled::Scalar(_), _) => (true, FieldSet::default()),
        (Handled::List(list), _) if list.is_atomic() => (true, FieldSet::default()),
        (Handled::Map(map), _) if map.is_atomic => (true, FieldSet::default()),
        (Handled::List(list), Value::Array(items)) => (false, item_set(items, list)),
        (Handled::Map(map), Value::Object(object)) => (false, fields(object, map)),
        _ => (false, FieldSet::default()),
    }
}

fn fields(object: &JsonObject, map: MapOf<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    for (name, value) in object {
        let named = map.field(name);
        let Some(field) = named.or_else(|| map.others()) else { continue };
        let (is_member, below) = value_set(value, field);
        let is_empty = value.is_null() || value.as_object().is_some_and(JsonObject::is_empty);
        set.add(PathElement::field(name), is_member || is_empty || named.is_none(), below);
    }
    set
}

fn item_set(items: &[Value], list: List<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    let items = indexed_items(list, items);
    for group in items.chunk_by(|one, other| one.0 == other.0) {
        let [(element, item), others @ ..] = group else { continue };
        let below = if others.is_empty() { value_set(item, list.items).1 } else { FieldSet::default() };
        set.add(element.clone(), true, below);
    }
    set
}

/// True if a list of the object has two items of the same keys or value.
pub(crate) fn has_duplicates(value: &Value, value_type: Type<'_>) -> bool {
    match (value_type.handled(value), value) {
        (Handled::Map(map), Value::Object(object)) => {
            let inside =
                |(name, value): (&String, &Value)| map.child(name).is_some_and(|field| has_duplicates(value, field));
            object.iter().any(inside)
        }
        (Handled::List(list), Value::Array(items)) => {
            let indexed = if list.is_atomic() { Vec::new() } else { indexed_items(list, items) };
            indexed.windows(2).any(|pair| pair[0].0 == pair[1].0)
                || items.iter().any(|item| has_duplicates(item, list.items))
        }
        _ => false,
    }
}

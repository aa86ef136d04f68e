//! Removal of fields and items from an object.

use api::json::JsonObject;
use serde_json::Value;

use super::atom::{Handled, Type};
use super::items::element_of_item;
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

//! Questions about a set in its wire form, answered without decoding it.
//!
//! Most writes change fields that most entries do not own. The entry of such a manager is kept as it is.

use serde_json::{Map, Value};

use super::{FieldSet, PathElement};

type RawSet = Map<String, Value>;

/// True if the set is not empty.
pub(crate) fn has_members(raw: &Value) -> bool {
    let is_known = |key: &String| matches!(key.as_bytes(), [b'f' | b'k' | b'v' | b'i', b':', ..]);
    raw.as_object().is_some_and(|map| map.keys().any(is_known))
}

/// True if a field is in both sets.
pub(crate) fn intersects(raw: &Value, set: &FieldSet) -> bool {
    let Value::Object(map) = raw else { return false };
    set.nodes.iter().any(|node| {
        children_of(map, &node.element)
            .any(|below| node.is_member && is_member(below) || intersects(below, &node.children))
    })
}

/// True if every field of `set` is in the raw set.
pub(crate) fn contains_all(raw: &Value, set: &FieldSet) -> bool {
    if set.is_empty() {
        return true;
    }
    let Value::Object(map) = raw else { return false };
    set.nodes.iter().all(|node| {
        children_of(map, &node.element)
            .any(|below| (!node.is_member || is_member(below)) && contains_all(below, &node.children))
    })
}

/// True if the node itself is in the set.
fn is_member(below: &Value) -> bool {
    match below {
        Value::Object(map) => map.contains_key(".") || !has_members(below),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => true,
    }
}

/// What is below an element. Keys of list items can be written in several ways, such as `80` and `80.0`.
fn children_of<'a>(map: &'a RawSet, element: &'a PathElement) -> impl Iterator<Item = &'a Value> {
    let key = element.to_key();
    let exact = map.get(&key);
    let is_field = matches!(element, PathElement::Field(_));
    let kind = key.as_bytes()[0];
    let others = map
        .iter()
        .filter(move |_| exact.is_none() && !is_field)
        .filter(move |(other, _)| other.as_bytes().first() == Some(&kind))
        .filter(move |(other, _)| PathElement::parse(other).is_ok_and(|other| other == *element))
        .map(|(_, below)| below);
    exact.into_iter().chain(others)
}

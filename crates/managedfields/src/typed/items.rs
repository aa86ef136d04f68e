//! Items of lists: their path elements.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::atom::{Keys, List, ListTopology};
use crate::field_set::PathElement;

#[cfg(test)]
thread_local! {
    /// Calls of [`element_of_item`], so that tests see how work grows with the length of lists.
    pub(crate) static ELEMENTS_MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The path element of an item of a list that is not atomic, or why it has none.
///
/// Unlike in Kubernetes an item of a set may be an object or a list if the schema has it so; it is identified by its whole
/// value.
pub(crate) fn element_of_item(list: List<'_>, item: &Value) -> Result<PathElement, String> {
    #[cfg(test)]
    ELEMENTS_MADE.set(ELEMENTS_MADE.get() + 1);
    match list.topology {
        ListTopology::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListTopology::Set if item.is_null() => {
            Err("associative list without keys has an element that's an explicit null".to_owned())
        }
        ListTopology::Set => {
            let items = list.items.atom();
            match item {
                Value::Object(_) if items.map.is_none() => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) if items.list.is_none() => {
                    Err("not supported: associative list with lists as elements".to_owned())
                }
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_) => Ok(PathElement::Value(Arc::new(item.clone()))),
            }
        }
        ListTopology::Keys(keys) => keyed_element(list, keys, item),
    }
}

fn keyed_element(list: List<'_>, keys: Keys<'_>, item: &Value) -> Result<PathElement, String> {
    let fields = match item {
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        Value::Object(fields) => fields,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("associative list with keys may not have non-map elements".to_owned());
        }
    };
    let item_type = list.items.atom().map;
    let mut named: Vec<(Box<str>, Value)> = Vec::new();
    let mut names = Vec::new();
    keys.for_each(|name| {
        names.push(name);
        if let Some(value) = fields.get(name) {
            named.push((name.into(), value.clone()));
        } else if let Some(default) = item_type.and_then(|item_type| item_type.default_of(name)) {
            named.push((name.into(), default.into_owned()));
        }
    });
    if named.is_empty() && !names.is_empty() {
        let names = api::quote::QuotedList(&names);
        return Err(format!(
            "associative list with keys has an element that omits all key fields {names} (and doesn't have default values for any key fields)"
        ));
    }
    named.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(PathElement::Key(named.into()))
}

/// The position of the first item of each path element.
pub(crate) fn first_positions(list: List<'_>, items: &[Value]) -> BTreeMap<PathElement, usize> {
    let mut positions = BTreeMap::new();
    for (position, item) in items.iter().enumerate() {
        if let Ok(element) = element_of_item(list, item) {
            positions.entry(element).or_insert(position);
        }
    }
    positions
}

/// The items of a list by path element, each with its position; items without one are left out.
pub(crate) fn indexed_items<'v>(list: List<'_>, items: &'v [Value]) -> Vec<(PathElement, &'v Value)> {
    let element = |item: &'v Value| Some((element_of_item(list, item).ok()?, item));
    let mut indexed: Vec<(PathElement, &Value)> = items.iter().filter_map(element).collect();
    // Stable: duplicates keep their order.
    indexed.sort_by(|one, other| one.0.cmp(&other.0));
    indexed
}

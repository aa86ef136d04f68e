//! List merging: objects by merge key, scalars by value, and the order of the result.
//!
//! Items of the patch keep the patch's order, and items that only the server has keep the server's order. Between one
//! of each, the server's order decides if the server has both; else the item of the patch comes first.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{DIRECTIVE, excerpt, merge_object, strip_directives, unknown_directive_error};
use crate::rejection::Rejection;
use schema::SchemaCursor;

/// Merges a patch into a list. `item_schema` is the type of the items.
pub(super) fn merge(
    original: Vec<Value>,
    patch: &[Value],
    merge_key: Option<&str>,
    item_schema: SchemaCursor<'_>,
) -> Result<Vec<Value>, Rejection> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    match common_item_kind(original.iter().chain(patch))? {
        ItemKind::Scalar => {
            let server = positions(&original, None)?;
            let both = original.into_iter().chain(patch.iter().cloned()).collect();
            order_items(distinct_items(both), &positions(patch, None)?, &server, None)
        }
        ItemKind::Object => {
            let key = merge_key
                .ok_or_else(|| Rejection::Unclassified("cannot merge lists without merge key for slice".to_owned()))?;
            merge_objects(original, patch, key, item_schema)
        }
    }
}

/// Merges a patch into a list, either of which may be absent, and orders the items by `$setElementOrder`.
pub(super) fn merge_in_order(
    original: Option<Vec<Value>>,
    patch: Option<&[Value]>,
    order: &[Value],
    merge_key: Option<&str>,
    item_schema: SchemaCursor<'_>,
) -> Result<Vec<Value>, Rejection> {
    check_order(patch.unwrap_or_default(), order, merge_key)?;
    let server = positions(original.as_deref().unwrap_or_default(), merge_key)?;
    let merged = match (original, patch) {
        (Some(original), Some(patch)) => merge(original, patch, merge_key, item_schema)?,
        (Some(original), None) => original,
        (None, patch) => patch.unwrap_or_default().iter().filter_map(strip_directives).collect(),
    };
    order_items(merged, &positions(order, merge_key)?, &server, merge_key)
}

fn merge_objects(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
    item_schema: SchemaCursor<'_>,
) -> Result<Vec<Value>, Rejection> {
    let (plain, special): (Vec<&Value>, Vec<&Value>) = patch.iter().partition(|item| item.get(DIRECTIVE).is_none());
    let mut is_replaced = false;
    let mut deleted = Vec::new();
    for item in special {
        let fields = item.as_object().expect("items were found to be objects");
        match fields[DIRECTIVE].as_str() {
            Some("delete") => deleted.push(item_identity(item, Some(key))?),
            Some("replace") => is_replaced = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(Rejection::Unclassified(message.to_owned()));
            }
            Some(_) | None => return Err(unknown_directive_error(fields)),
        }
    }
    if is_replaced {
        return Ok(plain.into_iter().filter_map(strip_directives).collect());
    }
    let deleted: std::collections::HashSet<String> = deleted.into_iter().collect();
    if !deleted.is_empty() {
        original.retain(|item| item.get(key).is_none_or(|id| !deleted.contains(&id.to_string())));
    }
    let server = positions(&original, Some(key))?;
    let plain: Vec<Value> = plain.into_iter().cloned().collect();
    let merged = merge_items(original, &plain, key, item_schema)?;
    order_items(merged, &positions(&plain, Some(key))?, &server, Some(key))
}

/// Merges each item of the patch into the first item with the same key, or appends it.
fn merge_items(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
    item_schema: SchemaCursor<'_>,
) -> Result<Vec<Value>, Rejection> {
    let mut at = positions(&original, Some(key))?;
    for item in patch {
        let id = item_identity(item, Some(key))?;
        match (at.get(&id).map(|at| &mut original[*at]), item) {
            (Some(Value::Object(before)), Value::Object(item)) => {
                *before = merge_object(std::mem::take(before), item, item_schema)?;
            }
            _ => {
                at.insert(id, original.len());
                original.extend(strip_directives(item));
            }
        }
    }
    Ok(original)
}

/// Sorts the items of the patch and the server-only items separately, then merges both sequences.
fn order_items(
    items: Vec<Value>,
    patch: &HashMap<String, usize>,
    server: &HashMap<String, usize>,
    merge_key: Option<&str>,
) -> Result<Vec<Value>, Rejection> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let id = item_identity(&item, merge_key)?;
        let on_server = server.get(&id).copied();
        match patch.get(&id) {
            Some(position) => named.push((*position, on_server, item)),
            None => others.push((on_server.unwrap_or(usize::MAX), on_server, item)),
        }
    }
    named.sort_by_key(|(position, ..)| *position);
    others.sort_by_key(|(position, ..)| *position);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let is_other_first = match (others.peek(), named.peek()) {
            (Some((_, Some(other), _)), Some((_, Some(named), _))) => other < named,
            (Some(_), None) => true,
            (_, Some(_)) => false,
            (None, None) => return Ok(arranged),
        };
        let next = if is_other_first { others.next() } else { named.next() };
        arranged.extend(next.map(|(.., item)| item));
    }
}

/// Rejects a patch list whose items are not in the order of `$setElementOrder`.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), Rejection> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut order_ids = order.iter().map(|item| item_identity(item, merge_key));
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let id = item_identity(item, merge_key)?;
        loop {
            match order_ids.next().transpose()? {
                Some(next) if next == id => break,
                Some(_) => {}
                None => {
                    return Err(Rejection::Unclassified(
                        "The order in patch list doesn't match $setElementOrder list".to_owned(),
                    ));
                }
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Scalar,
    Object,
}

/// Kind of all items; fails if they differ.
fn common_item_kind<'v>(items: impl Iterator<Item = &'v Value>) -> Result<ItemKind, Rejection> {
    let mut seen = None;
    for item in items {
        let kind = match item {
            Value::Object(_) => ItemKind::Object,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => ItemKind::Scalar,
            Value::Array(_) => return Err(Rejection::Unprocessable("lists of lists are not supported".to_owned())),
            Value::Null => return Err(Rejection::Unclassified("list element types are not identical".to_owned())),
        };
        if *seen.get_or_insert(kind) != kind {
            return Err(Rejection::Unclassified("list element types are not identical".to_owned()));
        }
    }
    Ok(seen.unwrap_or(ItemKind::Scalar))
}

/// Identity of an item: the value of its merge key or, without one, the item itself.
fn item_identity(item: &Value, merge_key: Option<&str>) -> Result<String, Rejection> {
    let Some(key) = merge_key else { return Ok(item.to_string()) };
    let missing = |item: &Map<String, Value>| {
        Rejection::Unclassified(format!("map: {} does not contain declared merge key: {key}", excerpt(item)))
    };
    match item {
        Value::Object(fields) => fields.get(key).map(Value::to_string).ok_or_else(|| missing(fields)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Rejection::Unclassified("expected a map[string]interface {} in a list with a merge key".to_owned()))
        }
    }
}

/// Index of the first occurrence of each item, by identity.
fn positions(items: &[Value], merge_key: Option<&str>) -> Result<HashMap<String, usize>, Rejection> {
    let mut at = HashMap::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        at.entry(item_identity(item, merge_key)?).or_insert(place);
    }
    Ok(at)
}

fn distinct_items(items: Vec<Value>) -> Vec<Value> {
    let mut seen = std::collections::HashSet::with_capacity(items.len());
    items.into_iter().filter(|item| seen.insert(item.to_string())).collect()
}

//! Merge of an applied configuration into the live object.

use std::collections::{BTreeMap, BTreeSet};

use api::json::JsonObject;
use serde_json::Value;

use super::atom::{Handled, List, MapOf, Type};
use super::items::element_of_item;
use crate::field_set::PathElement;

/// The live object with the fields of the configuration. Nothing is removed; the configuration is valid.
pub(crate) fn merge(live: &JsonObject, config: &JsonObject, object_type: Type<'_>) -> JsonObject {
    match object_type.atom().first() {
        Handled::Map(map) => fields(Some(live), config, map),
        Handled::Scalar(_) | Handled::List(_) => config.clone(),
    }
}

/// `None` if nothing is left, which is only possible for empty values.
fn value(live: Option<&Value>, config: &Value, value_type: Type<'_>) -> Option<Value> {
    let Some(live) = live else { return Some(config.clone()) };
    match value_type.handled(config) {
        Handled::Scalar(_) => Some(config.clone()),
        Handled::Map(map) => {
            let objects = (live.as_object(), config.as_object());
            let is_empty = |object: Option<&JsonObject>| object.is_none_or(JsonObject::is_empty);
            if map.is_atomic || is_empty(objects.0) && is_empty(objects.1) {
                return Some(config.clone());
            }
            let merged = match objects {
                (live, Some(config)) => fields(live, config, map),
                // An explicit null does not remove what is there.
                (live, None) => live.cloned().unwrap_or_default(),
            };
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        Handled::List(list) => {
            let lists = (live.as_array(), config.as_array());
            let is_empty = |items: Option<&Vec<Value>>| items.is_none_or(Vec::is_empty);
            if list.is_atomic() || is_empty(lists.0) && is_empty(lists.1) {
                return Some(config.clone());
            }
            let merged = items(lists.0.map_or(&[], Vec::as_slice), lists.1.map_or(&[], Vec::as_slice), list);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
    }
}

fn fields(live: Option<&JsonObject>, config: &JsonObject, map: MapOf<'_>) -> JsonObject {
    let kept = live.into_iter().flatten().filter(|(name, _)| !config.contains_key(*name));
    let mut merged: JsonObject = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    for (name, applied) in config {
        let before = live.and_then(|live| live.get(name));
        let result = match map.child(name) {
            Some(field) => value(before, applied, field),
            None => Some(applied.clone()),
        };
        merged.extend(result.map(|result| (name.clone(), result)));
    }
    merged
}

/// The items of the configuration in its order; the others keep their place relative to those that are in both.
fn items(live: &[Value], config: &[Value], list: List<'_>) -> Vec<Value> {
    // A live item without a path element matches nothing and stays.
    let live_elements: Vec<Option<PathElement>> = live.iter().map(|item| element_of_item(list, item).ok()).collect();
    let config_elements: Vec<PathElement> = config.iter().filter_map(|item| element_of_item(list, item).ok()).collect();
    // Duplicates in the live list are not merged with the applied item but replaced: their value is null.
    let mut live_by_element: BTreeMap<&PathElement, &Value> = BTreeMap::new();
    for (element, item) in live_elements.iter().zip(live) {
        let Some(element) = element else { continue };
        live_by_element.entry(element).and_modify(|item| *item = &Value::Null).or_insert(item);
    }
    let config_by_element: BTreeMap<&PathElement, &Value> = config_elements.iter().zip(config).collect();
    let is_applied =
        |element: Option<&PathElement>| element.is_some_and(|element| config_by_element.contains_key(element));
    let mut shared = config_elements.iter().filter(|element| live_by_element.contains_key(element));
    let mut next_shared = shared.next();
    let mut merged_elements: BTreeSet<&PathElement> = BTreeSet::new();
    let mut merged = Vec::with_capacity(live.len().max(config.len()));
    let merge_item = |element: &PathElement| {
        let applied = config_by_element.get(element)?;
        value(live_by_element.get(element).copied(), applied, list.items)
    };
    let (mut live_at, mut config_at) = (0, 0);
    while live_at < live.len() || config_at < config_elements.len() {
        let live_element = live_elements.get(live_at).and_then(Option::as_ref);
        if let (true, Some(applied)) = (live_at < live.len(), config_elements.get(config_at)) {
            if live_element == Some(applied) {
                merged_elements.insert(applied);
                merged.extend(merge_item(applied));
                live_at += 1;
                config_at += 1;
                next_shared = shared.next();
                continue;
            }
            if is_applied(live_element) && next_shared.is_some() && next_shared != live_element {
                // In both lists, but its turn comes later.
                live_at += 1;
                continue;
            }
        }
        if live_at < live.len() {
            if !is_applied(live_element) {
                merged.push(live[live_at].clone());
                live_at += 1;
                continue;
            }
            if live_element.is_some_and(|element| merged_elements.contains(element)) {
                live_at += 1;
            }
        }
        if let Some(applied) = config_elements.get(config_at) {
            merged_elements.insert(applied);
            merged.extend(merge_item(applied));
            config_at += 1;
            if next_shared == Some(applied) {
                next_shared = shared.next();
            }
        }
    }
    merged
}

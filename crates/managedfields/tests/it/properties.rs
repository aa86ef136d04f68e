//! Properties of apply and of field sets.

use api::json::JsonObject;
use managedfields::{ApplyError, FieldManager, FieldSet, apply, record_update};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::replay::Endpoint;

/// A part of the spec of a Widget with fields of every topology, all of whose names and keys start with `prefix`.
fn spec(prefix: &'static str) -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(move |name| format!("{prefix}{name}"));
    let text = prop_oneof![Just("x"), Just("y")];
    let labels = proptest::collection::btree_map(name.clone(), text.clone(), 0..3);
    let tags = proptest::collection::btree_set(name.clone(), 0..3);
    let item = (proptest::option::of(text.clone()), proptest::collection::btree_set(name.clone(), 0..2));
    let items = proptest::collection::btree_map(name, item, 0..3);
    (labels, tags, items, any::<bool>()).prop_map(|(labels, tags, items, is_reversed)| {
        let mut items: Vec<Value> =
            items.into_iter().map(|(name, (value, tags))| item_value(&name, value, &tags)).collect();
        if is_reversed {
            items.reverse();
        }
        json!({"labels": labels, "tags": tags, "items": items})
    })
}

fn item_value(name: &str, value: Option<&str>, tags: &std::collections::BTreeSet<String>) -> Value {
    let mut item = json!({"name": name});
    if let Some(value) = value {
        item["value"] = value.into();
    }
    if !tags.is_empty() {
        item["tags"] = json!(tags);
    }
    item
}

pub(crate) fn config(spec: &Value) -> JsonObject {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "n"}, "spec": spec});
    object.as_object().expect("an object").clone()
}

pub(crate) fn manager(name: &str) -> FieldManager<'_> {
    let now = "2026-01-01T00:00:00Z".parse().expect("a time");
    FieldManager { name, api_version: "example.com/v1", subresource: "", now }
}

/// The object after an apply; the live one if it changes nothing.
pub(crate) fn applied(
    live: Option<&JsonObject>,
    config: &JsonObject,
    name: &str,
    force: bool,
) -> Result<JsonObject, ApplyError> {
    let result = apply(live, config, force, &manager(name), &Endpoint::widget())?;
    Ok(result.unwrap_or_else(|| live.expect("a new object is a change").clone()))
}

pub(crate) fn spec_of(object: &JsonObject) -> Value {
    object.get("spec").cloned().unwrap_or(Value::Null)
}

/// The value with lists in the order of their JSON.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// True if the object has all that the part has; items of lists are found by name or value.
fn contains(object: &Value, part: &Value) -> bool {
    match (object, part) {
        (Value::Object(fields), Value::Object(part)) => part
            .iter()
            .all(|(name, part)| fields.get(name).is_some_and(|value| contains(value, part)) || is_empty(part)),
        (Value::Array(items), Value::Array(part)) => {
            part.iter().all(|part| items.iter().any(|item| item["name"] == part["name"] && contains(item, part)))
        }
        _ => object == part,
    }
}

/// Adds what a part of a spec has; items of lists are found by name or value.
fn add(object: &mut Value, part: &Value) {
    match (object, part) {
        (Value::Object(fields), Value::Object(part)) => {
            part.iter().for_each(|(name, part)| add(fields.entry(name.clone()).or_insert(Value::Null), part));
        }
        (Value::Array(items), Value::Array(part)) => {
            for part in part {
                let is_same =
                    |item: &&mut Value| if part.is_object() { item["name"] == part["name"] } else { *item == part };
                let found = items.iter_mut().find(is_same);
                match found {
                    Some(item) => add(item, part),
                    None => items.push(part.clone()),
                }
            }
        }
        (object, part) => *object = part.clone(),
    }
}

/// True if every field of a set in its wire form is in the value. An item of a list that the set does not have itself may
/// be absent.
fn has_owned_fields(value: &Value, fields: &Value) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    fields.iter().filter(|(key, _)| *key != ".").all(|(key, below)| {
        let (prefix, text) = key.split_at(2);
        let parsed = || serde_json::from_str::<Value>(text).expect("keys and values are JSON");
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        match prefix {
            "f:" => value.get(text).is_some_and(|value| has_owned_fields(value, below)),
            "v:" => items.contains(&parsed()),
            _ => match items.iter().find(|item| item["name"] == parsed()["name"]) {
                Some(item) => has_owned_fields(item, below),
                None => below.get(".").is_none() && !is_empty(below),
            },
        }
    })
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

pub(crate) fn entry_sets(object: &JsonObject) -> Vec<Value> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.into_iter().map(|entry| json!([entry["manager"], entry["operation"], entry["fieldsV1"]])).collect()
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z:{}\"\\[\\]0-9.]{0,8}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just(".".to_owned()),
        "[fkvix]:.{0,6}",
        "f:[a-c]",
        "v:[0-9]{1,3}",
        r#"k:\{"[ab]":("x"|[0-9]{1,2}|null|true)\}"#,
        ".{0,3}",
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn second_apply_of_same_config_changes_nothing(first in spec("f"), other in spec("f"), config_spec in spec("f")) {
        let mut live = applied(None, &config(&first), "a", false).expect("no other manager");
        let mut updated = live.clone();
        updated.insert("spec".to_owned(), other);
        record_update(Some(&live), &mut updated, &manager("u"), &Endpoint::widget()).expect("no conversion");
        live = applied(Some(&updated), &config(&config_spec), "a", true).expect("forced");
        let again = apply(Some(&live), &config(&config_spec), false, &manager("a"), &Endpoint::widget());
        prop_assert_eq!(again, Ok(None));
    }

    #[test]
    fn disjoint_applies_commute_up_to_list_order(one in spec("p"), other in spec("q")) {
        let results: Vec<JsonObject> = [[(&one, "a"), (&other, "b")], [(&other, "b"), (&one, "a")]]
            .into_iter()
            .map(|order| {
                let [first, second] = order;
                let live = applied(None, &config(first.0), first.1, false).expect("no other manager");
                applied(Some(&live), &config(second.0), second.1, false).expect("no common fields")
            })
            .collect();
        prop_assert_eq!(sorted(&spec_of(&results[0])), sorted(&spec_of(&results[1])));
        let [mut ours, mut theirs] = [entry_sets(&results[0]), entry_sets(&results[1])];
        ours.sort_by_key(Value::to_string);
        theirs.sort_by_key(Value::to_string);
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn apply_keeps_fields_of_other_applier(first in spec("f"), other in spec("f"), second in spec("f")) {
        let live = applied(None, &config(&first), "a", false).expect("no other manager");
        let live = applied(Some(&live), &config(&other), "b", true).expect("forced");
        match applied(Some(&live), &config(&second), "a", false) {
            Ok(result) => {
                prop_assert!(contains(&spec_of(&result), &other), "{result:?}");
                prop_assert!(contains(&spec_of(&result), &second), "{result:?}");
            }
            Err(error) => prop_assert!(matches!(error, ApplyError::Conflicts(_)), "{error}"),
        }
    }

    #[test]
    fn apply_keeps_fields_of_updater_outside_items_without_owner(
        first in spec("f"), changed in spec("f"), second in spec("f"), force in any::<bool>(),
    ) {
        let live = applied(None, &config(&first), "a", false).expect("no other manager");
        let mut updated = live.clone();
        add(updated.entry("spec").or_insert(json!({})), &changed);
        record_update(Some(&live), &mut updated, &manager("u"), &Endpoint::widget()).expect("no conversion");
        let owned = entry_sets(&updated).into_iter().find(|entry| entry[0] == "u").map(|entry| entry[2].clone());
        match applied(Some(&updated), &config(&second), "a", force) {
            Ok(result) => {
                let result = Value::Object(result);
                prop_assert!(has_owned_fields(&result, &owned.unwrap_or(json!({}))), "{result}");
            }
            Err(error) => prop_assert!(matches!(error, ApplyError::Conflicts(_)), "{error}"),
        }
    }

    #[test]
    fn field_without_owner_goes(first in spec("f"), second in spec("f")) {
        let live = applied(None, &config(&first), "a", false).expect("no other manager");
        let live = applied(Some(&live), &config(&second), "a", false).expect("no other manager");
        let fresh = applied(None, &config(&second), "a", false).expect("no other manager");
        let without_empty = |object: &JsonObject| {
            let mut spec = spec_of(object);
            if let Value::Object(fields) = &mut spec {
                fields.retain(|_, value| !is_empty(value) && !value.is_null());
            }
            sorted(&spec)
        };
        prop_assert_eq!(without_empty(&live), without_empty(&fresh));
        prop_assert_eq!(entry_sets(&live), entry_sets(&fresh));
    }

    #[test]
    fn field_set_round_trips(value in json_value()) {
        if let Ok(set) = FieldSet::from_value(&value) {
            prop_assert_eq!(FieldSet::from_value(&set.to_value()), Ok(set.clone()));
            let parsed: Value = serde_json::from_str(&set.to_json()).expect("a set encodes as JSON");
            prop_assert_eq!(FieldSet::from_value(&parsed), Ok(set));
        }
    }

    #[test]
    fn entries_of_any_form_are_read_or_rejected(entries in json_value(), spec in spec("f")) {
        let mut live = config(&spec);
        live["metadata"]["managedFields"] = json!([{
            "manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": entries,
        }]);
        let mut new = live.clone();
        new["spec"]["text"] = "t".into();
        record_update(Some(&live), &mut new, &manager("u"), &Endpoint::widget()).expect("no conversion");
        let _ = apply(Some(&live), &config(&spec), false, &manager("a"), &Endpoint::widget());
    }
}

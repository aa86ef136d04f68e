//! Differences to Kubernetes that are decided, where no other test shows them.

use api::json::JsonObject;
use managedfields::{apply, record_update};
use serde_json::{Value, json};

use crate::properties::{applied, config, entry_sets, manager, spec_of};
use crate::replay::Endpoint;

fn labels_of_a() -> JsonObject {
    applied(None, &config(&json!({"labels": {"x": "1"}})), "a", false).expect("no other manager")
}

/// The object with another spec, written by the updater `u`.
fn updated(live: &JsonObject, spec: Value) -> JsonObject {
    let mut new = live.clone();
    new.insert("spec".to_owned(), spec);
    record_update(Some(live), &mut new, &manager("u"), &Endpoint::widget()).expect("no conversion");
    new
}

fn labels_entry() -> Value {
    json!(["a", "Apply", {"f:spec": {"f:labels": {"f:x": {}}}}])
}

#[test]
fn update_with_item_that_has_no_key_keeps_all_entries() {
    let new = updated(&labels_of_a(), json!({"labels": {"x": "1"}, "tags": [null, "t"]}));
    let entry = json!(["u", "Update", {"f:spec": {"f:tags": {".": {}, "v:\"t\"": {}}}}]);
    assert_eq!(entry_sets(&new), [labels_entry(), entry]);
}

#[test]
fn object_with_item_that_has_no_key_is_applied() {
    let live = updated(&labels_of_a(), json!({"labels": {"x": "1"}, "tags": [null, "t"]}));
    let result = applied(Some(&live), &config(&json!({"text": "b"})), "b", false).expect("no conflict");
    assert_eq!(spec_of(&result)["text"], "b");
    assert_eq!(entry_sets(&result).len(), 3);
}

#[test]
fn object_with_duplicate_items_and_entry_of_other_version_is_applied() {
    let item = json!({"name": "i", "value": "1"});
    let mut live = updated(&labels_of_a(), json!({"labels": {"x": "1"}, "items": [item, item]}));
    live["metadata"]["managedFields"][1]["apiVersion"] = "example.com/v2".into();
    let result = applied(Some(&live), &config(&json!({"text": "b"})), "b", false).expect("no conflict");
    assert_eq!(spec_of(&result)["items"], json!([item, item]));
    assert_eq!(entry_sets(&result).len(), 3);
}

#[test]
fn custom_entry_of_removed_version_is_dropped_by_apply() {
    let mut live = updated(&labels_of_a(), json!({"labels": {"x": "1"}, "text": "u"}));
    live["metadata"]["managedFields"][1]["apiVersion"] = "example.com/v0".into();
    let result = applied(Some(&live), &config(&json!({"labels": {"x": "1"}, "text": "a"})), "a", false);
    let entry = json!(["a", "Apply", {"f:spec": {"f:labels": {"f:x": {}}, "f:text": {}}}]);
    assert_eq!(entry_sets(&result.expect("no owner is left to conflict with")), [entry]);
}

#[test]
fn container_that_is_applied_empty_is_empty_at_once() {
    let empty = config(&json!({"labels": {}}));
    let result = applied(Some(&labels_of_a()), &empty, "a", false).expect("no other manager");
    assert_eq!(spec_of(&result), json!({"labels": {}}));
    assert_eq!(apply(Some(&result), &empty, false, &manager("a"), &Endpoint::widget()), Ok(None));
}

#[test]
fn items_of_a_set_of_objects_are_their_values() {
    let objects =
        |names: &[&str]| config(&json!({"objects": names.iter().map(|a| json!({"a": a})).collect::<Value>()}));
    let live = applied(None, &objects(&["p", "q"]), "a", false).expect("no other manager");
    let live = applied(Some(&live), &objects(&["q"]), "b", false).expect("the same value");
    let result = applied(Some(&live), &objects(&[]), "a", false).expect("nothing is changed that b has");
    assert_eq!(spec_of(&result), json!({"objects": [{"a": "q"}]}));
    let entry = json!(["b", "Apply", {"f:spec": {"f:objects": {"v:{\"a\":\"q\"}": {}}}}]);
    assert!(entry_sets(&result).contains(&entry), "{result:?}");
}

#[test]
fn large_numbers_in_keys_are_exact() {
    const LARGE: u64 = (1 << 53) + 1;
    let live = applied(None, &config(&json!({"numbers": [LARGE]})), "a", false).expect("no other manager");
    let live = applied(Some(&live), &config(&json!({"numbers": [LARGE - 1]})), "b", false).expect("another number");
    let result = applied(Some(&live), &config(&json!({"numbers": []})), "a", false).expect("its own number goes");
    assert_eq!(spec_of(&result), json!({"numbers": [LARGE - 1]}));
}

#[test]
fn malformed_time_is_left_to_the_decoder() {
    let result = applied(None, &config(&json!({"when": "never"})), "a", false).expect("a merge does not read times");
    assert_eq!(spec_of(&result), json!({"when": "never"}));
}

//! Updates of deployments: ownership, times, cap of managers.

use serde_json::json;

use super::{Deployments, deployment, entries, writer};
use crate::{FieldManager, FieldSet, UpdateError, check_entries, keep_times_if_unchanged, manager_name, record_update};

fn created() -> api::json::JsonObject {
    let mut new = deployment(&json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}}));
    record_update(None, &mut new, &writer("creator", 0), &Deployments::default()).expect("no conversion");
    new
}

#[test]
fn create_hides_structs_that_go_has_by_value() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut new = deployment(&json!({"paused": false, "selector": {"matchLabels": {"a": "b"}}, "template": template}));
    record_update(None, &mut new, &writer("creator", 0), &Deployments::default()).expect("no conversion");
    let expected = json!({"f:spec": {
        "f:selector": {},
        "f:template": {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}}},
        },
    }});
    assert_eq!(entries(&new).into_values().collect::<Vec<_>>(), [expected]);
}

#[test]
fn update_without_change_keeps_entries_as_they_are() {
    let mut live = created();
    // Not as this crate writes it: a set that was decoded would lose it.
    live["metadata"]["managedFields"][0]["fieldsV1"]["x:future"] = json!({});
    let mut new = live.clone();
    new["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    record_update(Some(&live), &mut new, &writer("other", 1), &Deployments::default()).expect("no conversion");
    assert_eq!(new, live);
}

#[test]
fn change_of_own_field_only_changes_time() {
    let mut live = created();
    // Not as this crate writes it: a set that was decoded would lose it.
    live["metadata"]["managedFields"][0]["fieldsV1"]["x:future"] = json!({});
    let mut new = live.clone();
    new["spec"]["replicas"] = 2.into();
    record_update(Some(&live), &mut new, &writer("creator", 1), &Deployments::default()).expect("no conversion");
    let set = live["metadata"]["managedFields"][0]["fieldsV1"].clone();
    assert_eq!(entries(&new), [("creator Update apps/v1 - 01".to_owned(), set)].into());
}

#[test]
fn update_of_untracked_object_starts_no_tracking() {
    let mut live = created();
    live["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    let mut new = live.clone();
    new["spec"]["replicas"] = 2.into();
    record_update(Some(&live), &mut new, &writer("other", 1), &Deployments::default()).expect("no conversion");
    assert_eq!(entries(&new).len(), 0);
}

#[test]
fn empty_list_resets_entries_except_through_subresource() {
    let live = created();
    for reset in [json!([]), json!([{}])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = reset.clone();
        record_update(Some(&live), &mut new, &writer("other", 1), &Deployments::default()).expect("no conversion");
        assert_eq!(new["metadata"].get("managedFields"), None);
        let mut new = live.clone();
        new["metadata"]["managedFields"] = reset;
        let status = FieldManager { subresource: "status", ..writer("other", 1) };
        record_update(Some(&live), &mut new, &status, &Deployments::default()).expect("no conversion");
        assert_eq!(new, live);
    }
}

#[test]
fn broken_sent_entries_are_replaced_by_stored_ones() {
    let live = created();
    for broken in [json!([{"manager": "m"}]), json!([{"manager": "m", "operation": "Update", "apiVersion": "apps/v1"}])]
    {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = broken;
        assert!(check_entries(&new).is_err());
        record_update(Some(&live), &mut new, &writer("other", 1), &Deployments::default()).expect("no conversion");
        assert_eq!(new, live);
    }
}

#[test]
fn renamed_manager_is_kept() {
    let live = created();
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["manager"] = "renamed".into();
    record_update(Some(&live), &mut new, &writer("other", 1), &Deployments::default()).expect("no conversion");
    assert_eq!(entries(&new).into_keys().collect::<Vec<_>>(), ["renamed Update apps/v1 - 00"]);
}

#[test]
fn oldest_of_eleven_update_managers_are_merged() {
    let mut live = created();
    live["metadata"]["labels"] = json!({});
    for number in 1..=12 {
        let mut new = live.clone();
        new["metadata"]["labels"][format!("l{number}")] = "x".into();
        let name = format!("m{number:02}");
        record_update(Some(&live), &mut new, &writer(&name, number), &Deployments::default()).expect("no conversion");
        live = new;
    }
    let entries = entries(&live);
    assert_eq!(entries.len(), 10, "{entries:?}");
    let ancient = &entries["ancient-changes Update apps/v1 - 03"];
    assert_eq!(ancient["f:metadata"]["f:labels"], json!({".": {}, "f:l1": {}, "f:l2": {}, "f:l3": {}}));
}

#[test]
fn entry_of_unknown_version_is_dropped() {
    let mut live = created();
    live["metadata"]["managedFields"][0]["apiVersion"] = "apps/v1beta1".into();
    let mut new = live.clone();
    new["spec"]["replicas"] = 2.into();
    record_update(Some(&live), &mut new, &writer("other", 1), &Deployments::default()).expect("no conversion");
    assert_eq!(entries(&new).into_keys().collect::<Vec<_>>(), ["other Update apps/v1 - 01"]);
}

#[test]
fn update_is_refused_while_conversion_is_unavailable() {
    let mut live = created();
    live["metadata"]["managedFields"][0]["apiVersion"] = "apps/v2".into();
    let mut new = live.clone();
    new["spec"]["replicas"] = 2.into();
    let types = Deployments { is_conversion_unavailable: true, ..Deployments::default() };
    let error = record_update(Some(&live), &mut new.clone(), &writer("other", 1), &types).expect_err("unavailable");
    let text = "managed fields cannot be computed: conversion to apps/v2 failed: webhook is down";
    assert_eq!(error.to_string(), text);
    assert!(matches!(error, UpdateError::ConversionUnavailable(_)));
    record_update(Some(&live), &mut new, &writer("other", 1), &Deployments::default()).expect("available");
    assert_eq!(
        entries(&new).into_keys().collect::<Vec<_>>(),
        ["creator Update apps/v2 - 00", "other Update apps/v1 - 01"]
    );
}

#[test]
fn reset_fields_have_no_owner() {
    let types = Deployments { reset: FieldSet::of_names(&[["status"]]), ..Deployments::default() };
    let mut new = deployment(&json!({"replicas": 1}));
    new.insert("status".to_owned(), json!({"replicas": 1}));
    record_update(None, &mut new, &writer("creator", 0), &types).expect("no conversion");
    assert_eq!(entries(&new).into_values().collect::<Vec<_>>(), [json!({"f:spec": {"f:replicas": {}}})]);
}

#[test]
fn times_are_restored_if_nothing_else_changed() {
    let live = created();
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = "2026-01-01T00:09:00Z".into();
    let mut changed = new.clone();
    changed["spec"]["replicas"] = 5.into();
    let before = changed.clone();
    keep_times_if_unchanged(&live, &mut changed);
    assert_eq!(changed, before);
    keep_times_if_unchanged(&live, &mut new);
    assert_eq!(new, live);
}

#[test]
fn manager_name_is_printable_prefix_of_user_agent() {
    assert_eq!(manager_name("m", "agent/1"), "m");
    assert_eq!(manager_name("", "kubectl/v1.36 (linux)"), "kubectl");
    assert_eq!(manager_name("", "a\u{200b}b\u{7}c"), "abc");
    assert_eq!(manager_name("", "/"), "unknown");
    assert_eq!(manager_name("", &"é".repeat(100)).len(), 128);
}

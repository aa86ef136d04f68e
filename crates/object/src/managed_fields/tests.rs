use api::json::JsonObject;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arbitrary;

const FIRST: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-02T00:00:00Z";

fn object(value: &Value) -> JsonObject {
    value.as_object().expect("test value is an object").clone()
}

fn writer<'a>(manager: &'a str, subresource: &'a str, now: &str) -> FieldManager<'a> {
    FieldManager { name: manager, api_version: "v1", subresource, now: now.parse().expect("test value is a time") }
}

/// Records an update from one state to another by a manager.
fn write(old: &JsonObject, new: &Value, writer: &FieldManager<'_>) -> JsonObject {
    let mut new = object(new);
    record_update(old, &mut new, writer);
    new
}

fn fields(object: &JsonObject) -> Vec<(String, Value)> {
    let entries = unstructured::objects(object, &["metadata", "managedFields"]);
    entries
        .map(|entry| {
            let text = |name: &str| unstructured::text(entry, &[name]);
            (format!("{} {} {}", text("manager"), text("subresource"), text("time")), entry["fieldsV1"].clone())
        })
        .collect()
}

fn created() -> JsonObject {
    let new = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "uid": "u", "generation": 1, "labels": {"app": "web", "tier": "x"}},
        "spec": {"containers": [{"name": "c"}], "nodeName": "n", "emptyDir": {}},
    });
    write(&Map::new(), &new, &writer("kubectl", "", FIRST))
}

fn with(object: &JsonObject, path: &[&str], value: Value) -> Value {
    let mut copy = Value::Object(object.clone());
    let target = path.iter().fold(&mut copy, |value, name| &mut value[*name]);
    *target = value;
    copy
}

#[test]
fn create_gives_manager_all_but_server_fields() {
    assert_eq!(
        unstructured::get(&created(), &["metadata", "managedFields"]),
        Some(&json!([{
            "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": FIRST, "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:app": {}, "f:tier": {}}},
                "f:spec": {"f:containers": {}, "f:nodeName": {}, "f:emptyDir": {}},
            },
        }]))
    );
}

#[test]
fn update_moves_changed_field_to_new_manager() {
    let changed = with(&created(), &["spec", "nodeName"], json!("m"));
    let updated = write(&created(), &changed, &writer("scheduler", "", LATER));
    assert_eq!(
        fields(&updated),
        [
            (
                format!("kubectl  {FIRST}"),
                json!({"f:metadata": {"f:labels": {"f:app": {}, "f:tier": {}}}, "f:spec": {"f:containers": {}, "f:emptyDir": {}}})
            ),
            (format!("scheduler  {LATER}"), json!({"f:spec": {"f:nodeName": {}}})),
        ]
    );
}

#[test]
fn same_manager_keeps_one_entry() {
    let changed = with(&created(), &["metadata", "annotations"], json!({"a": "b"}));
    let updated = write(&created(), &changed, &writer("kubectl", "", LATER));
    let [(who, set)] = &fields(&updated)[..] else { panic!("{updated:?}") };
    assert_eq!(who, &format!("kubectl  {LATER}"));
    assert_eq!(set["f:metadata"], json!({"f:labels": {"f:app": {}, "f:tier": {}}, "f:annotations": {"f:a": {}}}));
}

#[test]
fn removed_fields_have_no_manager() {
    let mut changed = Value::Object(created());
    changed["metadata"].as_object_mut().unwrap().remove("labels");
    changed["spec"].as_object_mut().unwrap().remove("nodeName");
    let updated = write(&created(), &changed, &writer("other", "", LATER));
    assert_eq!(
        fields(&updated),
        [(format!("kubectl  {FIRST}"), json!({"f:spec": {"f:containers": {}, "f:emptyDir": {}}}))]
    );
}

#[test]
fn no_op_update_keeps_managed_fields() {
    let same = Value::Object(created());
    assert_eq!(write(&created(), &same, &writer("other", "", LATER)), created());
    assert_eq!(write(&created(), &same, &writer("kubectl", "", LATER)), created());
}

#[test]
fn absent_managed_fields_are_kept_and_empty_ones_reset() {
    let mut without = Value::Object(created());
    without["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(write(&created(), &without, &writer("other", "", LATER)), created());
    for empty in [json!([]), json!([{}])] {
        let reset = with(&created(), &["metadata", "managedFields"], empty);
        assert!(fields(&write(&created(), &reset, &writer("other", "", LATER))).is_empty());
    }
    for broken in [
        json!([{"manager": "x"}]),
        json!([{"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": 1}}]),
    ] {
        let sent = with(&created(), &["metadata", "managedFields"], broken);
        assert_eq!(write(&created(), &sent, &writer("other", "", LATER)), created());
    }
}

#[test]
fn subresource_update_gets_own_entry() {
    let mut sent = with(&created(), &["status"], json!({"phase": "Running", "conditions": [{}]}));
    sent["metadata"]["managedFields"] = json!([]);
    let updated = write(&created(), &sent, &writer("kubelet", "status", LATER));
    assert_eq!(fields(&updated)[0], fields(&created())[0]);
    assert_eq!(
        fields(&updated)[1],
        (format!("kubelet status {LATER}"), json!({"f:status": {"f:phase": {}, "f:conditions": {}}}))
    );
}

#[test]
fn list_item_sets_are_kept_until_list_changes() {
    let inside =
        json!({"f:spec": {"f:containers": {".": {}, "k:{\"name\":\"c\"}": {"f:image": {}}}, "f:nodeName": {}}});
    let entry = json!({"manager": "ssa", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": inside});
    let old = object(&with(&created(), &["metadata", "managedFields"], json!([entry])));
    let renamed = with(&old, &["spec", "nodeName"], json!("m"));
    let updated = write(&old, &renamed, &writer("other", "", LATER));
    assert_eq!(
        fields(&updated)[0].1,
        json!({"f:spec": {"f:containers": {".": {}, "k:{\"name\":\"c\"}": {"f:image": {}}}}})
    );
    let relisted = with(&old, &["spec", "containers"], json!([{"name": "d"}]));
    let updated = write(&old, &relisted, &writer("other", "", LATER));
    assert_eq!(fields(&updated)[0].1, json!({"f:spec": {"f:nodeName": {}}}));
}

#[test]
fn excess_managers_merge_into_ancient_changes() {
    let mut state = created();
    for at in 0..20 {
        let changed = with(&state, &["metadata", "annotations"], json!({ format!("a{at}"): "x" }));
        let mut merged = object(&changed);
        if let Some(before) = unstructured::get(&state, &["metadata", "annotations"]).and_then(Value::as_object) {
            for (key, value) in before {
                merged["metadata"]["annotations"][key] = value.clone();
            }
        }
        let name = format!("m{at}");
        let now = format!("2026-01-02T00:00:{at:02}Z");
        state = write(&state, &Value::Object(merged), &writer(&name, "", &now));
    }
    let all = fields(&state);
    assert_eq!(all.len(), UPDATE_MANAGERS_MAX);
    assert!(all[0].0.starts_with("ancient-changes"), "{}", all[0].0);
    assert_eq!(all[0].1["f:metadata"]["f:annotations"].as_object().unwrap().len(), 11);
}

#[test]
fn manager_name_comes_from_request_or_user_agent() {
    let long = "x".repeat(200);
    for (field_manager, agent, expected) in [
        ("mine", "kubectl/1", "mine"),
        ("", "kubectl/v1.36 (linux)", "kubectl"),
        ("", "a\tb\u{7f}c/1", "abc"),
        ("", "", "unknown"),
        ("", &long, &long[..128]),
    ] {
        assert_eq!(manager_name(field_manager, agent), expected);
    }
}

#[test]
fn field_sets_stop_at_depth_limit() {
    let deep = (0..90).fold(json!(1), |inside, _| json!({ "a": inside }));
    let created = write(&Map::new(), &json!({ "spec": deep }), &writer("m", "", FIRST));
    let text = Value::Object(created).to_string();
    assert!(serde_json::from_str::<Value>(&text).is_ok());
    assert_eq!(text.matches("f:a").count(), 31);
}

proptest! {
    #[test]
    fn managed_fields_stay_well_formed(states in prop::collection::vec(arbitrary::object(), 1..6)) {
        let mut current = Map::new();
        for (at, state) in states.into_iter().enumerate() {
            let mut next = state;
            next.remove("metadata");
            let name = format!("m{}", at % 3);
            record_update(&current, &mut next, &writer(&name, "", FIRST));
            let entries = valid_entries(&next);
            prop_assert!(entries.is_some());
            prop_assert!(entries.unwrap().iter().all(|entry| !entry.fields.is_empty()));
            prop_assert!(crate::validate::validate_metadata(&next, &crate::KindRules::NO_STATUS).iter().all(|error| !error.field().contains("managed")));
            current = next;
        }
    }
}

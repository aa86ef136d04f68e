//! Entries of a scale and of its object.

use serde_json::{Value, json};

use crate::{ScaleEntries, ScalePaths};

struct Paths;

impl ScalePaths for Paths {
    fn replicas_path(&self, api_version: &str) -> Option<Vec<String>> {
        match api_version {
            "apps/v1" => Some(vec!["spec".to_owned(), "replicas".to_owned()]),
            "apps/v0" => Some(Vec::new()),
            _ => None,
        }
    }
}

fn entry(manager: &str, operation: &str, api_version: &str, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": operation, "apiVersion": api_version, "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

fn replicas() -> Value {
    json!({"f:spec": {"f:replicas": {}}})
}

fn parent() -> Value {
    json!([
        entry("applier", "Apply", "apps/v1", &json!({"f:spec": {"f:paused": {}, "f:replicas": {}}})),
        entry("elsewhere", "Update", "apps/v1", &json!({"f:spec": {"f:paused": {}}})),
        entry("none", "Update", "apps/v0", &json!({"f:spec": {"f:replicas": {}}})),
        entry("updater", "Update", "apps/v1", &json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:replicas": {}}})),
    ])
}

#[test]
fn owners_of_replicas_are_shown_in_scale() {
    let scale = ScaleEntries::new(Some(&parent()), "apps/v1", &Paths).to_scale().expect("decodable");
    let owner = |manager: &str, operation: &str| entry(manager, operation, "autoscaling/v1", &replicas());
    assert_eq!(scale, Some(json!([owner("applier", "Apply"), owner("updater", "Update")])));
}

#[test]
fn unchanged_scale_keeps_entries_of_object() {
    let parent = parent();
    let entries = ScaleEntries::new(Some(&parent), "apps/v1", &Paths);
    let scale = entries.to_scale().expect("decodable");
    assert_eq!(entries.to_parent(scale.as_ref()), Ok(Some(parent.clone())));
}

#[test]
fn new_owner_of_replicas_takes_them_from_others() {
    let parent = parent();
    let scale = json!([entry("autoscaler", "Update", "autoscaling/v1", &replicas())]);
    let entries = ScaleEntries::new(Some(&parent), "apps/v1", &Paths).to_parent(Some(&scale)).expect("decodable");
    assert_eq!(
        entries,
        Some(json!([
            entry("applier", "Apply", "apps/v1", &json!({"f:spec": {"f:paused": {}}})),
            entry("autoscaler", "Update", "apps/v1", &replicas()),
            entry("elsewhere", "Update", "apps/v1", &json!({"f:spec": {"f:paused": {}}})),
            entry("none", "Update", "apps/v0", &json!({"f:spec": {"f:replicas": {}}})),
            entry("updater", "Update", "apps/v1", &json!({"f:metadata": {"f:labels": {}}})),
        ]))
    );
}

#[test]
fn updater_of_object_and_scale_keeps_one_entry() {
    let parent = json!([entry("updater", "Update", "apps/v1", &json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}))]);
    let mut written = entry("updater", "Update", "autoscaling/v1", &replicas());
    written["time"] = "2026-01-01T00:05:00Z".into();
    let entries = ScaleEntries::new(Some(&parent), "apps/v1", &Paths).to_parent(Some(&json!([written])));
    let mut expected = parent;
    expected[0]["time"] = "2026-01-01T00:05:00Z".into();
    assert_eq!(entries, Ok(Some(expected)));
}

#[test]
fn entries_of_unknown_versions_are_dropped() {
    let parent = json!([entry("old", "Update", "extensions/v1beta1", &replicas())]);
    let entries = ScaleEntries::new(Some(&parent), "apps/v1", &Paths);
    assert_eq!(entries.to_scale(), Ok(None));
    assert_eq!(entries.to_parent(None), Ok(None));
}

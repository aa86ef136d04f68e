//! Sequences that Kubernetes' field manager 1.36 ran, recorded in a short form.
//!
//! A line is a sequence. What every object has (version, kind, name) is left out. `fields` are the entries after a step as
//! `[manager, operation, version, subresource, step of the time, set]`, without the set if it is that of the step before.
//! `result` is left out if it is the object of an update, or if an apply changed nothing but entries.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::replay::{Finding, replay};

#[test]
fn recorded_sequences_match_kubernetes() {
    let mut count = 0;
    let mut decided: BTreeMap<&str, usize> = BTreeMap::new();
    for line in include_str!("recorded.jsonl").lines() {
        let short: Value = serde_json::from_str(line).expect("a line is JSON");
        count += 1;
        for finding in replay(&expand(&short)) {
            match finding {
                Finding::Decided(rule) => *decided.entry(rule).or_default() += 1,
                Finding::Difference(text) => panic!("seed {} {}: {text}", short["seed"], short["kind"]),
            }
        }
    }
    assert!(count >= 300, "{count} sequences");
    let rules: Vec<&str> = decided.keys().copied().collect();
    let known = ["emptied-container-is-empty", "live-object-is-read-leniently", "update-never-fails"];
    assert!(rules.iter().all(|rule| known.contains(rule)) && decided.values().sum::<usize>() < 10, "{decided:?}");
}

/// The form that the recorder writes.
fn expand(short: &Value) -> Value {
    let (api_version, kind) = short["kind"].as_str().and_then(|kind| kind.rsplit_once('/')).expect("a kind");
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let mut sets: Vec<(Value, Value)> = Vec::new();
    let mut object = Value::Null;
    let mut steps = Vec::new();
    for step in short["steps"].as_array().into_iter().flatten() {
        let mut full = step.clone();
        let version = step["version"].as_str().map_or_else(|| api_version.to_owned(), |version| join(group, version));
        full["manager"] = step["by"].clone();
        full["object"] = with_identity(&step["object"], &version, kind);
        if step.get("error").is_none() {
            if let Some(result) = step.get("result") {
                object = with_identity(result, api_version, kind);
            } else if step["op"] == "update" {
                object = crate::replay::stored_form(&full["object"], api_version);
            }
            let (entries, new_sets) = entries(step, group, &sets);
            sets = new_sets;
            let mut result = object.clone();
            result["metadata"]["uid"] = "u".into();
            if !entries.is_empty() {
                result["metadata"]["managedFields"] = Value::Array(entries);
            }
            full["result"] = result;
        }
        steps.push(full);
    }
    json!({
        "seed": short["seed"], "apiVersion": api_version, "kind": kind, "steps": steps,
        "custom": short["custom"], "deduced": short["deduced"],
    })
}

fn join(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn with_identity(object: &Value, api_version: &str, kind: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    object["metadata"]["name"] = "n".into();
    object["metadata"]["namespace"] = "ns".into();
    object
}

/// The entries of a step, and their sets by identity.
fn entries(step: &Value, group: &str, before: &[(Value, Value)]) -> (Vec<Value>, Vec<(Value, Value)>) {
    let mut sets = Vec::new();
    let mut entries = Vec::new();
    for entry in step["fields"].as_array().into_iter().flatten() {
        let identity = json!([entry[0], entry[1], entry[2], entry[3]]);
        let set = match entry.get(5) {
            Some(set) => set.clone(),
            None => before.iter().find(|(known, _)| *known == identity).expect("a known set").1.clone(),
        };
        sets.push((identity, set.clone()));
        let mut full = json!({
            "manager": entry[0], "operation": entry[1], "fieldsType": "FieldsV1", "fieldsV1": set,
            "apiVersion": join(group, entry[2].as_str().unwrap_or_default()),
            "time": format!("2020-01-01T00:{:02}:00Z", entry[4].as_i64().unwrap_or_default()),
        });
        if entry[3] != "" {
            full["subresource"] = entry[3].clone();
        }
        entries.push(full);
    }
    (entries, sets)
}

//! Verdicts that Kubernetes 1.36 gave on edited definitions.
//!
//! `data/definitions.jsonl` has manifests, then cases. A case names the manifest that it edits, its edits as JSON
//! pointers with the new value (without one: the field is removed), and the errors and warnings. An update has edits
//! from the manifest to the old state, and edits from there to the new one. Errors and warnings are sorted, because
//! Kubernetes has those below a map in random order.

use std::sync::LazyLock;

use api::json::JsonObject;
use apiextensions::lifecycle::{add_stored_version, set_defaults, set_initial_status};
use apiextensions::validation::{
    ValidationOptions, validate_definition, validate_definition_status_update, validate_definition_update, warnings,
};
use serde_json::Value;

use crate::options;

const CASES: &str = include_str!("data/definitions.jsonl");

static OPTIONS: LazyLock<ValidationOptions> = LazyLock::new(|| options(36));

#[test]
fn verdicts_equal_those_of_kubernetes() {
    let lines: Vec<Value> = CASES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let manifests: Vec<&Value> = lines.iter().filter_map(|line| line.get("manifest")).collect();
    let mut differences = Vec::new();
    let cases = lines.iter().filter(|line| line.get("base").is_some());
    for (at, case) in cases.clone().enumerate() {
        let base = manifests[usize::try_from(case["base"].as_u64().unwrap()).unwrap()];
        let verdict = verdict(case, base);
        let expected = [&case["errors"], &case["warnings"]].map(texts);
        if verdict != expected {
            differences.push(format!("case {at}\n  Kubernetes: {expected:#?}\n  here: {verdict:#?}"));
        }
    }
    assert!(cases.count() > 150, "the data has cases");
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

/// Errors and warnings.
fn verdict(case: &Value, base: &Value) -> [Vec<String>; 2] {
    let old = case.get("old").map(|edits| edited(base, edits));
    let mut new = prepared(&edited(old.as_ref().unwrap_or(base), &case["new"]));
    let (errors, warnings) = match old.map(|old| prepared(&old)) {
        None => {
            set_initial_status(&mut new);
            (validate_definition(&new, &OPTIONS), warnings(None, &new, &OPTIONS))
        }
        Some(_) if case["subresource"] == "status" => (validate_definition_status_update(&new), Vec::new()),
        Some(old) => {
            new.insert("status".to_owned(), old["status"].clone());
            add_stored_version(&mut new);
            (validate_definition_update(&old, &new, &OPTIONS), warnings(Some(&old), &new, &OPTIONS))
        }
    };
    let errors: Vec<_> = errors.iter().map(|error| format!("{} {error}", error.kind().reason())).collect();
    let mut verdict = [errors, warnings];
    verdict.iter_mut().for_each(|texts| texts.sort());
    verdict
}

fn prepared(definition: &Value) -> JsonObject {
    let mut definition = definition.as_object().unwrap().clone();
    set_defaults(&mut definition);
    definition
}

fn edited(definition: &Value, edits: &Value) -> Value {
    let mut definition = definition.clone();
    for edit in edits.as_array().unwrap() {
        let pointer = edit[0].as_str().unwrap();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let name = name.replace("~1", "/").replace("~0", "~");
        let target = definition.pointer_mut(parent).unwrap();
        match (target, edit.get(1)) {
            (Value::Object(fields), Some(value)) => drop(fields.insert(name, value.clone())),
            (Value::Object(fields), None) => drop(fields.remove(&name)),
            (Value::Array(items), Some(value)) => items[name.parse::<usize>().unwrap()] = value.clone(),
            _ => panic!("{pointer} is no field"),
        }
    }
    definition
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

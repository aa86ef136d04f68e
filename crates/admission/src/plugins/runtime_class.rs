//! RuntimeClass: pods of a runtime class get its overhead, node selector and tolerations.

use api::GroupResource;
use api::json::JsonObject;
use object::unstructured::{integer, nested_object, nested_object_mut, text};
use schema::quantity_in_billionths;
use serde_json::Value;

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const RUNTIME_CLASSES: GroupResource<&str> = GroupResource { group: "node.k8s.io", resource: "runtimeclasses" };
const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

pub(super) static PLUGIN: Plugin =
    Plugin { name: "RuntimeClass", operations: &[Operation::Create], admit: Some(admit), validate: Some(validate) };

fn find_class(write: &Write<'_>, environment: &Environment<'_>) -> Result<Option<JsonObject>, Refusal> {
    let name = write.object.as_ref().and_then(|pod| nested_object(pod, &["spec"])?.get("runtimeClassName")?.as_str());
    let Some(name) = name else { return Ok(None) };
    match environment.view.get(RUNTIME_CLASSES, "", name)? {
        None => Err(Refusal::forbidden(format!("pod rejected: RuntimeClass {} not found", api::quote::Quoted(name)))),
        found => Ok(found),
    }
}

fn admit(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_object("", "pods") {
        return Ok(());
    }
    let Some(class) = find_class(write, environment)? else { return Ok(()) };
    let Some(pod) = &mut write.object else { return Ok(()) };
    let spec = nested_object_mut(pod, "spec");
    if let Some(overhead) = nested_object(&class, &["overhead"]) {
        let fixed = nested_object(overhead, &["podFixed"]).cloned().unwrap_or_default();
        let given = nested_object(spec, &["overhead"]).filter(|given| !given.is_empty());
        if given.is_some_and(|given| !is_equal(given, &fixed)) {
            return Err(Refusal::forbidden(MISMATCH));
        }
        spec.insert("overhead".to_owned(), fixed.into());
    }
    match nested_object(&class, &["scheduling"]) {
        Some(scheduling) => set_scheduling(spec, scheduling),
        None => Ok(()),
    }
}

fn set_scheduling(spec: &mut JsonObject, scheduling: &JsonObject) -> Result<(), Refusal> {
    for (key, value) in nested_object(scheduling, &["nodeSelector"]).into_iter().flatten() {
        let selector = nested_object_mut(spec, "nodeSelector");
        if let Some(given) = selector.get(key).filter(|given| *given != value) {
            let (value, given) = (value.as_str().unwrap_or_default(), given.as_str().unwrap_or_default());
            return Err(Refusal::forbidden(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {given}"
            )));
        }
        selector.insert(key.clone(), value.clone());
    }
    let list = |object: &JsonObject| object.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let all: Vec<Value> = list(spec).into_iter().chain(list(scheduling)).collect();
    if !all.is_empty() {
        spec.insert("tolerations".to_owned(), merge_tolerations(&all).into());
    }
    Ok(())
}

/// Leaves out tolerations that another one covers; of equal ones the first stays.
fn merge_tolerations(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let is_covered = merged.iter().any(|other| covers(other, toleration))
            || all[index + 1..].iter().any(|other| other != toleration && covers(other, toleration));
        if !is_covered {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// True if a toleration tolerates all that another one does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let (Some(wide), Some(narrow)) = (wide.as_object(), narrow.as_object()) else { return false };
    let field = |object, name| text(object, &[name]);
    let (key, operator) = (field(wide, "key"), field(wide, "operator"));
    if field(narrow, "key") != key && (!key.is_empty() || operator != "Exists") {
        return false;
    }
    let effect = field(wide, "effect");
    if field(narrow, "effect") != effect && !effect.is_empty() {
        return false;
    }
    let seconds = |object| integer(object, &["tolerationSeconds"]);
    if let (true, Some(limit)) = (effect == "NoExecute", seconds(wide))
        && seconds(narrow).is_none_or(|narrow| narrow > limit)
    {
        return false;
    }
    match operator {
        "Equal" | "" => field(narrow, "operator") == "Equal" && field(narrow, "value") == field(wide, "value"),
        operator => operator == "Exists",
    }
}

fn validate(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_object("", "pods") {
        return Ok(());
    }
    let class = find_class(write, environment)?;
    let Some(pod) = &write.object else { return Ok(()) };
    let given = nested_object(pod, &["spec", "overhead"]);
    match class.as_ref().and_then(|class| nested_object(class, &["overhead"])) {
        Some(overhead) => {
            let none = JsonObject::new();
            let fixed = nested_object(overhead, &["podFixed"]).unwrap_or(&none);
            if is_equal(given.unwrap_or(&none), fixed) { Ok(()) } else { Err(Refusal::forbidden(MISMATCH)) }
        }
        None if given.is_some() => Err(Refusal::forbidden(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )),
        None => Ok(()),
    }
}

fn is_equal(left: &JsonObject, right: &JsonObject) -> bool {
    left.len() == right.len()
        && left.iter().all(|(resource, amount)| {
            right.get(resource).is_some_and(|other| quantity_in_billionths(other) == quantity_in_billionths(amount))
        })
}

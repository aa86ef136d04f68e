//! Differences between ours and kube-apiserver that are decided, by name.

use serde_json::{Map, Value, json};

use super::corpus::CorpusKind;
use super::sequence::{Step, StepResult, differences};

/// A step and what both servers made of it.
#[derive(Debug)]
pub(crate) struct ComparedStep {
    pub(crate) ours: StepResult,
    pub(crate) real: StepResult,
    pub(crate) difference: Option<Difference>,
}

/// A difference between the results of a step. The object was the same on both servers before it, apart from times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Difference {
    /// Only managed fields differ, and in nothing but times that kube-apiserver's entries lack: the name of the rule.
    Times(&'static str),
    /// The name of the rule by which ours deviates from kube-apiserver on purpose.
    Decided(&'static str),
    /// No rule explains it.
    Unexplained,
}

impl Difference {
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Times(rule) | Self::Decided(rule) => rule,
            Self::Unexplained => "unexplained",
        }
    }

    /// True if the objects are the same but for times. If not, both are created again, so that a difference explains
    /// nothing that comes after it.
    pub(crate) fn is_followed_by_same_object(self) -> bool {
        matches!(self, Self::Times(_))
    }
}

impl ComparedStep {
    pub(crate) fn new(kind: &CorpusKind, step: &Step, ours: StepResult, real: StepResult) -> Self {
        let difference = (ours != real).then(|| classify(kind, step, &ours, &real));
        Self { ours, real, difference }
    }

    /// The fields that differ, for a report.
    pub(crate) fn differences(&self) -> Vec<String> {
        differences(&self.ours, &self.real)
    }
}

fn classify(kind: &CorpusKind, step: &Step, ours: &StepResult, real: &StepResult) -> Difference {
    if let Some(rule) = outcome_rule(step, ours, real) {
        return Difference::Decided(rule);
    }
    if ours.code != real.code {
        return Difference::Unexplained;
    }
    let only_real_writes = !ours.is_written && real.is_written;
    let lacks_only_times = |is_concerned: fn(&Value) -> bool| with_times(&real.content, is_concerned) == ours.content;
    if ours.is_written == real.is_written {
        if lacks_only_times(|entry| entry["subresource"] == "scale") {
            return Difference::Times("scale entries have a time");
        }
        if lacks_only_times(|entry| entry["operation"] == "Apply") {
            return Difference::Times("the entry of an apply that only adds an owner has a time");
        }
        if lacks_only_times(may_lack_time) {
            return Difference::Times("scale entries, and those of an apply that only adds an owner, have a time");
        }
    }
    if step.writes("/scale")
        && (ours.is_written == real.is_written || only_real_writes)
        && with_times(&joined_entries(&real.content), |_| true) == ours.content
    {
        return Difference::Decided("a scale keeps entries whole, and their times");
    }
    if kind.is_custom() && only_real_writes && ours.content == real.content {
        return Difference::Decided("an update that changes nothing is no write, whatever empty maps are stored");
    }
    if ours.is_written != real.is_written {
        return Difference::Unexplained;
    }
    if let Some(config) = step.applied_config() {
        let mut filled = real.content.clone();
        fill_empty(&mut filled, config);
        if with_times(&filled, may_lack_time) == ours.content {
            return Difference::Decided("a container that is applied empty is empty at once");
        }
    }
    Difference::Unexplained
}

/// The rule by which a request has another outcome.
fn outcome_rule(step: &Step, ours: &StepResult, real: &StepResult) -> Option<&'static str> {
    let message = real.content["message"].as_str().unwrap_or_default();
    let is_without_owner = || {
        let cause = json!([{"field": ".spec.replicas", "reason": "FieldManagerConflict",
            "message": "conflict with \"before-first-apply\" with subresource \"scale\" using autoscaling/v1"}]);
        ours.code == 409 && ours.content["causes"] == cause
    };
    if step.applies("/scale")
        && (real.code, real.is_written) == (500, false)
        && message.contains("request to convert CR to an invalid group/version: autoscaling/v1")
        && ((ours.code, ours.is_written) == (200, true) || is_without_owner())
    {
        return Some("the scale of a custom object can be applied though its replicas have no owner");
    }
    let nulls_only = || {
        let causes = real.content["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_null = |cause: &Value| {
            let text = cause["message"].as_str().unwrap_or_default();
            cause["reason"] == "FieldValueTypeInvalid" && text.starts_with("Invalid value: \"null\": ")
        };
        !causes.is_empty() && causes.iter().all(is_null)
    };
    if (ours.code, real.code) == (200, 422) && step.applied_config().is_some_and(has_empty_container) && nulls_only() {
        return Some("a container that is applied empty is empty at once, where kube-apiserver makes it null");
    }
    let is_written = ours.is_written || real.is_written;
    if step.applies("/status") && (ours.code, real.code) == (404, 422) && !is_written {
        return Some("an apply of the status does not try to create the object");
    }
    None
}

/// True if a configuration has an empty object or list.
fn has_empty_container(config: &Value) -> bool {
    match config {
        Value::Object(fields) => fields.is_empty() || fields.values().any(has_empty_container),
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_container),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Adds empty objects and lists of a configuration that the object does not have.
fn fill_empty(object: &mut Value, config: &Value) {
    let (Value::Object(object), Value::Object(config)) = (object, config) else { return };
    for (name, part) in config {
        let is_empty = part.as_object().is_some_and(Map::is_empty) || part.as_array().is_some_and(Vec::is_empty);
        match object.get_mut(name) {
            Some(value) => fill_empty(value, part),
            None if is_empty => {
                object.insert(name.clone(), part.clone());
            }
            None => {}
        }
    }
}

/// True for entries that kube-apiserver may write without a time.
fn may_lack_time(entry: &Value) -> bool {
    entry["operation"] == "Apply" || entry["subresource"] == "scale"
}

fn entries_mut(content: &mut Value) -> &mut [Value] {
    content.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// The object, with times of some entries.
fn with_times(content: &Value, is_concerned: fn(&Value) -> bool) -> Value {
    let mut content = content.clone();
    let entries = entries_mut(&mut content);
    entries.iter_mut().filter(|entry| is_concerned(entry)).for_each(|entry| entry["time"] = true.into());
    content
}

/// The object with entries of the same identity joined.
fn joined_entries(content: &Value) -> Value {
    let mut content = content.clone();
    let mut joined: Vec<Value> = Vec::new();
    for entry in entries_mut(&mut content) {
        let identity =
            |entry: &Value| ["manager", "operation", "apiVersion", "subresource"].map(|name| entry[name].clone());
        match joined.iter_mut().find(|other| identity(other) == identity(entry)) {
            Some(other) => join_sets(&mut other["fieldsV1"], &entry["fieldsV1"]),
            None => joined.push(entry.clone()),
        }
    }
    joined.sort_by_key(Value::to_string);
    content["metadata"]["managedFields"] = joined.into();
    content
}

/// Adds the fields of another set, both in the form of an entry.
fn join_sets(set: &mut Value, other: &Value) {
    let (Value::Object(set), Value::Object(other)) = (set, other) else { return };
    // An empty object is a field without fields below it that are owned.
    if set.is_empty() != other.is_empty() {
        set.insert(".".to_owned(), json!({}));
    }
    for (name, below) in other {
        match set.get_mut(name) {
            Some(own) => join_sets(own, below),
            None => {
                set.insert(name.clone(), below.clone());
            }
        }
    }
}

//! Random sequences of writes by several managers to one object, and what a server makes of them.

use std::fmt::Write as _;

use cluster_tests::Client;
use cluster_tests::client::FullResponse;
use http::Method;
use serde_json::{Map, Value, json};

use super::corpus::{CorpusKind, metadata_removable};
use crate::validation::generate::Random;

const MANAGERS: [&str; 4] = ["anna", "ben", "kubectl", "carl"];
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const STEPS_MAX: usize = 8;

/// One request of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    manager: &'static str,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Create(Value),
    /// A PUT of the current object with a fragment merged into it.
    Update(Value),
    /// A PUT of the current object without a field.
    UpdateWithout(&'static str),
    Patch {
        media_type: &'static str,
        body: Value,
        subresource: &'static str,
    },
    Apply {
        config: Value,
        is_forced: bool,
        subresource: &'static str,
    },
}

impl Step {
    /// Creates the minimal object of a kind.
    fn base(kind: &CorpusKind) -> Self {
        Self { manager: MANAGERS[0], action: Action::Create(kind.base.clone()) }
    }

    /// True for an apply of this subresource.
    pub(crate) fn applies(&self, of: &str) -> bool {
        matches!(self.action, Action::Apply { subresource, .. } if subresource == of)
    }

    /// What the step applies.
    pub(crate) fn applied_config(&self) -> Option<&Value> {
        match &self.action {
            Action::Apply { config, .. } => Some(config),
            Action::Create(_) | Action::Update(_) | Action::UpdateWithout(_) | Action::Patch { .. } => None,
        }
    }

    /// True for a write of this subresource.
    pub(crate) fn writes(&self, of: &str) -> bool {
        self.applies(of) || matches!(self.action, Action::Patch { subresource, .. } if subresource == of)
    }
}

/// What a server made of a step: code, and the object or the Status without what differs between servers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepResult {
    pub(crate) code: u16,
    pub(crate) content: Value,
    /// Whether the resourceVersion changed.
    pub(crate) is_written: bool,
}

/// The steps of a seed on a kind.
pub(crate) fn generate(kind: &CorpusKind, seed: u64) -> Vec<Step> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(7));
    let count = 3 + random.index(STEPS_MAX - 2);
    (0..count)
        .map(|at| Step { manager: MANAGERS[random.index(MANAGERS.len())], action: action(kind, &mut random, at == 0) })
        .collect()
}

fn action(kind: &CorpusKind, random: &mut Random, is_first: bool) -> Action {
    let whole = fragments(kind, random, &kind.base);
    if is_first {
        return match random.index(2) {
            0 => Action::Create(whole),
            _ => Action::Apply { config: whole, is_forced: false, subresource: "" },
        };
    }
    let part = fragments(kind, random, &json!({}));
    match random.index(16) {
        0 | 1 => Action::Update(part),
        2 => Action::UpdateWithout(kind.removable[random.index(kind.removable.len())]),
        3 => Action::UpdateWithout(metadata_removable()[random.index(metadata_removable().len())]),
        4 => Action::Patch { media_type: MERGE, body: part, subresource: "" },
        5 if !kind.is_custom() => Action::Patch { media_type: STRATEGIC, body: part, subresource: "" },
        6 => {
            let body = json!([{"op": "remove", "path": random.pick(kind.removable)}]);
            Action::Patch { media_type: JSON_PATCH, body, subresource: "" }
        }
        7 if !kind.status_fragments.is_empty() => {
            let body = random.pick(&kind.status_fragments).clone();
            Action::Patch { media_type: MERGE, body, subresource: "/status" }
        }
        8 if !kind.status_fragments.is_empty() => Action::Apply {
            config: random.pick(&kind.status_fragments).clone(),
            is_forced: random.index(2) == 0,
            subresource: "/status",
        },
        9 if kind.has_scale => {
            let body = json!({"spec": {"replicas": random.index(4)}});
            Action::Patch { media_type: MERGE, body, subresource: "/scale" }
        }
        10 if kind.has_scale => Action::Apply {
            config: json!({"spec": {"replicas": random.index(4)}}),
            is_forced: random.index(2) == 0,
            subresource: "/scale",
        },
        11 => Action::Apply { config: whole, is_forced: random.index(2) == 0, subresource: "" },
        _ => Action::Apply { config: part, is_forced: random.index(3) == 0, subresource: "" },
    }
}

/// Up to three fragments merged into a base.
fn fragments(kind: &CorpusKind, random: &mut Random, base: &Value) -> Value {
    let mut merged = base.clone();
    for _ in 0..random.index(4) {
        merge(&mut merged, random.pick(&kind.fragments));
    }
    merged
}

/// Merges objects, and lists of objects by their first key; replaces everything else.
pub(crate) fn merge(into: &mut Value, fragment: &Value) {
    match (into, fragment) {
        (Value::Object(into), Value::Object(fragment)) => {
            for (name, value) in fragment {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(items)) => {
            for item in items {
                let key = |item: &Value| {
                    let names = ["containerPort", "port", "name", "type", "ip", "mountPath", "uid"];
                    names.iter().find_map(|name| item.get(name).cloned())
                };
                let position = into.iter().position(|own| own == item || key(own).is_some() && key(own) == key(item));
                match position {
                    Some(position) => merge(&mut into[position], item),
                    None => into.push(item.clone()),
                }
            }
        }
        (into, fragment) => *into = fragment.clone(),
    }
}

/// The object of a sequence on one server.
pub(crate) struct SequenceObject<'a> {
    client: &'a Client,
    kind: &'a CorpusKind,
    name: String,
    path: String,
    resource_version: Value,
}

impl<'a> SequenceObject<'a> {
    /// The object of a seed; the first step creates it.
    pub(crate) fn new(client: &'a Client, kind: &'a CorpusKind, seed: u64) -> Self {
        let name = format!("s{seed}");
        let path = format!("{}/{name}", kind.collection);
        Self { client, kind, name, path, resource_version: Value::Null }
    }

    pub(crate) async fn run(&mut self, step: &Step) -> StepResult {
        let response = send(self.client, self.kind, &self.name, &self.path, step).await;
        let now = self.client.get(&self.path).await.json();
        let version = now["metadata"]["resourceVersion"].clone();
        let is_written = version != self.resource_version;
        self.resource_version = version;
        result(&response, &now, is_written)
    }

    /// Replaces the object by a new one, so that both servers go on with the same.
    pub(crate) async fn recreate(&mut self) {
        self.delete().await;
        let created = send(self.client, self.kind, &self.name, &self.path, &Step::base(self.kind)).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        self.resource_version = created.json()["metadata"]["resourceVersion"].clone();
    }

    pub(crate) async fn delete(&mut self) {
        let unblock = json!({"metadata": {"finalizers": null}}).to_string();
        self.client.send_body(Method::PATCH, &self.path, MERGE, unblock.into()).await;
        self.client.delete(&self.path).await;
    }
}

async fn send(client: &Client, kind: &CorpusKind, name: &str, path: &str, step: &Step) -> FullResponse {
    let Step { manager, action } = step;
    let named = |part: &Value, api_version: &str, kind: &str| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        merge(&mut object, part);
        object
    };
    match action {
        Action::Create(object) => {
            let path = format!("{}?fieldManager={manager}", kind.collection);
            client.create(&path, &named(object, kind.api_version, kind.kind)).await
        }
        Action::Update(part) => {
            let mut object = current(client, path, &named(&kind.base, kind.api_version, kind.kind)).await;
            merge(&mut object, part);
            client.update(&format!("{path}?fieldManager={manager}"), &object).await
        }
        Action::UpdateWithout(pointer) => {
            let mut object = current(client, path, &named(&kind.base, kind.api_version, kind.kind)).await;
            remove(&mut object, pointer);
            client.update(&format!("{path}?fieldManager={manager}"), &object).await
        }
        Action::Patch { media_type, body, subresource } => {
            let path = format!("{path}{subresource}?fieldManager={manager}");
            client.send_body(Method::PATCH, &path, media_type, body.to_string().into()).await
        }
        Action::Apply { config, is_forced, subresource } => {
            let path = format!("{path}{subresource}?fieldManager={manager}&force={is_forced}");
            let config = match *subresource {
                "/scale" => named(config, "autoscaling/v1", "Scale"),
                _ => named(config, kind.api_version, kind.kind),
            };
            client.send_body(Method::PATCH, &path, APPLY, config.to_string().into()).await
        }
    }
}

/// The current object, or `absent` if there is none.
async fn current(client: &Client, path: &str, absent: &Value) -> Value {
    let found = client.get(path).await;
    if found.status == 200 { found.json() } else { absent.clone() }
}

fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
        parent.remove(name);
    }
}

fn result(response: &FullResponse, stored: &Value, is_written: bool) -> StepResult {
    let code = response.status.as_u16();
    if code >= 300 {
        let status = response.json();
        let mut causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes.sort_by_key(Value::to_string);
        let content = json!({"reason": status["reason"], "message": status["message"], "causes": causes});
        return StepResult { code, content, is_written };
    }
    StepResult { code, content: normalize(stored), is_written }
}

/// The object without times, uid, revision and allocated address, its managed fields in an order that does not depend on
/// time.
fn normalize(object: &Value) -> Value {
    let mut object = object.clone();
    for address in ["/spec/clusterIP", "/spec/clusterIPs/0"] {
        if let Some(address) = object.pointer_mut(address).filter(|address| **address != "None") {
            *address = "allocated".into();
        }
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return object };
    for name in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(name);
    }
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            mark_time(entry);
        }
        entries.sort_by_key(Value::to_string);
    }
    drop_nulls(&mut object);
    object
}

/// Drops null fields, which a real server shows for some absent lists.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces a time by whether there is one.
fn mark_time(entry: &mut Map<String, Value>) {
    let has_time = entry.remove("time").is_some();
    entry.insert("time".to_owned(), has_time.into());
}

/// Steps and results for a report.
pub(crate) fn describe(steps: &[Step]) -> String {
    steps.iter().fold(String::new(), |mut text, step| {
        let _ = writeln!(text, "  {} {:?}", step.manager, step.action);
        text
    })
}

/// The fields in which two results differ.
pub(crate) fn differences(ours: &StepResult, real: &StepResult) -> Vec<String> {
    let mut found = Vec::new();
    if (ours.code, ours.is_written) != (real.code, real.is_written) {
        let shown = |one: &StepResult| format!("{} written: {}", one.code, one.is_written);
        found.push(format!("{} / {}", shown(ours), shown(real)));
    }
    compare_values("", &ours.content, &real.content, &mut found);
    found
}

fn compare_values(path: &str, ours: &Value, real: &Value, found: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(one), Value::Object(other)) => {
            let names: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for name in names {
                let [ours, real] = [one, other].map(|object| object.get(name).unwrap_or(&Value::Null));
                compare_values(&format!("{path}/{name}"), ours, real, found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (ours, real)) in one.iter().zip(other).enumerate() {
                compare_values(&format!("{path}/{at}"), ours, real, found);
            }
        }
        (ours, real) if ours == real => {}
        (ours, real) => found.push(format!("{path}: {ours} / {real}")),
    }
}

/// A number that stands for a result in recorded data.
pub(crate) fn digest(result: &StepResult) -> u64 {
    let text = format!("{} {} {}", result.code, result.content, result.is_written);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

//! Pods and what runs them.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use api::{FieldError, validation};
use serde_json::{Map, Value, json};

use super::{Object, cron, items, push_port, push_unsupported};
use crate::schema::compare_quantities;

/// What a container for debugging has not.
const NOT_EPHEMERAL: [&str; 6] = ["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];

/// The description of a pod, at a path.
pub(super) fn push_pod(faults: &mut Vec<FieldError>, spec: Option<&Value>, path: &str) {
    let Some(spec) = spec else { return };
    push_unsupported(faults, &format!("{path}.restartPolicy"), spec.get("restartPolicy"), &RESTART_POLICIES);
    let mut names = HashSet::new();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (at, container) in items(spec.get(list)).iter().enumerate() {
            let path = format!("{path}.{list}[{at}]");
            push_container(faults, container, &path, &mut names);
            push_claims(faults, container, &path, spec);
            if list == "ephemeralContainers" {
                push_ephemeral(faults, container, &path, spec);
            }
        }
    }
    let resources = spec.get("resources");
    push_resources(faults, resources, &format!("{path}.resources"));
    if !items(resources.and_then(|resources| resources.get("claims"))).is_empty() {
        let detail = "claims may not be set for Resources at pod-level";
        faults.push(FieldError::forbidden(format!("{path}.resources.claims"), detail));
    }
}

/// A container uses claims of its pod.
fn push_claims(faults: &mut Vec<FieldError>, container: &Value, path: &str, spec: &Value) {
    let name = |claim: &Value| claim.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let known: BTreeSet<String> = items(spec.get("resourceClaims")).iter().map(name).collect();
    let claims = items(container.get("resources").and_then(|resources| resources.get("claims")));
    for (at, claim) in
        claims.iter().map(name).enumerate().filter(|(_, claim)| !claim.is_empty() && !known.contains(claim))
    {
        let names = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let names = if known.is_empty() { " which is empty".to_owned() } else { format!(": {names}") };
        let detail = format!("must be one of the names in pod.spec.resourceClaims{names}");
        faults.push(FieldError::not_found(format!("{path}.resources.claims[{at}]"), claim).with_detail(detail));
    }
}

/// A container for debugging has a target among the others and is no part of the service.
fn push_ephemeral(faults: &mut Vec<FieldError>, container: &Value, path: &str, spec: &Value) {
    let target = container.get("targetContainerName").and_then(Value::as_str).unwrap_or_default();
    let mut others = ["containers", "initContainers"].into_iter().flat_map(|list| items(spec.get(list)));
    if !target.is_empty() && !others.any(|other| other.get("name").is_some_and(|name| name == target)) {
        faults.push(FieldError::not_found(format!("{path}.targetContainerName"), target));
    }
    for field in NOT_EPHEMERAL {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => field == "resources" && fields.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if container.get(field).is_some_and(|value| !is_empty(value)) {
            faults.push(FieldError::forbidden(format!("{path}.{field}"), "cannot be set for an Ephemeral Container"));
        }
    }
}

/// Nothing may be asked for that is more than may be had, nor less than nothing.
fn push_resources(faults: &mut Vec<FieldError>, resources: Option<&Value>, path: &str) {
    let list = |name: &str| resources.and_then(|resources| resources.get(name)).and_then(Value::as_object);
    let (requests, limits) = (list("requests"), list("limits"));
    let shown = |amount: &Value| amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    for (part, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts.into_iter().flatten() {
            if compare_quantities(amount, &Value::from(0)) == Some(Ordering::Less) {
                let detail = "must be greater than or equal to 0";
                faults.push(FieldError::invalid(format!("{path}.{part}[{name}]"), shown(amount), detail));
            }
            let Some(limit) = limits.filter(|_| part == "requests").and_then(|limits| limits.get(name)) else {
                continue;
            };
            let relation = match compare_quantities(amount, limit) {
                Some(Ordering::Greater | Ordering::Less) if !is_overcommitted(name) => "equal to",
                Some(Ordering::Greater) => "less than or equal to",
                Some(Ordering::Less | Ordering::Equal) | None => continue,
            };
            let detail = format!("must be {relation} {name} limit of {}", shown(limit));
            faults.push(FieldError::invalid(format!("{path}.requests"), shown(amount), detail));
        }
    }
}

/// Whether a node may promise more of a resource than it has.
fn is_overcommitted(resource: &str) -> bool {
    (!resource.contains('/') || resource.contains("kubernetes.io/")) && !resource.starts_with("hugepages-")
}

fn push_container<'a>(faults: &mut Vec<FieldError>, container: &'a Value, path: &str, names: &mut HashSet<&'a str>) {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
    if !name.is_empty() {
        for fault in validation::dns1123_label(name) {
            faults.push(FieldError::invalid(format!("{path}.name"), name, fault));
        }
        if !names.insert(name) {
            faults.push(FieldError::duplicate(format!("{path}.name"), name));
        }
    }
    for (at, port) in items(container.get("ports")).iter().enumerate() {
        push_port(faults, format!("{path}.ports[{at}].containerPort"), port.get("containerPort"));
    }
    push_resources(faults, container.get("resources"), &format!("{path}.resources"));
}

/// A replication controller, whose selector is nothing but labels.
pub(super) fn push_controller(faults: &mut Vec<FieldError>, object: &Object) {
    let Some(spec) = object.get("spec") else { return };
    push_replicas(faults, spec);
    push_template(faults, spec, &json!({"matchLabels": spec.get("selector")}));
}

pub(super) fn push_workload(faults: &mut Vec<FieldError>, object: &Object) {
    let Some(spec) = object.get("spec") else { return };
    push_replicas(faults, spec);
    push_template(faults, spec, spec.get("selector").unwrap_or(&Value::Null));
}

fn push_replicas(faults: &mut Vec<FieldError>, spec: &Value) {
    if let Some(replicas) = spec.get("replicas").and_then(Value::as_i64).filter(|replicas| *replicas < 0) {
        faults.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
    }
}

/// The pods that are made must be the pods that are looked for.
fn push_template(faults: &mut Vec<FieldError>, spec: &Value, selector: &Value) {
    let template = spec.get("template");
    let labels = template.and_then(|template| template.get("metadata")?.get("labels"));
    if has_terms(selector) && template.is_some() && !selects(selector, labels.and_then(Value::as_object)) {
        let shown = labels.cloned().unwrap_or_default();
        let detail = "`selector` does not match template `labels`";
        faults.push(FieldError::invalid("spec.template.metadata.labels", shown, detail));
    }
    push_pod(faults, template.and_then(|template| template.get("spec")), "spec.template.spec");
    let policy = template.and_then(|template| template.get("spec")?.get("restartPolicy")?.as_str());
    if let Some(policy) = policy.filter(|policy| RESTART_POLICIES[1..].contains(policy)) {
        faults.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

fn has_terms(selector: &Value) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    labels || !items(selector.get("matchExpressions")).is_empty()
}

fn selects(selector: &Value, labels: Option<&Map<String, Value>>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    let mut wanted = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    wanted.all(|(key, value)| label(key) == Some(value))
        && items(selector.get("matchExpressions")).iter().all(|term| {
            let found = label(term.get("key").and_then(Value::as_str).unwrap_or_default());
            let is_among = found.is_some_and(|found| items(term.get("values")).contains(found));
            match term.get("operator").and_then(Value::as_str).unwrap_or_default() {
                "In" => is_among,
                "NotIn" => !is_among,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                // Another rule's concern.
                _ => true,
            }
        })
}

/// The description of a job, at a path.
pub(super) fn push_job(faults: &mut Vec<FieldError>, spec: Option<&Value>, path: &str) {
    let pod = spec.and_then(|spec| spec.get("template")?.get("spec"));
    push_pod(faults, pod, &format!("{path}.template.spec"));
    // What nobody said has become the default, which is none for jobs.
    if pod.is_some_and(|pod| pod.get("restartPolicy").and_then(Value::as_str) == Some(RESTART_POLICIES[0])) {
        let detail = r#"valid values: "OnFailure", "Never""#;
        faults.push(FieldError::required(format!("{path}.template.spec.restartPolicy"), detail));
    }
}

pub(super) fn push_cron_job(faults: &mut Vec<FieldError>, object: &Object) {
    let Some(spec) = object.get("spec") else { return };
    let schedule = spec.get("schedule").and_then(Value::as_str).unwrap_or_default();
    if let Some(fault) = cron::fault(schedule).filter(|_| !schedule.is_empty()) {
        faults.push(FieldError::invalid("spec.schedule", schedule, fault));
    }
    push_job(faults, spec.get("jobTemplate").and_then(|template| template.get("spec")), "spec.jobTemplate.spec");
}

//! Pods and what runs them.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use api::json::JsonObject;
use api::{FieldError, validation};
use serde_json::{Map, Value, json};

use super::{check_port, check_supported, cron, list_items};
use crate::schema::compare_quantities;

/// What a container for debugging has not.
const EPHEMERAL_FORBIDDEN_FIELDS: [&str; 6] =
    ["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];

/// The description of a pod, at a path.
pub(super) fn check_pod_spec(errors: &mut Vec<FieldError>, spec: Option<&Value>, path: &str) {
    let Some(spec) = spec else { return };
    check_supported(errors, &format!("{path}.restartPolicy"), spec.get("restartPolicy"), &RESTART_POLICIES);
    let mut names = HashSet::new();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (at, container) in list_items(spec.get(list)).iter().enumerate() {
            let path = format!("{path}.{list}[{at}]");
            check_container(errors, container, &path, &mut names);
            check_claims(errors, container, &path, spec);
            if list == "ephemeralContainers" {
                check_ephemeral_container(errors, container, &path, spec);
            }
        }
    }
    let resources = spec.get("resources");
    check_resources(errors, resources, &format!("{path}.resources"));
    if !list_items(resources.and_then(|resources| resources.get("claims"))).is_empty() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(format!("{path}.resources.claims"), detail));
    }
}

/// A container uses claims of its pod.
fn check_claims(errors: &mut Vec<FieldError>, container: &Value, path: &str, spec: &Value) {
    let name = |claim: &Value| claim.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let known: BTreeSet<String> = list_items(spec.get("resourceClaims")).iter().map(name).collect();
    let claims = list_items(container.get("resources").and_then(|resources| resources.get("claims")));
    for (at, claim) in
        claims.iter().map(name).enumerate().filter(|(_, claim)| !claim.is_empty() && !known.contains(claim))
    {
        let names = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let names = if known.is_empty() { " which is empty".to_owned() } else { format!(": {names}") };
        let detail = format!("must be one of the names in pod.spec.resourceClaims{names}");
        errors.push(FieldError::not_found(format!("{path}.resources.claims[{at}]"), claim).with_detail(detail));
    }
}

/// A container for debugging has a target among the others and is no part of the service.
fn check_ephemeral_container(errors: &mut Vec<FieldError>, container: &Value, path: &str, spec: &Value) {
    let target = container.get("targetContainerName").and_then(Value::as_str).unwrap_or_default();
    let mut others = ["containers", "initContainers"].into_iter().flat_map(|list| list_items(spec.get(list)));
    if !target.is_empty() && !others.any(|other| other.get("name").is_some_and(|name| name == target)) {
        errors.push(FieldError::not_found(format!("{path}.targetContainerName"), target));
    }
    for field in EPHEMERAL_FORBIDDEN_FIELDS {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => field == "resources" && fields.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if container.get(field).is_some_and(|value| !is_empty(value)) {
            errors.push(FieldError::forbidden(format!("{path}.{field}"), "cannot be set for an Ephemeral Container"));
        }
    }
}

/// Nothing may be asked for that is more than may be had, nor less than nothing.
fn check_resources(errors: &mut Vec<FieldError>, resources: Option<&Value>, path: &str) {
    let list = |name: &str| resources.and_then(|resources| resources.get(name)).and_then(Value::as_object);
    let (requests, limits) = (list("requests"), list("limits"));
    let shown = |amount: &Value| amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    for (part, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts.into_iter().flatten() {
            if compare_quantities(amount, &Value::from(0)) == Some(Ordering::Less) {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(format!("{path}.{part}[{name}]"), shown(amount), detail));
            }
            let Some(limit) = limits.filter(|_| part == "requests").and_then(|limits| limits.get(name)) else {
                continue;
            };
            let relation = match compare_quantities(amount, limit) {
                Some(Ordering::Greater | Ordering::Less) if !allows_overcommit(name) => "equal to",
                Some(Ordering::Greater) => "less than or equal to",
                Some(Ordering::Less | Ordering::Equal) | None => continue,
            };
            let detail = format!("must be {relation} {name} limit of {}", shown(limit));
            errors.push(FieldError::invalid(format!("{path}.requests"), shown(amount), detail));
        }
    }
}

/// Whether a node may promise more of a resource than it has.
fn allows_overcommit(resource: &str) -> bool {
    (!resource.contains('/') || resource.contains("kubernetes.io/")) && !resource.starts_with("hugepages-")
}

fn check_container<'a>(errors: &mut Vec<FieldError>, container: &'a Value, path: &str, names: &mut HashSet<&'a str>) {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
    if !name.is_empty() {
        for error in validation::validate_dns1123_label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), name, error));
        }
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
    }
    for (at, port) in list_items(container.get("ports")).iter().enumerate() {
        check_port(errors, format!("{path}.ports[{at}].containerPort"), port.get("containerPort"));
    }
    check_resources(errors, container.get("resources"), &format!("{path}.resources"));
}

/// A replication controller, whose selector is nothing but labels.
pub(super) fn check_replication_controller(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let Some(spec) = object.get("spec") else { return };
    check_replicas(errors, spec);
    check_template(errors, spec, &json!({"matchLabels": spec.get("selector")}));
}

pub(super) fn check_workload(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let Some(spec) = object.get("spec") else { return };
    check_replicas(errors, spec);
    check_template(errors, spec, spec.get("selector").unwrap_or(&Value::Null));
}

fn check_replicas(errors: &mut Vec<FieldError>, spec: &Value) {
    if let Some(replicas) = spec.get("replicas").and_then(Value::as_i64).filter(|replicas| *replicas < 0) {
        errors.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
    }
}

/// The pods that are made must be the pods that are looked for.
fn check_template(errors: &mut Vec<FieldError>, spec: &Value, selector: &Value) {
    let template = spec.get("template");
    let labels = template.and_then(|template| template.get("metadata")?.get("labels"));
    if has_terms(selector) && template.is_some() && !selector_matches(selector, labels.and_then(Value::as_object)) {
        let shown = labels.cloned().unwrap_or_default();
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", shown, detail));
    }
    check_pod_spec(errors, template.and_then(|template| template.get("spec")), "spec.template.spec");
    let policy = template.and_then(|template| template.get("spec")?.get("restartPolicy")?.as_str());
    if let Some(policy) = policy.filter(|policy| RESTART_POLICIES[1..].contains(policy)) {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

fn has_terms(selector: &Value) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    labels || !list_items(selector.get("matchExpressions")).is_empty()
}

fn selector_matches(selector: &Value, labels: Option<&Map<String, Value>>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    let mut wanted = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    wanted.all(|(key, value)| label(key) == Some(value))
        && list_items(selector.get("matchExpressions")).iter().all(|term| {
            let found = label(term.get("key").and_then(Value::as_str).unwrap_or_default());
            let is_among = found.is_some_and(|found| list_items(term.get("values")).contains(found));
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
pub(super) fn check_job_spec(errors: &mut Vec<FieldError>, spec: Option<&Value>, path: &str) {
    let pod = spec.and_then(|spec| spec.get("template")?.get("spec"));
    check_pod_spec(errors, pod, &format!("{path}.template.spec"));
    // What nobody said has become the default, which is none for jobs.
    if pod.is_some_and(|pod| pod.get("restartPolicy").and_then(Value::as_str) == Some(RESTART_POLICIES[0])) {
        let detail = r#"valid values: "OnFailure", "Never""#;
        errors.push(FieldError::required(format!("{path}.template.spec.restartPolicy"), detail));
    }
}

pub(super) fn check_cron_job(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let Some(spec) = object.get("spec") else { return };
    let schedule = spec.get("schedule").and_then(Value::as_str).unwrap_or_default();
    if let Some(error) = cron::schedule_error(schedule).filter(|_| !schedule.is_empty()) {
        errors.push(FieldError::invalid("spec.schedule", schedule, error));
    }
    check_job_spec(errors, spec.get("jobTemplate").and_then(|template| template.get("spec")), "spec.jobTemplate.spec");
}

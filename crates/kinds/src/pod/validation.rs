//! Validation of pods and pod templates.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use api::{FieldError, validation};
use schema::compare_quantities;
use serde_json::Value;

use crate::fields::{check_port, check_supported, list_items};

/// Fields that an ephemeral container must not have.
const EPHEMERAL_FORBIDDEN_FIELDS: [&str; 6] =
    ["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"];

pub(crate) const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];

/// Checks the spec of a pod, or of a pod template, at a path.
pub(crate) fn check_pod_spec(errors: &mut Vec<FieldError>, spec: Option<&Value>, path: &str) {
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

/// Rejects resource claims that the pod does not list.
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

/// Rejects an ephemeral container with an unknown target or with fields that it must not have.
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

/// Rejects negative amounts, and requests beyond their limits.
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

/// Whether limits of a resource may exceed its requests.
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

//! LimitRanger: defaults and bounds of what containers, pods and claims request.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::GroupResource;
use api::json::JsonObject;
use object::unstructured::{get, metadata_mut, nested_object, nested_object_mut, objects, text};
use serde_json::{Value, json};

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::quantity::Amount;
use crate::refusal::Refusal;
use crate::webhook::aggregate;

const LIMIT_RANGES: GroupResource<&str> = GroupResource { group: "", resource: "limitranges" };
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub(super) static PLUGIN: Plugin = Plugin {
    name: "LimitRanger",
    operations: &[Operation::Create, Operation::Update],
    admit: Some(admit),
    validate: Some(validate),
};

type ResourceList = BTreeMap<String, Amount>;

fn admit(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !is_limited(write) || !write.attributes.is_resource("", "pods") {
        return Ok(());
    }
    let limit_ranges = environment.view.list(LIMIT_RANGES, write.attributes.namespace)?;
    let Some(pod) = &mut write.object else { return Ok(()) };
    for limit_range in &limit_ranges {
        set_defaults(pod, limit_range);
    }
    Ok(())
}

fn validate(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !is_limited(write) {
        return Ok(());
    }
    let Some(object) = &write.object else { return Ok(()) };
    for limit_range in environment.view.list(LIMIT_RANGES, write.attributes.namespace)? {
        let errors = if write.attributes.is_resource("", "pods") {
            check_pod(object, &limit_range, environment.gates.enabled("PodLevelResources"))
        } else {
            check_claim(object, &limit_range)
        };
        if let Some(text) = aggregate(&errors) {
            return Err(Refusal::Forbidden(text));
        }
    }
    Ok(())
}

/// Creates of pods and claims, updates of claims, and resizes of pods; objects that are being deleted are left alone.
fn is_limited(write: &Write<'_>) -> bool {
    let attributes = &write.attributes;
    let is_deleted = write.old_object.is_some_and(|old| get(old, &["metadata", "deletionTimestamp"]).is_some());
    let is_pod = attributes.kind.group.is_empty() && attributes.kind.kind == "Pod";
    let is_claim = attributes.kind.group.is_empty() && attributes.kind.kind == "PersistentVolumeClaim";
    let is_supported = match (attributes.subresource, attributes.operation) {
        ("resize", Operation::Update) => is_pod,
        ("", Operation::Update) => is_claim,
        ("", _) => is_pod || is_claim,
        _ => false,
    };
    is_supported && !is_deleted
}

fn set_defaults(pod: &mut JsonObject, limit_range: &JsonObject) {
    let [mut requests, mut limits] = [JsonObject::new(), JsonObject::new()];
    for limit in objects(limit_range, &["spec", "limits"]).filter(|limit| text(limit, &["type"]) == "Container") {
        requests.extend(nested_object(limit, &["defaultRequest"]).into_iter().flatten().map(owned));
        limits.extend(nested_object(limit, &["default"]).into_iter().flatten().map(owned));
    }
    let mut changes = Vec::new();
    let spec = nested_object_mut(pod, "spec");
    for (list, shown) in [("containers", "container"), ("initContainers", "init container")] {
        let Some(Value::Array(containers)) = spec.get_mut(list) else { continue };
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            let name = text(container, &["name"]).to_owned();
            for (field, defaults, what) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let given = nested_object(container, &["resources", field]);
                let missing: Vec<(String, Value)> = defaults
                    .iter()
                    .filter(|(resource, _)| !given.is_some_and(|given| given.contains_key(*resource)))
                    .map(owned)
                    .collect();
                if missing.is_empty() {
                    continue;
                }
                let names: Vec<&str> = missing.iter().map(|(resource, _)| resource.as_str()).collect();
                changes.push(format!("{} {what} for {shown} {name}", names.join(", ")));
                nested_object_mut(nested_object_mut(container, "resources"), field).extend(missing);
            }
        }
    }
    if !changes.is_empty() {
        let value = format!("LimitRanger plugin set: {}", changes.join("; "));
        nested_object_mut(metadata_mut(pod), "annotations").insert(ANNOTATION.to_owned(), json!(value));
    }
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

fn check_pod(pod: &JsonObject, limit_range: &JsonObject, has_pod_resources: bool) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in objects(limit_range, &["spec", "limits"]) {
        match text(limit, &["type"]) {
            "Container" => {
                for container in objects(pod, &["spec", "containers"]).chain(objects(pod, &["spec", "initContainers"]))
                {
                    let list = |field| amounts(nested_object(container, &["resources", field]));
                    check_bounds("Container", limit, &list("requests"), &list("limits"), &mut errors);
                }
            }
            "Pod" => {
                let sum = |field| sum_of_pod(pod, field, has_pod_resources);
                check_bounds("Pod", limit, &sum("requests"), &sum("limits"), &mut errors);
            }
            _ => {}
        }
    }
    errors
}

fn check_claim(claim: &JsonObject, limit_range: &JsonObject) -> Vec<String> {
    const TYPE: &str = "PersistentVolumeClaim";
    let requests = amounts(nested_object(claim, &["spec", "resources", "requests"]));
    let mut errors = Vec::new();
    for limit in objects(limit_range, &["spec", "limits"]).filter(|limit| text(limit, &["type"]) == TYPE) {
        for (resource, least) in amounts(nested_object(limit, &["min"])) {
            errors.extend(check_min(TYPE, &resource, &least, requests.get(&resource), None));
        }
        for (resource, most) in amounts(nested_object(limit, &["max"])) {
            let bound = format!("maximum {resource} usage per {TYPE} is {most}");
            match requests.get(&resource) {
                None => errors.push(format!("{bound}.  No request is specified")),
                Some(request) if is_above(request, &most, None) => {
                    errors.push(format!("{bound}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
    errors
}

fn check_bounds(
    limit_type: &str,
    limit: &JsonObject,
    requests: &ResourceList,
    limits: &ResourceList,
    errors: &mut Vec<String>,
) {
    for (resource, least) in amounts(nested_object(limit, &["min"])) {
        errors.extend(check_min(limit_type, &resource, &least, requests.get(&resource), limits.get(&resource)));
    }
    for (resource, most) in amounts(nested_object(limit, &["max"])) {
        errors.extend(check_max(limit_type, &resource, &most, requests.get(&resource), limits.get(&resource)));
    }
    for (resource, ratio) in amounts(nested_object(limit, &["maxLimitRequestRatio"])) {
        errors.extend(check_ratio(limit_type, &resource, &ratio, requests.get(&resource), limits.get(&resource)));
    }
}

fn check_min(
    limit_type: &str,
    resource: &str,
    least: &Amount,
    request: Option<&Amount>,
    limit: Option<&Amount>,
) -> Option<String> {
    let bound = format!("minimum {resource} usage per {limit_type} is {least}");
    match (request, limit) {
        (None, _) => Some(format!("{bound}.  No request is specified")),
        (Some(request), _) if is_above(least, request, limit) => Some(format!("{bound}, but request is {request}")),
        (_, Some(limit)) if is_above(least, limit, request) => Some(format!("{bound}, but limit is {limit}")),
        (Some(_), _) => None,
    }
}

fn check_max(
    limit_type: &str,
    resource: &str,
    most: &Amount,
    request: Option<&Amount>,
    limit: Option<&Amount>,
) -> Option<String> {
    let bound = format!("maximum {resource} usage per {limit_type} is {most}");
    match (request, limit) {
        (_, None) => Some(format!("{bound}.  No limit is specified")),
        (_, Some(limit)) if is_above(limit, most, request) => Some(format!("{bound}, but limit is {limit}")),
        (Some(request), _) if is_above(request, most, limit) => Some(format!("{bound}, but request is {request}")),
        (_, Some(_)) => None,
    }
}

/// Compares in thousandths if none of the amounts is too large for that, else in whole units, as Kubernetes does.
fn is_above(left: &Amount, right: &Amount, other: Option<&Amount>) -> bool {
    if [Some(left), Some(right), other].into_iter().flatten().all(Amount::is_compared_in_thousandths) {
        left.thousandths() > right.thousandths()
    } else {
        left.whole() > right.whole()
    }
}

fn check_ratio(
    limit_type: &str,
    resource: &str,
    most: &Amount,
    request: Option<&Amount>,
    limit: Option<&Amount>,
) -> Option<String> {
    let bound = format!("{resource} max limit to request ratio per {limit_type} is {most}");
    let in_thousandths = [request, limit, Some(most)].into_iter().flatten().all(Amount::is_compared_in_thousandths);
    let value = |amount: Option<&Amount>| {
        amount.map_or(0, |amount| if in_thousandths { amount.thousandths() } else { amount.whole() })
    };
    let (request, limit) = (value(request), value(limit));
    if request == 0 {
        return Some(format!("{bound}, but no request is specified or request is 0"));
    }
    if limit == 0 {
        return Some(format!("{bound}, but no limit is specified or limit is 0"));
    }
    #[allow(clippy::cast_precision_loss)]
    let (ratio, most_value) = {
        let ratio = limit as f64 / request as f64;
        if most.is_compared_in_thousandths() {
            (ratio * 1000.0, most.thousandths() as f64)
        } else {
            (ratio, most.whole() as f64)
        }
    };
    #[allow(clippy::cast_precision_loss)]
    let shown = limit as f64 / request as f64;
    (ratio > most_value).then(|| format!("{bound}, but provided ratio is {shown:.6}"))
}

fn amounts(list: Option<&JsonObject>) -> ResourceList {
    let amount = |(resource, value): (&String, &Value)| Some((resource.clone(), Amount::read(value)?));
    list.into_iter().flatten().filter_map(amount).collect()
}

/// What a pod requests in all: the sum of its containers and sidecars, at least what any init container needs.
fn sum_of_pod(pod: &JsonObject, field: &str, has_pod_resources: bool) -> ResourceList {
    let list = |container: &JsonObject| amounts(nested_object(container, &["resources", field]));
    let mut sum = ResourceList::new();
    for container in objects(pod, &["spec", "containers"]) {
        add(&mut sum, &list(container));
    }
    let (mut sidecars, mut init) = (ResourceList::new(), ResourceList::new());
    for container in objects(pod, &["spec", "initContainers"]) {
        let own = list(container);
        if text(container, &["restartPolicy"]) == "Always" {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut init, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut init, &together);
        }
    }
    raise(&mut sum, &init);
    if has_pod_resources {
        let own = amounts(nested_object(pod, &["spec", "resources", field]));
        sum.extend(own.into_iter().filter(|(resource, _)| matches!(resource.as_str(), "cpu" | "memory")));
    }
    sum
}

fn add(sum: &mut ResourceList, list: &ResourceList) {
    for (resource, amount) in list {
        match sum.get_mut(resource) {
            Some(value) => value.add(amount),
            None => {
                sum.insert(resource.clone(), amount.clone());
            }
        }
    }
}

fn raise(list: &mut ResourceList, floor: &ResourceList) {
    for (resource, amount) in floor {
        if list.get(resource).is_none_or(|value| amount.billionths() > value.billionths()) {
            list.insert(resource.clone(), amount.clone());
        }
    }
}

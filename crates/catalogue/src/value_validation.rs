//! Values that Kubernetes refuses, in new objects and in changed ones.
//!
//! These are the mistakes that people make: a schedule that is none, labels that the selector does not select, a port that
//! cannot be. Nothing is demanded here that an object may lack; all the rest that Kubernetes validates is taken as it is.

mod cron;
mod workloads;

use api::json::JsonObject;
use api::{FieldError, validation};
use serde_json::{Map, Value};

use crate::schema::StructType;

/// Priority classes that Kubernetes makes itself.
const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];
const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// What is wrong with the values of an object, in Kubernetes' words. It must have passed [`crate::schema::check_types`] and have its
/// defaults.
pub fn validate_values(kind: StructType, object: &Map<String, Value>) -> Vec<FieldError> {
    let Some(named) = kind.kind() else { return Vec::new() };
    let mut errors = Vec::new();
    match (named.group, named.kind) {
        ("", "ConfigMap") => check_data_keys(&mut errors, object, &["data", "binaryData"]),
        ("", "Secret") => check_data_keys(&mut errors, object, &["data"]),
        ("", "Service") => check_service(&mut errors, object),
        ("", "Pod") => workloads::check_pod_spec(&mut errors, object.get("spec"), "spec"),
        ("", "ReplicationController") => workloads::check_replication_controller(&mut errors, object),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workloads::check_workload(&mut errors, object);
        }
        ("batch", "Job") => workloads::check_job_spec(&mut errors, object.get("spec"), "spec"),
        ("batch", "CronJob") => workloads::check_cron_job(&mut errors, object),
        ("networking.k8s.io", "Ingress") => check_ingress_hosts(&mut errors, object),
        ("policy", "PodDisruptionBudget") => check_disruption_budget(&mut errors, object),
        ("scheduling.k8s.io", "PriorityClass") => check_priority_class(&mut errors, object),
        _ => {}
    }
    errors
}

fn check_data_keys(errors: &mut Vec<FieldError>, object: &JsonObject, parts: &[&str]) {
    for part in parts {
        for key in object.get(*part).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            if let Some(error) = data_key_error(key) {
                errors.push(FieldError::invalid(format!("{part}[{key}]"), key.as_str(), error));
            }
        }
    }
}

fn data_key_error(key: &str) -> Option<String> {
    const LENGTH_MAX: usize = 253;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match key {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if key.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ if key.len() > LENGTH_MAX => Some(format!("must be no more than {LENGTH_MAX} characters")),
        _ if key.is_empty() || !key.bytes().all(is_allowed) => Some(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  \
             or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        ),
        _ => None,
    }
}

fn check_service(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let Some(spec) = object.get("spec") else { return };
    check_supported(errors, "spec.type", spec.get("type"), &SERVICE_TYPES);
    for (at, port) in list_items(spec.get("ports")).iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        check_port(errors, format!("{path}.port"), port.get("port"));
        check_port(errors, format!("{path}.targetPort"), port.get("targetPort"));
        check_supported(errors, &format!("{path}.protocol"), port.get("protocol"), &PROTOCOLS);
    }
}

/// A number that no port has; names of ports are taken as they are.
fn check_port(errors: &mut Vec<FieldError>, path: String, port: Option<&Value>) {
    if let Some(number) = port.and_then(Value::as_i64).filter(|number| !(1..=65535).contains(number)) {
        errors.push(FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"));
    }
}

fn check_supported(errors: &mut Vec<FieldError>, path: &str, value: Option<&Value>, supported: &[&str]) {
    if let Some(word) = value.and_then(Value::as_str).filter(|word| !supported.contains(word)) {
        errors.push(FieldError::not_supported(path, word, supported));
    }
}

fn check_ingress_hosts(errors: &mut Vec<FieldError>, object: &JsonObject) {
    for (at, rule) in list_items(object.get("spec").and_then(|spec| spec.get("rules"))).iter().enumerate() {
        let host = rule.get("host").and_then(Value::as_str).unwrap_or_default();
        // A wildcard stands for one part of a name.
        if host.is_empty() || host.starts_with("*.") {
            continue;
        }
        for error in validation::validate_dns1123_subdomain(host) {
            errors.push(FieldError::invalid(format!("spec.rules[{at}].host"), host, error));
        }
    }
}

fn check_disruption_budget(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let Some(spec) = object.get("spec") else { return };
    if ["minAvailable", "maxUnavailable"].iter().all(|bound| spec.get(bound).is_some_and(|value| !value.is_null())) {
        errors.push(FieldError::invalid("spec", spec.clone(), "minAvailable and maxUnavailable cannot be both set"));
    }
}

fn check_priority_class(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")?.as_str()).unwrap_or_default();
    if name.starts_with("system-") && !SYSTEM_CLASSES.contains(&name) {
        let detail = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system \
             priority class"
        );
        errors.push(FieldError::forbidden("metadata.name", detail));
    }
}

/// The items of a list that may not be there.
fn list_items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;

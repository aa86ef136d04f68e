//! Values that Kubernetes refuses, in new objects and in changed ones.
//!
//! These are the mistakes that people make: a schedule that is none, labels that the selector does not select, a port that
//! cannot be. Nothing is demanded here that an object may lack; all the rest that Kubernetes validates is taken as it is.

mod cron;
mod workloads;

use api::{FieldError, validation};
use serde_json::{Map, Value};

use crate::schema::Struct;

type Object = Map<String, Value>;

/// Priority classes that Kubernetes makes itself.
const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];
const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// What is wrong with the values of an object, in Kubernetes' words. It must have passed [`crate::schema::check()`] and have its
/// defaults.
pub fn faults(kind: Struct, object: &Map<String, Value>) -> Vec<FieldError> {
    let Some(named) = kind.kind() else { return Vec::new() };
    let mut faults = Vec::new();
    match (named.group, named.kind) {
        ("", "ConfigMap") => push_keys(&mut faults, object, &["data", "binaryData"]),
        ("", "Secret") => push_keys(&mut faults, object, &["data"]),
        ("", "Service") => push_service(&mut faults, object),
        ("", "Pod") => workloads::push_pod(&mut faults, object.get("spec"), "spec"),
        ("", "ReplicationController") => workloads::push_controller(&mut faults, object),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workloads::push_workload(&mut faults, object);
        }
        ("batch", "Job") => workloads::push_job(&mut faults, object.get("spec"), "spec"),
        ("batch", "CronJob") => workloads::push_cron_job(&mut faults, object),
        ("networking.k8s.io", "Ingress") => push_hosts(&mut faults, object),
        ("policy", "PodDisruptionBudget") => push_budget(&mut faults, object),
        ("scheduling.k8s.io", "PriorityClass") => push_class(&mut faults, object),
        _ => {}
    }
    faults
}

fn push_keys(faults: &mut Vec<FieldError>, object: &Object, parts: &[&str]) {
    for part in parts {
        for key in object.get(*part).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            if let Some(fault) = key_fault(key) {
                faults.push(FieldError::invalid(format!("{part}[{key}]"), key.as_str(), fault));
            }
        }
    }
}

fn key_fault(key: &str) -> Option<String> {
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

fn push_service(faults: &mut Vec<FieldError>, object: &Object) {
    let Some(spec) = object.get("spec") else { return };
    push_unsupported(faults, "spec.type", spec.get("type"), &SERVICE_TYPES);
    for (at, port) in items(spec.get("ports")).iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        push_port(faults, format!("{path}.port"), port.get("port"));
        push_port(faults, format!("{path}.targetPort"), port.get("targetPort"));
        push_unsupported(faults, &format!("{path}.protocol"), port.get("protocol"), &PROTOCOLS);
    }
}

/// A number that no port has; names of ports are taken as they are.
fn push_port(faults: &mut Vec<FieldError>, path: String, port: Option<&Value>) {
    if let Some(number) = port.and_then(Value::as_i64).filter(|number| !(1..=65535).contains(number)) {
        faults.push(FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"));
    }
}

fn push_unsupported(faults: &mut Vec<FieldError>, path: &str, value: Option<&Value>, supported: &[&str]) {
    if let Some(word) = value.and_then(Value::as_str).filter(|word| !supported.contains(word)) {
        faults.push(FieldError::not_supported(path, word, supported));
    }
}

fn push_hosts(faults: &mut Vec<FieldError>, object: &Object) {
    for (at, rule) in items(object.get("spec").and_then(|spec| spec.get("rules"))).iter().enumerate() {
        let host = rule.get("host").and_then(Value::as_str).unwrap_or_default();
        // A wildcard stands for one part of a name.
        if host.is_empty() || host.starts_with("*.") {
            continue;
        }
        for fault in validation::dns1123_subdomain(host) {
            faults.push(FieldError::invalid(format!("spec.rules[{at}].host"), host, fault));
        }
    }
}

fn push_budget(faults: &mut Vec<FieldError>, object: &Object) {
    let Some(spec) = object.get("spec") else { return };
    if ["minAvailable", "maxUnavailable"].iter().all(|bound| spec.get(bound).is_some_and(|value| !value.is_null())) {
        faults.push(FieldError::invalid("spec", spec.clone(), "minAvailable and maxUnavailable cannot be both set"));
    }
}

fn push_class(faults: &mut Vec<FieldError>, object: &Object) {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")?.as_str()).unwrap_or_default();
    if name.starts_with("system-") && !SYSTEM_CLASSES.contains(&name) {
        let detail = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system \
             priority class"
        );
        faults.push(FieldError::forbidden("metadata.name", detail));
    }
}

/// The items of a list that may not be there.
fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;

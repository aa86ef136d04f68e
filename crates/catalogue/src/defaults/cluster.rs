//! What is around pods: services, namespaces, storage, access, definitions.

use serde_json::{Value, json};

use super::{Object, child, is_empty, items, set_absent, set_empty, text};
use crate::schema::Struct;

/// How long a client stays with one pod, if it does.
const AFFINITY_SECONDS: i32 = 3 * 60 * 60;

pub(super) fn service(service: &mut Object) {
    let Some(spec) = child(service, "spec") else { return };
    set_empty(spec, "type", "ClusterIP");
    set_empty(spec, "sessionAffinity", "None");
    affinity(spec);
    for port in items(spec, "ports") {
        let number = port.get("port").cloned().unwrap_or_default();
        set_empty(port, "targetPort", number);
    }
    let (kind, has_addresses) =
        (text(spec, "type").to_owned(), spec.get("externalIPs").is_some_and(|ips| !is_empty(ips)));
    let is_external = match kind.as_str() {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => has_addresses,
        _ => false,
    };
    if is_external {
        set_empty(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "LoadBalancer" | "NodePort" | "ClusterIP") {
        set_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_absent(spec, "allocateLoadBalancerNodePorts", true);
        name_modes(service);
    }
}

fn affinity(spec: &mut Object) {
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let config = spec.get("sessionAffinityConfig").and_then(|config| config.get("clientIP"));
            if config.and_then(|config| config.get("timeoutSeconds")).is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
}

/// How each address of a load balancer is reached.
fn name_modes(service: &mut Object) {
    let balancer =
        service.get_mut("status").and_then(|status| status.get_mut("loadBalancer")).and_then(Value::as_object_mut);
    for ingress in balancer.into_iter().flat_map(|balancer| items(balancer, "ingress")) {
        if !text(ingress, "ip").is_empty() {
            set_absent(ingress, "ipMode", "VIP");
        }
    }
}

/// It has a label by which selectors find it by its name, and begins active.
pub(super) fn namespace(namespace: &mut Object) {
    if let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) {
        let name = text(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = child(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
        }
    }
    if let Some(status) = child(namespace, "status") {
        set_empty(status, "phase", "Active");
    }
}

/// A volume, or a claim to one, waits for the other.
pub(super) fn volume(volume: &mut Object) {
    if let Some(status) = child(volume, "status") {
        set_empty(status, "phase", "Pending");
    }
}

/// All that a node has may be used.
pub(super) fn node_status(status: &mut Object) {
    if let Some(capacity) = status.get("capacity").cloned() {
        set_absent(status, "allocatable", capacity);
    }
}

/// For containers: the maximum is the default limit, the limit the default request, else the minimum.
pub(super) fn limit_range_item(item: &mut Object) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(source)) = item.get(from).cloned() else { continue };
        let Some(target) = child(item, to) else { continue };
        for (name, quantity) in source {
            target.entry(name).or_insert(quantity);
        }
    }
}

pub(super) fn network_policy(spec: &mut Object) {
    let has_egress = spec.get("egress").is_some_and(|egress| !is_empty(egress));
    let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set_empty(spec, "policyTypes", types);
}

/// Users and groups are RBAC's own; service accounts are of the core group.
pub(super) fn subject(subject: &mut Object) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        set_empty(subject, "apiGroup", "rbac.authorization.k8s.io");
    }
}

/// One device, unless the request is a choice among others.
pub(super) fn device_request(request: &mut Object, kind: Struct) {
    let may_choose = kind.name() == "DeviceRequest" && kind.field("firstAvailable").is_some();
    if may_choose && text(request, "deviceClassName").is_empty() {
        return;
    }
    set_empty(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        set_empty(request, "count", 1);
    }
}

pub(super) fn definition(definition: &mut Object) {
    let Some(spec) = child(definition, "spec") else { return };
    if let Some(names) = child(spec, "names") {
        let kind = text(names, "kind").to_owned();
        if !kind.is_empty() {
            set_empty(names, "singular", kind.to_lowercase());
            set_empty(names, "listKind", format!("{kind}List"));
        }
    }
    set_absent(spec, "conversion", json!({"strategy": "None"}));
    let is_stored = |version: &&mut Object| version.get("storage").and_then(Value::as_bool) == Some(true);
    let stored = items(spec, "versions").find(is_stored).and_then(|version| version.get("name").cloned());
    if let Some(stored) = stored
        && let Some(status) = child(definition, "status")
    {
        set_empty(status, "storedVersions", json!([stored]));
    }
}

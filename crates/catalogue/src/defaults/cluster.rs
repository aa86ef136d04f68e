//! What is around pods: services, namespaces, storage, access, definitions.

use api::json::JsonObject;
use serde_json::{Value, json};

use super::{is_empty, object_field_mut, objects_mut, set_if_absent, set_if_empty, string_field};
use crate::schema::StructType;

/// How long a client stays with one pod, if it does.
const SESSION_AFFINITY_SECONDS: i32 = 3 * 60 * 60;

pub(super) fn set_service_defaults(service: &mut JsonObject) {
    let Some(spec) = object_field_mut(service, "spec") else { return };
    set_if_empty(spec, "type", "ClusterIP");
    set_if_empty(spec, "sessionAffinity", "None");
    set_session_affinity_defaults(spec);
    for port in objects_mut(spec, "ports") {
        let number = port.get("port").cloned().unwrap_or_default();
        set_if_empty(port, "targetPort", number);
    }
    let (kind, has_addresses) =
        (string_field(spec, "type").to_owned(), spec.get("externalIPs").is_some_and(|ips| !is_empty(ips)));
    let is_external = match kind.as_str() {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => has_addresses,
        _ => false,
    };
    if is_external {
        set_if_empty(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "LoadBalancer" | "NodePort" | "ClusterIP") {
        set_if_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_if_absent(spec, "allocateLoadBalancerNodePorts", true);
        set_ip_mode_defaults(service);
    }
}

fn set_session_affinity_defaults(spec: &mut JsonObject) {
    match string_field(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let config = spec.get("sessionAffinityConfig").and_then(|config| config.get("clientIP"));
            if config.and_then(|config| config.get("timeoutSeconds")).is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": SESSION_AFFINITY_SECONDS}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
}

/// How each address of a load balancer is reached.
fn set_ip_mode_defaults(service: &mut JsonObject) {
    let balancer =
        service.get_mut("status").and_then(|status| status.get_mut("loadBalancer")).and_then(Value::as_object_mut);
    for ingress in balancer.into_iter().flat_map(|balancer| objects_mut(balancer, "ingress")) {
        if !string_field(ingress, "ip").is_empty() {
            set_if_absent(ingress, "ipMode", "VIP");
        }
    }
}

/// It has a label by which selectors find it by its name, and begins active.
pub(super) fn set_namespace_defaults(namespace: &mut JsonObject) {
    if let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) {
        let name = string_field(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = object_field_mut(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
        }
    }
    if let Some(status) = object_field_mut(namespace, "status") {
        set_if_empty(status, "phase", "Active");
    }
}

/// A volume, or a claim to one, waits for the other.
pub(super) fn set_persistent_volume_defaults(volume: &mut JsonObject) {
    if let Some(status) = object_field_mut(volume, "status") {
        set_if_empty(status, "phase", "Pending");
    }
}

/// All that a node has may be used.
pub(super) fn set_node_status_defaults(status: &mut JsonObject) {
    if let Some(capacity) = status.get("capacity").cloned() {
        set_if_absent(status, "allocatable", capacity);
    }
}

/// For containers: the maximum is the default limit, the limit the default request, else the minimum.
pub(super) fn set_limit_range_item_defaults(item: &mut JsonObject) {
    if string_field(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(source)) = item.get(from).cloned() else { continue };
        let Some(target) = object_field_mut(item, to) else { continue };
        for (name, quantity) in source {
            target.entry(name).or_insert(quantity);
        }
    }
}

pub(super) fn set_network_policy_defaults(spec: &mut JsonObject) {
    let has_egress = spec.get("egress").is_some_and(|egress| !is_empty(egress));
    let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set_if_empty(spec, "policyTypes", types);
}

/// Users and groups are RBAC's own; service accounts are of the core group.
pub(super) fn set_rbac_subject_defaults(subject: &mut JsonObject) {
    if matches!(string_field(subject, "kind"), "User" | "Group") {
        set_if_empty(subject, "apiGroup", "rbac.authorization.k8s.io");
    }
}

/// One device, unless the request is a choice among others.
pub(super) fn set_device_request_defaults(request: &mut JsonObject, kind: StructType) {
    let may_choose = kind.name() == "DeviceRequest" && kind.field("firstAvailable").is_some();
    if may_choose && string_field(request, "deviceClassName").is_empty() {
        return;
    }
    set_if_empty(request, "allocationMode", "ExactCount");
    if string_field(request, "allocationMode") == "ExactCount" {
        set_if_empty(request, "count", 1);
    }
}

pub(super) fn set_custom_resource_definition_defaults(definition: &mut JsonObject) {
    let Some(spec) = object_field_mut(definition, "spec") else { return };
    if let Some(names) = object_field_mut(spec, "names") {
        let kind = string_field(names, "kind").to_owned();
        if !kind.is_empty() {
            set_if_empty(names, "singular", kind.to_lowercase());
            set_if_empty(names, "listKind", format!("{kind}List"));
        }
    }
    set_if_absent(spec, "conversion", json!({"strategy": "None"}));
    let is_stored = |version: &&mut JsonObject| version.get("storage").and_then(Value::as_bool) == Some(true);
    let stored = objects_mut(spec, "versions").find(is_stored).and_then(|version| version.get("name").cloned());
    if let Some(stored) = stored
        && let Some(status) = object_field_mut(definition, "status")
    {
        set_if_empty(status, "storedVersions", json!([stored]));
    }
}

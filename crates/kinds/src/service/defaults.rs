//! Defaults of services.

use api::json::JsonObject;
use serde_json::{Value, json};

use crate::fields::{is_empty_value, object_field_mut, objects_mut, set_if_absent, set_if_empty, string_field};

/// The default timeout of session affinity by client IP.
const SESSION_AFFINITY_SECONDS: i32 = 3 * 60 * 60;

pub(crate) fn set_service_defaults(service: &mut JsonObject) {
    let Some(spec) = object_field_mut(service, "spec") else { return };
    set_if_empty(spec, "type", "ClusterIP");
    set_if_empty(spec, "sessionAffinity", "None");
    set_session_affinity_defaults(spec);
    for port in objects_mut(spec, "ports") {
        let number = port.get("port").cloned().unwrap_or_default();
        set_if_empty(port, "targetPort", number);
    }
    let (kind, has_addresses) =
        (string_field(spec, "type").to_owned(), spec.get("externalIPs").is_some_and(|ips| !is_empty_value(ips)));
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

/// Sets the IP mode of each load balancer address.
fn set_ip_mode_defaults(service: &mut JsonObject) {
    let balancer =
        service.get_mut("status").and_then(|status| status.get_mut("loadBalancer")).and_then(Value::as_object_mut);
    for ingress in balancer.into_iter().flat_map(|balancer| objects_mut(balancer, "ingress")) {
        if !string_field(ingress, "ip").is_empty() {
            set_if_absent(ingress, "ipMode", "VIP");
        }
    }
}

//! Services.

pub(crate) mod defaults;
pub(crate) mod table;
mod update;
pub(crate) mod validation;

use std::collections::BTreeMap;

use access::User;
use api::json::JsonObject;
use object::rules::NameRule;
use object::selectable_fields::SelectableFields;
use object::{KindRules, Rejection};
use serde_json::{Value, json};

use crate::fields::string_field;
use crate::strategy::{KindStrategy, LENIENT_RULES};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { name_rule: NameRule::Label1035, allows_create_on_update: true, ..LENIENT_RULES },
    gated_name_rule: Some(("RelaxedServiceNameValidation", NameRule::Label)),
    returns_deleted_object: true,
    allocates_addresses: true,
    prepare_for_create,
    prepare_for_update,
    validate: validation::check_service,
    validate_status: validation::check_status,
    validate_update: |service, _| update::check_service(service),
    reports_changes_first: true,
    columns: table::SERVICES,
    selectable_fields: &SelectableFields {
        names: &["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"],
        ..SelectableFields::LISTED
    },
    ..KindStrategy::DEFAULT
};

/// Sets `clusterIPs` for clients that know `clusterIP` only.
fn prepare_for_create(_: &User, object: &mut JsonObject) -> Result<(), Rejection> {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    if lacks_cluster_ips(spec) && !string_field(spec, "clusterIP").is_empty() {
        spec.insert("clusterIPs".to_owned(), json!([string_field(spec, "clusterIP")]));
    }
    drop_internal_traffic_policy(spec);
    Ok(())
}

/// kube-apiserver stores the policy of ExternalName services, which do not need it, and drops it from every response.
fn drop_internal_traffic_policy(spec: &mut JsonObject) {
    if !has_cluster_ip(spec) {
        spec.remove("internalTrafficPolicy");
    }
}

/// Keeps allocated addresses and ports of a spec that the client did not repeat. The allocation comes next.
pub fn keep_allocated_values(old: &JsonObject, new: &mut JsonObject) {
    if has_cluster_ip(old) && has_cluster_ip(new) {
        if string_field(new, "clusterIP").is_empty() {
            copy_field(old, new, "clusterIP");
        }
        if lacks_cluster_ips(new) {
            copy_field(old, new, "clusterIPs");
        }
    }
    if has_node_ports(old) && has_node_ports(new) {
        reuse_node_ports(old, new);
    }
    let port = "healthCheckNodePort";
    if has_health_check_node_port(old) && has_health_check_node_port(new) && integer_or_zero(new.get(port)) == 0 {
        copy_field(old, new, port);
    }
    sync_cluster_ips(old, new);
}

/// Drops what no longer applies to the type of a service, unless the client changed it. What is allocated was released.
fn prepare_for_update(old: &JsonObject, new: &mut JsonObject) -> Result<(), Rejection> {
    let Some(old) = old.get("spec").and_then(Value::as_object) else { return Ok(()) };
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    drop_fields_of_other_types(old, spec);
    drop_internal_traffic_policy(spec);
    let is_load_balancer = string_field(spec, "type") == "LoadBalancer";
    if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut).filter(|_| !is_load_balancer) {
        status.insert("loadBalancer".to_owned(), json!({}));
    }
    Ok(())
}

fn drop_fields_of_other_types(old: &JsonObject, new: &mut JsonObject) {
    let drop_unchanged = |new: &mut JsonObject, names: &[&str]| {
        if names.iter().all(|name| old.get(*name) == new.get(*name)) {
            names.iter().for_each(|name| drop(new.remove(*name)));
        }
    };
    if has_cluster_ip(old) && !has_cluster_ip(new) {
        drop_unchanged(new, &["clusterIP", "clusterIPs"]);
        drop_unchanged(new, &["ipFamilies"]);
        drop_unchanged(new, &["ipFamilyPolicy"]);
    }
    let uses_ports = |spec: &JsonObject| matches!(string_field(spec, "type"), "NodePort" | "LoadBalancer");
    if uses_ports(old) && !uses_ports(new) {
        drop_node_ports(old, new);
    }
    if has_health_check_node_port(old) && !has_health_check_node_port(new) {
        drop_unchanged(new, &["healthCheckNodePort"]);
    }
    let is_load_balancer = |spec: &JsonObject| string_field(spec, "type") == "LoadBalancer";
    if is_load_balancer(old) && !is_load_balancer(new) {
        drop_unchanged(new, &["allocateLoadBalancerNodePorts"]);
        drop_unchanged(new, &["loadBalancerClass"]);
    }
    if is_externally_accessible(old) && !is_externally_accessible(new) {
        drop_unchanged(new, &["externalTrafficPolicy"]);
    }
}

/// Drops all node ports, unless one is new.
fn drop_node_ports(old: &JsonObject, new: &mut JsonObject) {
    let before = port_numbers(old);
    if port_numbers(new).iter().any(|(_, number)| *number != 0 && !before.iter().any(|(_, old)| old == number)) {
        return;
    }
    let ports = new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    ports.filter_map(Value::as_object_mut).for_each(|port| drop(port.remove("nodePort")));
}

/// Keeps `clusterIP` and `clusterIPs` in sync when a client changed only one of them.
fn sync_cluster_ips(old: &JsonObject, new: &mut JsonObject) {
    let (before, after) = (string_field(old, "clusterIP"), string_field(new, "clusterIP").to_owned());
    if lacks_cluster_ips(new) && !lacks_cluster_ips(old) && before == after {
        copy_field(old, new, "clusterIPs");
    }
    if before == after || old.get("clusterIPs") != new.get("clusterIPs") {
        return;
    }
    match &*after {
        "" => new.remove("clusterIPs"),
        after => new.insert("clusterIPs".to_owned(), json!([after])),
    };
}

/// A port without a node port keeps that of the old port of its name, unless another port took it.
fn reuse_node_ports(old: &JsonObject, new: &mut JsonObject) {
    let taken_ports: Vec<i64> = port_numbers(new).into_iter().map(|(_, number)| number).collect();
    let old_ports: BTreeMap<String, i64> = port_numbers(old).into_iter().collect();
    for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut().filter(|port| integer_or_zero(port.get("nodePort")) == 0) else {
            continue;
        };
        let before = old_ports.get(string_field(port, "name")).copied().unwrap_or_default();
        if before != 0 && !taken_ports.contains(&before) {
            port.insert("nodePort".to_owned(), before.into());
        }
    }
}

/// The name and the node port of each port; 0 if it has none.
fn port_numbers(spec: &JsonObject) -> Vec<(String, i64)> {
    let ports = spec.get("ports").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    ports.map(|port| (string_field(port, "name").to_owned(), integer_or_zero(port.get("nodePort")))).collect()
}

fn has_cluster_ip(spec: &JsonObject) -> bool {
    string_field(spec, "type") != "ExternalName"
}

fn is_externally_accessible(spec: &JsonObject) -> bool {
    match string_field(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty()),
        _ => false,
    }
}

fn has_node_ports(spec: &JsonObject) -> bool {
    let is_allocated = spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    string_field(spec, "type") == "NodePort" || (string_field(spec, "type") == "LoadBalancer" && is_allocated)
}

fn has_health_check_node_port(spec: &JsonObject) -> bool {
    string_field(spec, "type") == "LoadBalancer" && string_field(spec, "externalTrafficPolicy") == "Local"
}

fn lacks_cluster_ips(spec: &JsonObject) -> bool {
    spec.get("clusterIPs").and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn integer_or_zero(value: Option<&Value>) -> i64 {
    value.and_then(Value::as_i64).unwrap_or_default()
}

fn copy_field(from: &JsonObject, into: &mut JsonObject, name: &str) {
    if let Some(value) = from.get(name) {
        into.insert(name.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[track_caller]
    fn check(old: Value, new: Value, expected: &Value) {
        let [old, mut new] = [old, new].map(|spec| Map::from_iter([("spec".to_owned(), spec)]));
        let old_spec = old["spec"].as_object().unwrap();
        keep_allocated_values(old_spec, new["spec"].as_object_mut().unwrap());
        prepare_for_update(&old, &mut new).unwrap();
        assert_eq!(new["spec"], *expected);
    }

    #[test]
    fn service_update_reuses_allocated_addresses_and_ports() {
        let port = |number: Option<u32>| match number {
            Some(number) => json!([{"name": "web", "port": 80, "nodePort": number}]),
            None => json!([{"name": "web", "port": 80}]),
        };
        check(
            json!({"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": port(Some(30001))}),
            json!({"type": "NodePort", "ports": port(None)}),
            &json!({"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": port(Some(30001))}),
        );
        check(
            json!({"type": "NodePort", "ports": port(Some(30001))}),
            json!({"type": "ClusterIP", "ports": port(None)}),
            &json!({"type": "ClusterIP", "ports": port(None)}),
        );
        let balancer =
            |port: u32| json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port});
        check(balancer(31000), balancer(0), &balancer(31000));
    }

    #[test]
    fn service_update_does_not_reuse_a_taken_node_port() {
        let old = json!([{"name": "a", "nodePort": 30001}, {"name": "b", "nodePort": 30002}]);
        let new = json!([{"name": "a"}, {"name": "c", "nodePort": 30001}]);
        check(
            json!({"type": "NodePort", "ports": old}),
            json!({"type": "NodePort", "ports": new}),
            &json!({"type": "NodePort", "ports": new}),
        );
    }

    #[test]
    fn cluster_ip_and_cluster_ips_are_kept_in_sync() {
        let addresses = |one: &str, all: &[&str]| json!({"type": "ClusterIP", "clusterIP": one, "clusterIPs": all});
        check(addresses("a", &["a"]), addresses("b", &["a"]), &addresses("b", &["b"]));
        check(addresses("a", &["a"]), addresses("a", &[]), &addresses("a", &["a"]));
        check(
            addresses("a", &["a"]),
            json!({"type": "ExternalName", "clusterIP": "a", "clusterIPs": ["a"]}),
            &json!({"type": "ExternalName"}),
        );
        let mut created = Map::from_iter([("spec".to_owned(), json!({"clusterIP": "a"}))]);
        prepare_for_create(&User::named("u"), &mut created).unwrap();
        assert_eq!(created["spec"], json!({"clusterIP": "a", "clusterIPs": ["a"]}));
    }
}

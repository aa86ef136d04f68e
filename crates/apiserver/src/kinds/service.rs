//! Services: addresses and ports that they were given stay theirs when a client does not repeat them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::forms::Object;

/// Clients that only know one address mean the list with it.
pub(super) fn complete(object: &mut Object) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if has_no_addresses(spec) && !text(spec, "clusterIP").is_empty() {
        spec.insert("clusterIPs".to_owned(), json!([text(spec, "clusterIP")]));
    }
}

/// Fills in what was allocated, and takes it away where it no longer applies.
pub(super) fn keep(old: &Object, new: &mut Object) {
    let Some(old) = old.get("spec").and_then(Value::as_object) else { return };
    let Some(new) = new.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match_addresses(old, new);
    match (has_address(old), has_address(new)) {
        (true, true) => {
            if text(new, "clusterIP").is_empty() {
                copy(old, new, "clusterIP");
            }
            if has_no_addresses(new) {
                copy(old, new, "clusterIPs");
            }
        }
        (true, false) if old.get("clusterIPs") == new.get("clusterIPs") => {
            new.remove("clusterIP");
            new.remove("clusterIPs");
        }
        _ => {}
    }
    if has_node_ports(old) && has_node_ports(new) {
        keep_node_ports(old, new);
    }
    let port = "healthCheckNodePort";
    if has_health_check(old) && has_health_check(new) && number(new.get(port)) == 0 {
        copy(old, new, port);
    }
}

/// The one address and the list of them follow each other where a client changed only one of them.
fn match_addresses(old: &Map<String, Value>, new: &mut Map<String, Value>) {
    let (before, after) = (text(old, "clusterIP"), text(new, "clusterIP").to_owned());
    if has_no_addresses(new) && !has_no_addresses(old) && before == after {
        copy(old, new, "clusterIPs");
    }
    if before == after || old.get("clusterIPs") != new.get("clusterIPs") {
        return;
    }
    match &*after {
        "" => new.remove("clusterIPs"),
        after => new.insert("clusterIPs".to_owned(), json!([after])),
    };
}

/// A port without a number gets the one that the port of its name had, unless another port took it.
fn keep_node_ports(old: &Map<String, Value>, new: &mut Map<String, Value>) {
    let ports = |spec: &Map<String, Value>| -> Vec<(String, i64)> {
        let ports = spec.get("ports").and_then(Value::as_array).into_iter().flatten();
        ports
            .filter_map(Value::as_object)
            .map(|port| (text(port, "name").to_owned(), number(port.get("nodePort"))))
            .collect()
    };
    let taken: Vec<i64> = ports(new).into_iter().map(|(_, number)| number).collect();
    let known: BTreeMap<String, i64> = ports(old).into_iter().collect();
    for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut().filter(|port| number(port.get("nodePort")) == 0) else { continue };
        let before = known.get(text(port, "name")).copied().unwrap_or_default();
        if before != 0 && !taken.contains(&before) {
            port.insert("nodePort".to_owned(), before.into());
        }
    }
}

fn has_address(spec: &Map<String, Value>) -> bool {
    matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn has_node_ports(spec: &Map<String, Value>) -> bool {
    let is_allocated = spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    text(spec, "type") == "NodePort" || (text(spec, "type") == "LoadBalancer" && is_allocated)
}

fn has_health_check(spec: &Map<String, Value>) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn has_no_addresses(spec: &Map<String, Value>) -> bool {
    spec.get("clusterIPs").and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: Option<&Value>) -> i64 {
    value.and_then(Value::as_i64).unwrap_or_default()
}

fn copy(from: &Map<String, Value>, into: &mut Map<String, Value>, name: &str) {
    if let Some(value) = from.get(name) {
        into.insert(name.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: Value, new: Value, expected: &Value) {
        let [old, mut new] = [old, new].map(|spec| Map::from_iter([("spec".to_owned(), spec)]));
        keep(&old, &mut new);
        assert_eq!(new["spec"], *expected);
    }

    #[test]
    fn what_was_allocated_is_filled_in() {
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
    fn a_number_that_another_port_took_is_not_given_twice() {
        let old = json!([{"name": "a", "nodePort": 30001}, {"name": "b", "nodePort": 30002}]);
        let new = json!([{"name": "a"}, {"name": "c", "nodePort": 30001}]);
        check(
            json!({"type": "NodePort", "ports": old}),
            json!({"type": "NodePort", "ports": new}),
            &json!({"type": "NodePort", "ports": new}),
        );
    }

    #[test]
    fn one_address_and_the_list_follow_each_other() {
        let addresses = |one: &str, all: &[&str]| json!({"type": "ClusterIP", "clusterIP": one, "clusterIPs": all});
        check(addresses("a", &["a"]), addresses("b", &["a"]), &addresses("b", &["b"]));
        check(addresses("a", &["a"]), addresses("a", &[]), &addresses("a", &["a"]));
        check(
            addresses("a", &["a"]),
            json!({"type": "ExternalName", "clusterIP": "a", "clusterIPs": ["a"]}),
            &json!({"type": "ExternalName"}),
        );
        let mut created = Map::from_iter([("spec".to_owned(), json!({"clusterIP": "a"}))]);
        complete(&mut created);
        assert_eq!(created["spec"], json!({"clusterIP": "a", "clusterIPs": ["a"]}));
    }
}

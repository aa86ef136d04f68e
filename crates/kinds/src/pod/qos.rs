//! The quality-of-service class of a pod.

use api::json::JsonObject;
use serde_json::Value;

/// The class that follows from requests and limits: `BestEffort` without any for cpu and memory, `Guaranteed` if
/// every container has limits for both and requests as much, else `Burstable`. Resources of the whole pod replace those
/// of its containers. Amounts must be canonical texts.
pub(crate) fn qos_class(pod: &JsonObject) -> &'static str {
    let spec = pod.get("spec");
    let pod_resources =
        spec.and_then(|spec| spec.get("resources")).filter(|resources| has_requests_or_limits(resources));
    let resource_lists: Vec<&Value> = match pod_resources {
        Some(resources) => vec![resources],
        None => {
            let containers = ["containers", "initContainers"].map(|list| spec.and_then(|spec| spec.get(list)));
            let containers = containers.into_iter().flatten().filter_map(Value::as_array).flatten();
            containers.map(|container| container.get("resources").unwrap_or(&Value::Null)).collect()
        }
    };
    let amount = |resources: &Value, list: &str, name: &str| {
        let amount = resources.get(list).and_then(|list| list.get(name)).and_then(Value::as_str);
        amount.filter(|amount| *amount != "0").map(str::to_owned)
    };
    let each = |list: &str| -> Vec<Option<String>> {
        resource_lists.iter().flat_map(|part| ["cpu", "memory"].map(|name| amount(part, list, name))).collect()
    };
    let (requests, limits) = (each("requests"), each("limits"));
    if requests.iter().chain(&limits).all(Option::is_none) {
        return "BestEffort";
    }
    if limits.iter().all(Option::is_some) && requests == limits { "Guaranteed" } else { "Burstable" }
}

pub(crate) fn has_requests_or_limits(resources: &Value) -> bool {
    let list = |name: &str| resources.get(name).and_then(Value::as_object);
    ["requests", "limits"].iter().any(|name| list(name).is_some_and(|list| !list.is_empty()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn qos_class_follows_from_requests_and_limits() {
        let class = |spec: Value| qos_class(&JsonObject::from_iter([("spec".to_owned(), spec)]));
        let container = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let full = container(both.clone(), both.clone());
        assert_eq!(class(json!({"containers": [{}]})), "BestEffort");
        assert_eq!(class(json!({"containers": [container(json!({"cpu": "0"}), json!({"disk": "1"}))]})), "BestEffort");
        assert_eq!(class(json!({"containers": [full]})), "Guaranteed");
        assert_eq!(class(json!({"containers": [full, {}]})), "Burstable");
        assert_eq!(class(json!({"containers": [full], "initContainers": [{}]})), "Burstable");
        assert_eq!(class(json!({"containers": [container(json!({"cpu": "1"}), both)]})), "Burstable");
        assert_eq!(class(json!({"containers": [{}], "resources": full["resources"]})), "Guaranteed");
        assert_eq!(class(json!({"containers": [full], "resources": {}})), "Guaranteed");
    }
}

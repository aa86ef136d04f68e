//! Whether the service of an APIService can be reached: reasons and messages of the condition `Available` as in kube-apiserver.

use api::json::JsonObject;
use serde_json::Value;

use crate::api_service::ExtensionServer;
use crate::condition::Availability;

impl Availability {
    /// The discovery request was answered.
    pub fn passed() -> Self {
        Self { status: "True", reason: "Passed", message: "all checks passed".to_owned() }
    }

    /// No discovery request was answered; the message is that of the last one.
    pub fn failed_discovery(message: String) -> Self {
        Self { status: "False", reason: "FailedDiscoveryCheck", message }
    }

    /// True if requests are proxied.
    pub fn is_available(&self) -> bool {
        self.status == "True"
    }
}

/// Checks what can be known of a service without a request; `None` if a discovery request decides. Ports and endpoints are checked
/// of services of type ClusterIP only: others may have none.
pub fn check_service(
    server: &ExtensionServer,
    service: Option<&JsonObject>,
    slices: &[JsonObject],
) -> Option<Availability> {
    let ExtensionServer { namespace, service: name, port, .. } = server;
    let unavailable = |reason, message| Some(Availability { status: "False", reason, message });
    let Some(service) = service else {
        return unavailable("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
    };
    let spec = service.get("spec");
    let service_type = spec.and_then(|spec| spec.get("type")).and_then(Value::as_str).unwrap_or("ClusterIP");
    if service_type != "ClusterIP" {
        return None;
    }
    let ports = spec.and_then(|spec| spec.get("ports")).and_then(Value::as_array).into_iter().flatten();
    let Some(found) = ports.into_iter().find(|known| known.get("port").and_then(Value::as_u64) == Some((*port).into()))
    else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return unavailable("ServicePortError", message);
    };
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return unavailable("EndpointsNotFound", message);
    }
    let port_name = found.get("name").and_then(Value::as_str).unwrap_or_default();
    if slices.iter().any(|slice| has_ready_endpoint(slice, port_name)) {
        return None;
    }
    let message =
        format!("endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}");
    unavailable("MissingEndpoints", message)
}

fn has_ready_endpoint(slice: &JsonObject, port_name: &str) -> bool {
    let list = |name: &str| slice.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_ready = |endpoint: &Value| endpoint.pointer("/conditions/ready").and_then(Value::as_bool).unwrap_or(true);
    let has_port = |port: &Value| {
        let name = port.get("name").and_then(Value::as_str).unwrap_or_default();
        name == port_name && port.get("port").is_some_and(|number| !number.is_null())
    };
    list("endpoints").iter().any(is_ready) && list("ports").iter().any(has_port)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        let Value::Object(object) = value else { unreachable!("test values are objects") };
        object
    }

    #[track_caller]
    fn check(service: Option<Value>, slices: &[Value], expected: &str) {
        let server = ExtensionServer {
            namespace: "ns".to_owned(),
            service: "api".to_owned(),
            port: 443,
            ca_bundle: Vec::new(),
            skips_verification: false,
        };
        let slices: Vec<_> = slices.iter().cloned().map(object).collect();
        let found = check_service(&server, service.map(object).as_ref(), &slices);
        let shown = found.map(|found| format!("{} {}: {}", found.status, found.reason, found.message));
        assert_eq!(shown.as_deref().unwrap_or("passed"), expected);
    }

    #[test]
    fn reasons_and_messages_match_kube_apiserver() {
        let service = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 443, "name": "https"}]}});
        let slice = |port: &str, ready: Option<bool>| {
            json!({"ports": [{"name": port, "port": 8443}],
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]})
        };
        check(None, &[], "False ServiceNotFound: service/api in \"ns\" is not present");
        let other_port = json!({"spec": {"ports": [{"port": 80}]}});
        check(Some(other_port), &[], "False ServicePortError: service/api in \"ns\" is not listening on port 443");
        let no_slices = "False EndpointsNotFound: cannot find endpointslices for service/api in \"ns\"";
        check(Some(service.clone()), &[], no_slices);
        let missing = "False MissingEndpoints: endpointslices for service/api in \"ns\" have no addresses with port name \
                       \"https\"";
        check(Some(service.clone()), &[slice("https", Some(false))], missing);
        check(Some(service.clone()), &[slice("http", None)], missing);
        check(Some(service), &[slice("http", None), slice("https", None)], "passed");
        check(Some(json!({"spec": {"type": "ExternalName"}})), &[], "passed");
    }
}

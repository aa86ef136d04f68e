//! The objects that kube-apiserver creates in every cluster, except RBAC roles and bindings.

use std::net::{IpAddr, SocketAddr};

use api::GroupVersionResource;
use api::json::JsonObject;
use api::time::Time;
use object::StoredObject;
use serde_json::{Value, json};

use crate::object_codec;

const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The Service in `default` that leads to the API servers, and its Endpoints and EndpointSlice.
const SERVICE_NAME: &str = "kubernetes";
const SERVICE_PORT: u16 = 443;

/// Returns the new state of an existing object; `None` leaves it unchanged.
type UpdateExisting = dyn Fn(&StoredObject) -> Option<JsonObject> + Send + Sync;

/// An object that bootstrap creates if it is absent.
pub(crate) struct SystemObject {
    pub(super) resource: GroupVersionResource<&'static str>,
    /// The storage key below the resource's prefix: `NAME` or `NAMESPACE/NAME`.
    pub(super) key: String,
    pub(super) object: JsonObject,
    /// Applied if the object exists.
    pub(super) update_existing: Box<UpdateExisting>,
}

impl SystemObject {
    /// Creates an object whose existing state is left unchanged.
    pub(super) fn new<const N: usize>(group: &'static str, resource: &'static str, fields: [(&str, Value); N]) -> Self {
        let object: JsonObject = fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = match text("namespace") {
            "" => text("name").to_owned(),
            namespace => format!("{namespace}/{}", text("name")),
        };
        let resource = GroupVersionResource { group, version: "v1", resource };
        Self { resource, key, object, update_existing: Box::new(|_| None) }
    }

    /// The state to write; `None` if the current state needs no change.
    pub(super) fn next_state(&self, current: Option<&StoredObject>) -> Option<JsonObject> {
        match current {
            None => Some(self.object.clone()),
            Some(stored) => (self.update_existing)(stored),
        }
    }
}

pub(super) fn system_namespaces() -> impl Iterator<Item = SystemObject> {
    SYSTEM_NAMESPACES.into_iter().map(|name| {
        let fields = [
            ("metadata", json!({"name": name, "labels": {"kubernetes.io/metadata.name": name}})),
            ("spec", json!({"finalizers": ["kubernetes"]})),
            ("status", json!({"phase": "Active"})),
        ];
        SystemObject::new("", "namespaces", fields)
    })
}

/// The ConfigMap with the date since which the use of legacy tokens is tracked. kube-controller-manager removes unused
/// legacy tokens only if it exists.
pub(super) fn legacy_token_tracking(now: Time) -> SystemObject {
    let since = now.to_string().split('T').next().unwrap_or_default().to_owned();
    let metadata = json!({"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"});
    SystemObject::new("", "configmaps", [("metadata", metadata), ("data", json!({"since": since}))])
}

pub(super) fn priority_classes() -> impl Iterator<Item = SystemObject> {
    let classes = [
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ];
    classes.into_iter().map(|(name, value, description)| {
        let fields = [
            ("metadata", json!({"name": name, "generation": 1})),
            ("value", value.into()),
            ("description", description.into()),
            ("preemptionPolicy", "PreemptLowerPriority".into()),
        ];
        SystemObject::new("scheduling.k8s.io", "priorityclasses", fields)
    })
}

/// The Service `kubernetes`, which is created with the address that it names.
pub(super) fn kubernetes_service(server: SocketAddr, address: IpAddr) -> JsonObject {
    let service = json!({
        "metadata": {
            "name": SERVICE_NAME,
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": [ip_family(address)],
            "ports": [{"name": "https", "protocol": "TCP", "port": SERVICE_PORT, "targetPort": server.port()}],
        },
        "status": {"loadBalancer": {}},
    });
    let Value::Object(service) = service else { unreachable!("the literal is an object") };
    service
}

/// The ServiceCIDR with the ranges of the server's flags. A second range is added to an existing one, and the condition
/// is set if it is missing; another server's ranges stay.
pub(crate) fn default_service_cidr(ranges: &[String], version: &'static str, now: Time) -> SystemObject {
    let ready = json!([{
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": now.to_string(),
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
    }]);
    let spec = json!({"cidrs": ranges});
    let metadata = json!({"name": SERVICE_NAME});
    let fields = [("metadata", metadata), ("spec", spec.clone()), ("status", json!({"conditions": ready}))];
    let mut system = SystemObject::new("networking.k8s.io", "servicecidrs", fields);
    system.resource.version = version;
    let ranges = ranges.to_vec();
    system.update_existing = Box::new(move |stored| {
        let mut object = object_codec::decode_stored(stored);
        let stored: Vec<String> = object::unstructured::texts(&object, &["spec", "cidrs"]).map(str::to_owned).collect();
        let is_extended = ranges.len() == 2 && ranges[..1] == stored;
        let conditions = object::unstructured::objects(&object, &["status", "conditions"]);
        let has_condition = conditions
            .filter(|condition| condition.get("status").is_some_and(|status| status != "Unknown"))
            .any(|condition| condition.get("type").is_some_and(|name| name == "Ready"));
        if object::unstructured::get(&object, &["metadata", "deletionTimestamp"]).is_some() {
            return None;
        }
        if is_extended {
            object.insert("spec".to_owned(), spec.clone());
        } else if has_condition || stored != ranges {
            return None;
        }
        if !has_condition {
            object.insert("status".to_owned(), json!({"conditions": ready}));
        }
        Some(object)
    });
    system
}

/// The Endpoints and the EndpointSlice of the Service `kubernetes`.
///
/// Existing ones are replaced only if every address in them is this server's: other servers maintain their own
/// addresses.
pub(super) fn kubernetes_endpoints(server: SocketAddr) -> [SystemObject; 2] {
    let port = json!({"name": "https", "port": server.port(), "protocol": "TCP"});
    let metadata =
        |label: &str, value: &str| json!({"name": SERVICE_NAME, "namespace": "default", "labels": {label: value}});
    let endpoints = [
        ("metadata", metadata("endpointslice.kubernetes.io/skip-mirror", "true")),
        ("subsets", json!([{"addresses": [{"ip": server.ip()}], "ports": [port]}])),
    ];
    let slice = [
        ("metadata", metadata("kubernetes.io/service-name", SERVICE_NAME)),
        ("addressType", ip_family(server.ip()).into()),
        ("endpoints", json!([{"addresses": [server.ip()], "conditions": {"ready": true}}])),
        ("ports", json!([port])),
    ];
    let own_address = server.ip().to_string();
    let mut objects =
        [SystemObject::new("", "endpoints", endpoints), SystemObject::new("discovery.k8s.io", "endpointslices", slice)];
    for system in &mut objects {
        let (own_address, desired) = (own_address.clone(), system.object.clone());
        system.update_existing = Box::new(move |stored| point_to_this_server(stored, &own_address, &desired));
    }
    objects
}

/// The stored object with the desired endpoints; `None` if it has them already or contains addresses of other hosts.
fn point_to_this_server(stored: &StoredObject, own_address: &str, desired: &JsonObject) -> Option<JsonObject> {
    let mut object = object_codec::decode_stored(stored);
    let fields = ["subsets", "endpoints", "ports"];
    let is_same = fields.iter().all(|field| object.get(*field) == desired.get(*field));
    if is_same || !endpoint_addresses(&object).iter().all(|address| address == own_address) {
        return None;
    }
    for field in fields {
        if let Some(value) = desired.get(field) {
            object.insert(field.to_owned(), value.clone());
        }
    }
    Some(object)
}

/// Every address in an Endpoints or EndpointSlice object, ready or not.
fn endpoint_addresses(object: &JsonObject) -> Vec<String> {
    let list = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let whole = Value::Object(object.clone());
    let of_subsets = list(&whole, "subsets").into_iter().flat_map(|subset| {
        [list(&subset, "addresses"), list(&subset, "notReadyAddresses")]
            .concat()
            .into_iter()
            .map(|each| each["ip"].clone())
    });
    let of_slice = list(&whole, "endpoints").into_iter().flat_map(|endpoint| list(&endpoint, "addresses"));
    of_subsets.chain(of_slice).filter_map(|address| address.as_str().map(str::to_owned)).collect()
}

fn ip_family(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(system: &SystemObject, there: &Value, expected: &Expect) {
        let stored = StoredObject::from_storage(there.to_string().as_bytes(), 7).unwrap();
        let next =
            system.next_state(Some(&stored)).map(|object| json!([object.get("subsets"), object.get("endpoints")]));
        expected.assert_eq(&next.map_or("stays".to_owned(), |next| next.to_string()));
    }

    #[test]
    fn kubernetes_endpoints_replace_own_address_and_keep_others() {
        let [endpoints, slice] = kubernetes_endpoints("10.0.0.7:6443".parse().unwrap());
        let subset = |ip: &str, port: u16| {
            json!({"metadata": {}, "subsets": [
                {"addresses": [{"ip": ip}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]})
        };
        check(&endpoints, &subset("10.0.0.7", 6443), &expect!["stays"]);
        check(
            &endpoints,
            &subset("10.0.0.7", 1),
            &expect![[
                r#"[[{"addresses":[{"ip":"10.0.0.7"}],"ports":[{"name":"https","port":6443,"protocol":"TCP"}]}],null]"#
            ]],
        );
        check(&endpoints, &subset("10.0.0.8", 6443), &expect!["stays"]);
        let endpoint = |ip: &str| json!({"metadata": {}, "endpoints": [{"addresses": [ip]}]});
        check(&slice, &endpoint("10.0.0.8"), &expect!["stays"]);
        check(
            &slice,
            &endpoint("10.0.0.7"),
            &expect![[r#"[null,[{"addresses":["10.0.0.7"],"conditions":{"ready":true}}]]"#]],
        );
    }

    #[test]
    fn kubernetes_service_has_the_configured_cluster_ip() {
        let service = kubernetes_service("127.0.0.1:7443".parse().unwrap(), "10.96.0.1".parse().unwrap());
        assert_eq!(service["metadata"]["name"], "kubernetes");
        assert_eq!(service["spec"]["clusterIPs"], json!(["10.96.0.1"]));
        assert_eq!(service["spec"]["ports"][0]["targetPort"], 7443);
    }

    #[test]
    fn default_service_cidr_gets_a_second_range_and_a_condition() {
        let next = |stored: Value| {
            let ranges = ["10.0.0.0/24".to_owned(), "fd00::/112".to_owned()];
            let system = default_service_cidr(&ranges, "v1", "2026-01-01T00:00:00Z".parse().unwrap());
            let stored = StoredObject::from_storage(stored.to_string().as_bytes(), 7).unwrap();
            let next = system.next_state(Some(&stored));
            next.map(|next| (next["spec"]["cidrs"].to_string(), next["status"]["conditions"][0]["status"].clone()))
        };
        let with = |cidrs: &[&str], status: &str| {
            json!({"metadata": {}, "spec": {"cidrs": cidrs},
                "status": {"conditions": [{"type": "Ready", "status": status}]}})
        };
        let both = r#"["10.0.0.0/24","fd00::/112"]"#.to_owned();
        assert_eq!(next(with(&["10.0.0.0/24"], "True")), Some((both.clone(), json!("True"))));
        assert_eq!(next(with(&["10.0.0.0/24", "fd00::/112"], "Unknown")), Some((both, json!("True"))));
        assert_eq!(next(with(&["10.0.0.0/24", "fd00::/112"], "False")), None);
        assert_eq!(next(with(&["10.1.0.0/24"], "Unknown")), None, "it is another server's");
    }
}

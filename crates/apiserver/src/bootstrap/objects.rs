//! Objects that kube-apiserver puts into every cluster, roles aside.

use std::net::{IpAddr, SocketAddr};

use api::GroupVersionResource;
use api::time::Time;
use object::Stored;
use serde_json::{Value, json};

use crate::forms::{self, Object};

/// The namespaces that are always there.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The service by which pods find the API servers, and what goes with it.
const SERVICE: &str = "kubernetes";
/// The port of that service.
const SERVICE_PORT: u16 = 443;

/// What an object that is there becomes; `None`: it stays.
type Update = dyn Fn(&Stored) -> Option<Object> + Send + Sync;

/// An object to be put where there is none.
pub(super) struct SystemObject {
    pub(super) resource: GroupVersionResource<&'static str>,
    /// The key below the resource: the name, after the namespace if it has one.
    pub(super) key: String,
    pub(super) object: Object,
    /// What to do where there is one.
    pub(super) update: Box<Update>,
}

impl SystemObject {
    /// An object that is put where there is none, and otherwise left as it is.
    pub(super) fn new(group: &'static str, resource: &'static str, object: Value) -> Self {
        let Value::Object(object) = object else { unreachable!("system objects are objects") };
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = match text("namespace") {
            "" => text("name").to_owned(),
            namespace => format!("{namespace}/{}", text("name")),
        };
        let resource = GroupVersionResource { group, version: "v1", resource };
        Self { resource, key, object, update: Box::new(|_| None) }
    }

    /// What is to be put; `None` if what is there may stay.
    pub(super) fn next(&self, current: Option<&Stored>) -> Option<Object> {
        match current {
            None => Some(self.object.clone()),
            Some(stored) => (self.update)(stored),
        }
    }
}

pub(super) fn namespaces() -> impl Iterator<Item = SystemObject> {
    NAMESPACES.into_iter().map(|name| {
        let object = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        SystemObject::new("", "namespaces", object)
    })
}

/// Since when the use of tokens in Secrets could have been seen: kube-controller-manager cleans up nothing before it knows.
pub(super) fn token_tracking(now: Time) -> SystemObject {
    let since = now.to_string().split('T').next().unwrap_or_default().to_owned();
    let metadata = json!({"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"});
    SystemObject::new("", "configmaps", json!({"metadata": metadata, "data": {"since": since}}))
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
        let object = json!({
            "metadata": {"name": name, "generation": 1},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        SystemObject::new("scheduling.k8s.io", "priorityclasses", object)
    })
}

/// The service `kubernetes`. Its address is not allocated here: it is the one that was given, or none.
pub(super) fn service(server: SocketAddr, service_ip: Option<IpAddr>) -> SystemObject {
    let mut spec = json!({
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ipFamilyPolicy": "SingleStack",
        "ipFamilies": [family(service_ip.unwrap_or(server.ip()))],
        "ports": [{"name": "https", "protocol": "TCP", "port": SERVICE_PORT, "targetPort": server.port()}],
    });
    if let Some(ip) = service_ip {
        spec["clusterIP"] = ip.to_string().into();
        spec["clusterIPs"] = json!([ip]);
    }
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let metadata = json!({"name": SERVICE, "namespace": "default", "labels": labels});
    SystemObject::new("", "services", json!({"metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}}))
}

/// Where the service leads, in both forms.
///
/// Other servers' addresses are theirs to keep: what is there is replaced only if it names nobody but this host.
pub(super) fn endpoints(server: SocketAddr) -> [SystemObject; 2] {
    let port = json!({"name": "https", "port": server.port(), "protocol": "TCP"});
    let metadata =
        |label: &str, value: &str| json!({"name": SERVICE, "namespace": "default", "labels": {label: value}});
    let endpoints = json!({
        "metadata": metadata("endpointslice.kubernetes.io/skip-mirror", "true"),
        "subsets": [{"addresses": [{"ip": server.ip()}], "ports": [port]}],
    });
    let slice = json!({
        "metadata": metadata("kubernetes.io/service-name", SERVICE),
        "addressType": family(server.ip()),
        "endpoints": [{"addresses": [server.ip()], "conditions": {"ready": true}}],
        "ports": [port],
    });
    let own = server.ip().to_string();
    let mut objects =
        [SystemObject::new("", "endpoints", endpoints), SystemObject::new("discovery.k8s.io", "endpointslices", slice)];
    for system in &mut objects {
        let (own, wanted) = (own.clone(), system.object.clone());
        system.update = Box::new(move |stored| lead_here(stored, &own, &wanted));
    }
    objects
}

/// The object that is there, leading to this server; `None` if it does, or leads to other hosts too.
fn lead_here(stored: &Stored, own: &str, wanted: &Object) -> Option<Object> {
    let mut object = forms::stored_object(stored);
    let fields = ["subsets", "endpoints", "ports"];
    let is_same = fields.iter().all(|field| object.get(*field) == wanted.get(*field));
    if is_same || !addresses(&object).iter().all(|address| address == own) {
        return None;
    }
    for field in fields {
        if let Some(value) = wanted.get(field) {
            object.insert(field.to_owned(), value.clone());
        }
    }
    Some(object)
}

/// Every address in an Endpoints or an EndpointSlice.
fn addresses(object: &Object) -> Vec<String> {
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

fn family(ip: IpAddr) -> &'static str {
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
        let stored = Stored::from_storage(there.to_string().as_bytes(), 7).unwrap();
        let next = system.next(Some(&stored)).map(|object| json!([object.get("subsets"), object.get("endpoints")]));
        expected.assert_eq(&next.map_or("stays".to_owned(), |next| next.to_string()));
    }

    #[test]
    fn endpoints_follow_this_server_and_leave_others_alone() {
        let [endpoints, slice] = endpoints("10.0.0.7:6443".parse().unwrap());
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
    fn the_service_has_the_address_that_was_given() {
        let service = service("127.0.0.1:7443".parse().unwrap(), Some("10.96.0.1".parse().unwrap()));
        assert_eq!(service.key, "default/kubernetes");
        assert_eq!(service.object["spec"]["clusterIP"], "10.96.0.1");
        assert_eq!(service.object["spec"]["ports"][0]["targetPort"], 7443);
    }
}

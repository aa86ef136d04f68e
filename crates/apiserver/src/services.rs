//! Addresses of services, from the watch cache.

use std::sync::Arc;

use api::GroupVersionResource;
use api::json::JsonObject;
use object::unstructured::text;
use registry::{CachedEntry, CachedValue, ResourceCache};
use serde_json::Value;
use store::Revision;
use webhook::{ResolveError, ServiceAddress, ServiceResolver};

const SERVICES: GroupVersionResource<&str> = GroupVersionResource { group: "", version: "v1", resource: "services" };
const ENDPOINT_SLICES: GroupVersionResource<&str> =
    GroupVersionResource { group: "discovery.k8s.io", version: "v1", resource: "endpointslices" };
/// The label of an EndpointSlice that names its service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// How a service is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceRouting {
    /// By its cluster IP, which kube-proxy translates.
    #[default]
    ClusterIp,
    /// By an endpoint that is ready: `--enable-aggregator-routing`.
    Endpoints,
}

/// Services and their endpoints as the cache holds them.
pub(crate) struct CachedServices {
    services: Option<Arc<ResourceCache>>,
    endpoint_slices: Option<Arc<ResourceCache>>,
    routing: ServiceRouting,
}

impl CachedServices {
    /// `resource_cache` looks up the cache of a resource; without one there are no services.
    pub(crate) fn new(
        routing: ServiceRouting,
        resource_cache: impl Fn(GroupVersionResource<&'static str>) -> Option<Arc<ResourceCache>>,
    ) -> Self {
        Self { services: resource_cache(SERVICES), endpoint_slices: resource_cache(ENDPOINT_SLICES), routing }
    }

    fn cached_service(&self, namespace: &str, name: &str) -> Option<Arc<CachedEntry>> {
        let cache = self.services.as_ref()?;
        if [namespace, name].iter().any(|part| part.is_empty() || part.contains('/')) {
            return None;
        }
        cache.get(&[cache.prefix().as_ref(), namespace.as_bytes(), b"/", name.as_bytes()].concat())
    }

    /// A service; `None` if there is none or it cannot be read.
    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<JsonObject> {
        match &self.cached_service(namespace, name)?.value {
            CachedValue::Object(stored) => Some(stored.to_object()),
            CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
        }
    }

    fn cached_slices(&self, namespace: &str, name: &str) -> Vec<Arc<CachedEntry>> {
        let Some(cache) = &self.endpoint_slices else { return Vec::new() };
        let prefix = [cache.prefix().as_ref(), namespace.as_bytes(), b"/"].concat();
        let snapshot = cache.snapshot();
        let within = snapshot.entries.range(store::Key::from(prefix.clone())..);
        let of_service = |cached: &CachedEntry| match &cached.value {
            CachedValue::Object(stored) => stored.label(SERVICE_NAME_LABEL) == Some(name),
            CachedValue::Raw(_) | CachedValue::Undecodable(_) => false,
        };
        let within = within.take_while(|(key, _)| key.starts_with(&prefix)).map(|(_, cached)| cached);
        within.filter(|cached| of_service(cached)).cloned().collect()
    }

    /// The EndpointSlices of a service.
    pub(crate) fn slices(&self, namespace: &str, name: &str) -> Vec<JsonObject> {
        let objects = self.cached_slices(namespace, name).into_iter().filter_map(|cached| match &cached.value {
            CachedValue::Object(stored) => Some(stored.to_object()),
            CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
        });
        objects.collect()
    }

    /// The revisions of a service and its EndpointSlices: they differ after every change of its addresses.
    pub(crate) fn revisions(&self, namespace: &str, name: &str) -> Vec<Revision> {
        let service = self.cached_service(namespace, name).map(|cached| cached.revision);
        let slices = self.cached_slices(namespace, name).into_iter().map(|cached| cached.revision);
        service.into_iter().chain(slices).collect()
    }

    /// The caches of services and EndpointSlices.
    pub(crate) fn caches(&self) -> [Option<&Arc<ResourceCache>>; 2] {
        [self.services.as_ref(), self.endpoint_slices.as_ref()]
    }

    /// All addresses of a service's port, in no particular order; never empty.
    pub(crate) fn resolve_all(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<Vec<ServiceAddress>, ResolveError> {
        if (namespace, name, port) == ("default", "kubernetes", 443) {
            return Err(ResolveError::OwnService(name.to_owned()));
        }
        let service = self.service(namespace, name).ok_or_else(|| ResolveError::NotFound(name.to_owned()))?;
        match self.routing {
            ServiceRouting::ClusterIp => cluster_address(&service, name, port).map(|address| vec![address]),
            ServiceRouting::Endpoints => endpoint_addresses(&service, &self.slices(namespace, name), name, port),
        }
    }
}

impl ServiceResolver for CachedServices {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<ServiceAddress, ResolveError> {
        let mut addresses = self.resolve_all(namespace, name, port)?;
        Ok(addresses.swap_remove(fastrand::usize(..addresses.len())))
    }
}

fn service_type(service: &JsonObject) -> &str {
    match text(service, &["spec", "type"]) {
        "" => "ClusterIP",
        known => known,
    }
}

/// The name of a service's port; empty if it has none.
fn port_name<'a>(service: &'a JsonObject, name: &str, port: u16) -> Result<&'a str, ResolveError> {
    let ports = service.get("spec").and_then(|spec| spec.get("ports")).and_then(Value::as_array);
    let found =
        ports.into_iter().flatten().find(|known| known.get("port").and_then(Value::as_u64) == Some(port.into()));
    let found = found.ok_or_else(|| ResolveError::NoPort { name: name.to_owned(), port })?;
    Ok(found.get("name").and_then(Value::as_str).unwrap_or_default())
}

/// The address by the rules of kube-apiserver's default resolver.
fn cluster_address(service: &JsonObject, name: &str, port: u16) -> Result<ServiceAddress, ResolveError> {
    let cluster_ip = text(service, &["spec", "clusterIP"]);
    match service_type(service) {
        "ClusterIP" if cluster_ip == "None" => Err(ResolveError::Headless),
        "ClusterIP" | "NodePort" | "LoadBalancer" => {
            port_name(service, name, port)?;
            match cluster_ip {
                "" => Err(ResolveError::NoEndpoints(name.to_owned())),
                host => Ok(ServiceAddress { host: host.to_owned(), port }),
            }
        }
        "ExternalName" => Ok(ServiceAddress { host: text(service, &["spec", "externalName"]).to_owned(), port }),
        other => Err(ResolveError::UnsupportedType(other.to_owned())),
    }
}

/// The endpoints that are ready, of the primary IP family if there is one; never empty.
fn endpoint_addresses(
    service: &JsonObject,
    slices: &[JsonObject],
    name: &str,
    port: u16,
) -> Result<Vec<ServiceAddress>, ResolveError> {
    let kind = service_type(service);
    if !matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        return Err(ResolveError::UnsupportedType(kind.to_owned()));
    }
    let port_name = port_name(service, name, port)?;
    let families = service.get("spec").and_then(|spec| spec.get("ipFamilies")).and_then(Value::as_array);
    let primary = families.and_then(|families| families.first()).and_then(Value::as_str).unwrap_or("IPv4");
    let is_primary = |slice: &&JsonObject| text(slice, &["addressType"]) == primary;
    let addresses = |slices: &mut dyn Iterator<Item = &JsonObject>| -> Vec<ServiceAddress> {
        slices.flat_map(|slice| ready_addresses(slice, port_name)).collect()
    };
    let mut found = addresses(&mut slices.iter().filter(is_primary));
    if found.is_empty() {
        found = addresses(&mut slices.iter());
    }
    match found.is_empty() {
        true => Err(ResolveError::NoEndpoints(name.to_owned())),
        false => Ok(found),
    }
}

/// The addresses of a slice's endpoints that are ready, if it has the port.
fn ready_addresses(slice: &JsonObject, port_name: &str) -> Vec<ServiceAddress> {
    let list = |name: &str| slice.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let name_of = |port: &Value| port.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let port = list("ports").iter().find(|port| name_of(port) == port_name).and_then(|port| port.get("port"));
    let Some(port) = port.and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()) else { return Vec::new() };
    let is_ready = |endpoint: &&Value| endpoint.pointer("/conditions/ready").and_then(Value::as_bool).unwrap_or(true);
    let address = |endpoint: &Value| Some(endpoint.pointer("/addresses/0")?.as_str()?.to_owned());
    let hosts = list("endpoints").iter().filter(is_ready).filter_map(address);
    hosts.map(|host| ServiceAddress { host, port }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        let Value::Object(object) = value else { unreachable!("test values are objects") };
        object
    }

    fn shown(resolved: Result<ServiceAddress, ResolveError>) -> String {
        match resolved {
            Ok(ServiceAddress { host, port }) => format!("{host}:{port}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn cluster_address_follows_the_type() {
        let resolve = |spec: Value| shown(cluster_address(&object(json!({"spec": spec})), "s", 443));
        let ports = json!([{"port": 443, "targetPort": 9443}]);
        assert_eq!(resolve(json!({"clusterIP": "10.0.0.7", "ports": ports})), "10.0.0.7:443");
        assert_eq!(resolve(json!({"type": "NodePort", "clusterIP": "fd00::1", "ports": ports})), "fd00::1:443");
        assert_eq!(
            resolve(json!({"clusterIP": "10.0.0.7", "ports": [{"port": 80}]})),
            "no service port 443 found for service \"s\""
        );
        assert_eq!(resolve(json!({"clusterIP": "None"})), "cannot route to service with ClusterIP \"None\"");
        assert_eq!(resolve(json!({"type": "ExternalName", "externalName": "hook.example"})), "hook.example:443");
        assert_eq!(resolve(json!({"type": "Odd"})), "unsupported service type \"Odd\"");
    }

    #[test]
    fn endpoint_addresses_are_ready_ones_of_the_primary_family() {
        let service = object(json!({"spec": {"ipFamilies": ["IPv6"], "ports": [{"name": "h", "port": 443}]}}));
        let slice = |family: &str, endpoints: Value| {
            object(json!({"addressType": family, "ports": [{"name": "x", "port": 1}, {"name": "h", "port": 9443}],
                "endpoints": endpoints}))
        };
        let resolve = |slices: &[JsonObject]| match endpoint_addresses(&service, slices, "s", 443) {
            Ok(found) => found.into_iter().map(|address| shown(Ok(address))).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        let v4 = slice("IPv4", json!([{"addresses": ["10.0.0.1"]}]));
        let v6 = slice(
            "IPv6",
            json!([{"addresses": ["fd00::1"], "conditions": {"ready": false}}, {"addresses": ["fd00::2"]},
                {"addresses": ["fd00::3"], "conditions": {"ready": true}}]),
        );
        assert_eq!(resolve(&[v4.clone(), v6]), "fd00::2:9443 fd00::3:9443");
        assert_eq!(resolve(&[v4]), "10.0.0.1:9443");
        assert_eq!(resolve(&[]), "no endpoints available for service \"s\"");
    }
}

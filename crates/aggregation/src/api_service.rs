//! An APIService whose group-version an extension API server serves.

use std::collections::BTreeMap;

use api::json::JsonObject;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The port of a service reference that names none.
const PORT_DEFAULT: u16 = 443;
/// The groups that no extension API server can take over: core, whose APIService would hide the API server itself, and the group of
/// APIServices.
const LOCAL_GROUPS: [&str; 2] = ["", "apiregistration.k8s.io"];

/// The service of an extension API server, and how its certificate is verified. APIServices with equal values share connections
/// and discovery.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtensionServer {
    /// The namespace of the service.
    pub namespace: String,
    /// The name of the service.
    pub service: String,
    /// The port of the service, not of its endpoints.
    pub port: u16,
    /// Certificates in PEM, without white space at its ends; empty for the system's CAs.
    pub ca_bundle: Vec<u8>,
    /// True if the certificate is not verified.
    pub skips_verification: bool,
}

/// The priorities of groups: the highest among their versions.
pub type GroupPriorities = BTreeMap<String, i32>;

/// Adds the priority of an APIService that names no service.
pub fn add_local_priority(priorities: &mut GroupPriorities, api_service: &JsonObject) {
    let Some(spec) = api_service.get("spec").filter(|spec| spec.get("service").is_none_or(Value::is_null)) else {
        return;
    };
    let stated = spec.get("groupPriorityMinimum").and_then(Value::as_i64).and_then(|stated| i32::try_from(stated).ok());
    let group = spec.get("group").and_then(Value::as_str).filter(|group| !group.is_empty());
    if let (Some(group), Some(priority)) = (group, stated) {
        let known = priorities.entry(group.to_owned()).or_insert(priority);
        *known = priority.max(*known);
    }
}

/// An APIService that names a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteApiService {
    /// Never empty.
    pub group: String,
    /// Such as `v1beta1`.
    pub version: String,
    /// The priority of the group in discovery: the highest among its versions counts.
    pub group_priority: i32,
    /// The priority of the version within the group.
    pub version_priority: i32,
    /// The server that serves the group-version.
    pub server: ExtensionServer,
}

impl ExtensionServer {
    /// The name that the certificate must have.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

impl RemoteApiService {
    /// Reads a stored APIService; `None` if it names no service, or if the API server serves its group in any case.
    pub fn from_object(api_service: &JsonObject) -> Option<Self> {
        let spec = api_service.get("spec")?;
        let service = spec.get("service").filter(|service| !service.is_null())?;
        let text =
            |object: &Value, field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let priority = |field: &str| {
            let stated = spec.get(field).and_then(Value::as_i64).unwrap_or_default();
            i32::try_from(stated).unwrap_or(i32::MAX)
        };
        let group = text(spec, "group");
        if LOCAL_GROUPS.contains(&group.as_str()) {
            return None;
        }
        let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let ca_bundle = BASE64_STANDARD.decode(text(spec, "caBundle")).unwrap_or_default();
        Some(Self {
            group,
            version: text(spec, "version"),
            group_priority: priority("groupPriorityMinimum"),
            version_priority: priority("versionPriority"),
            server: ExtensionServer {
                namespace: text(service, "namespace"),
                service: text(service, "name"),
                port: port.unwrap_or(PORT_DEFAULT),
                ca_bundle: ca_bundle.trim_ascii().to_vec(),
                skips_verification: spec.get("insecureSkipTLSVerify").and_then(Value::as_bool).unwrap_or(false),
            },
        })
    }

    /// The name of the object, such as `v1beta1.metrics.k8s.io`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    /// The path that the extension API server must serve: its legacy discovery document.
    pub fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: &Value) -> Option<RemoteApiService> {
        let Value::Object(object) = json!({"spec": spec}) else { unreachable!("a literal object") };
        RemoteApiService::from_object(&object)
    }

    #[test]
    fn api_service_with_a_service_is_remote() {
        let read = |spec: Value| read(&spec);
        let found = read(json!({"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 30, "service": {"namespace": "kube-system", "name": "metrics"}, "caBundle": "eCAK"}))
        .unwrap();
        assert_eq!(
            (found.name().as_str(), found.path().as_str()),
            ("v1beta1.metrics.k8s.io", "/apis/metrics.k8s.io/v1beta1")
        );
        assert_eq!((found.server.port, found.server.server_name().as_str()), (443, "metrics.kube-system.svc"));
        assert_eq!((found.server.ca_bundle.as_slice(), found.server.skips_verification), (b"x".as_slice(), false));
        assert_eq!((found.group_priority, found.version_priority), (100, 30));
    }

    #[test]
    fn local_api_services_are_not_remote() {
        assert_eq!(read(&json!({"group": "apps", "version": "v1"})), None);
        assert_eq!(read(&json!({"group": "apps", "version": "v1", "service": null})), None);
        let service = json!({"namespace": "a", "name": "b"});
        for group in ["", "apiregistration.k8s.io"] {
            assert_eq!(read(&json!({"group": group, "version": "v1", "service": service})), None, "{group:?}");
        }
    }

    #[test]
    fn priority_of_a_group_is_the_highest_of_its_local_versions() {
        let mut priorities = GroupPriorities::new();
        let service = json!({"namespace": "a", "name": "b"});
        for (group, priority, service) in [
            ("apps", 5, Value::Null),
            ("apps", 7, Value::Null),
            ("apps", 6, Value::Null),
            ("x.io", 9, service),
            ("", 9, Value::Null),
        ] {
            let spec = json!({"group": group, "version": "v1", "groupPriorityMinimum": priority, "service": service});
            let Value::Object(object) = json!({"spec": spec}) else { unreachable!("a literal object") };
            add_local_priority(&mut priorities, &object);
        }
        assert_eq!(priorities, GroupPriorities::from([("apps".to_owned(), 7)]));
    }
}

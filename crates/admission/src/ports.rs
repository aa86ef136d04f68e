//! What rules of admission ask of the server around them.

use access::User;
use api::json::JsonObject;
use api::{GroupResource, GroupVersionKind, GroupVersionResource};

use crate::refusal::Refusal;

/// Objects as of one revision of the store. Built-in resources only, in the version that this crate expects.
///
/// A refusal because of a missing object counts only if the view had reached the store's current revision; the caller
/// makes sure of that and decides again otherwise.
pub trait View {
    /// An object; `None` if it does not exist.
    fn get(&self, resource: GroupResource<&str>, namespace: &str, name: &str) -> Result<Option<JsonObject>, Refusal>;

    /// All objects of a namespace, or of the cluster if `namespace` is empty, in the order of their names.
    fn list(&self, resource: GroupResource<&str>, namespace: &str) -> Result<Vec<JsonObject>, Refusal>;

    /// The resource of the objects that parametrize policies, built-in or custom; `None` if no such kind is served.
    fn param_resource(&self, _kind: GroupVersionKind<&str>) -> Option<ParamResource> {
        None
    }

    /// The objects of a resource that parametrize policies, in the version of the resource and the order of their names:
    /// of a namespace, or of the cluster if `namespace` is empty. With a name that object alone.
    fn params(
        &self,
        _resource: GroupVersionResource<&str>,
        _namespace: &str,
        _name: Option<&str>,
    ) -> Result<Vec<JsonObject>, Refusal> {
        Ok(Vec::new())
    }
}

/// The resource of the objects that parametrize policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamResource {
    /// In the version that the policy names.
    pub resource: GroupVersionResource,
    /// True if the objects are in namespaces.
    pub is_namespaced: bool,
    /// True for a custom resource.
    pub is_custom: bool,
}

/// A resource in another version or group that shares its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EquivalentResource {
    /// Group, version and name.
    pub resource: GroupVersionResource,
    /// The kind of the objects; of a subresource, the kind of its body.
    pub kind: GroupVersionKind,
}

/// The kinds that this server serves.
pub trait ServedKinds {
    /// Other versions of a resource, in the order in which the server registers them.
    fn equivalents(&self, resource: GroupVersionResource<&str>, subresource: &str) -> Vec<EquivalentResource>;

    /// An object in another version. The text of an error says why there is none.
    fn convert(&self, object: &JsonObject, kind: GroupVersionKind<&str>) -> Result<JsonObject, String>;

    /// Reads an object that a webhook or a policy patched: drops what the kind does not have, or refuses it if
    /// `is_strict`, and sets defaults.
    fn read_patched(
        &self,
        object: JsonObject,
        kind: GroupVersionKind<&str>,
        is_strict: bool,
    ) -> Result<JsonObject, String>;

    /// Merges a configuration into an object without recording owners. The text of an error is Kubernetes'.
    fn merge(
        &self,
        _object: &JsonObject,
        _configuration: &JsonObject,
        kind: GroupVersionKind<&str>,
    ) -> Result<JsonObject, String> {
        Err(format!("no schema for {kind}"))
    }

    /// True if two objects of a kind mean the same.
    fn is_equal(&self, left: &JsonObject, right: &JsonObject, kind: GroupVersionKind<&str>) -> bool;
}

/// Authorization checks of plugins and expressions.
pub trait Authorization: Sync {
    /// True if `user` may do what `check` names.
    fn is_allowed(&self, user: &User, check: &access::ResourceAttributes<'_>, verb: &str) -> bool;

    /// The decision on a check of an expression, about `user` or the service account that it names.
    fn decide(&self, user: &User, check: &k8s_cel::CheckAttributes) -> k8s_cel::AuthorizerDecision;
}

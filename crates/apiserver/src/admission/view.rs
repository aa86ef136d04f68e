//! Other objects and permissions as plugins see them: from the cache, without waiting.

use std::cell::Cell;

use ::admission::{Authorization, ParamResource, Refusal, View};
use access::{Attributes, ResourceAttributes, User};
use api::json::JsonObject;
use api::{GroupResource, GroupVersionKind, GroupVersionResource, Status};
use k8s_cel::{AuthorizerDecision, CheckAttributes};
use registry::{CachedEntry, CachedValue};
use store::Key;

use crate::ApiServer;
use crate::access_control::AccessRules;
use crate::object_codec;
use crate::resource::Resource;

/// Objects of built-in resources in version v1, which all resources that plugins look at have.
pub(super) struct CachedView<'a> {
    server: &'a ApiServer,
    has_read_params: Cell<bool>,
}

impl<'a> CachedView<'a> {
    pub(super) fn new(server: &'a ApiServer) -> Self {
        Self { server, has_read_params: Cell::new(false) }
    }

    /// True if a policy looked for its params. What it decides counts only in a current view.
    pub(super) fn has_read_params(&self) -> bool {
        self.has_read_params.get()
    }

    fn resource(&self, resource: GroupResource<&str>) -> Option<std::sync::Arc<Resource>> {
        self.server.resolve(GroupVersionResource { group: resource.group, version: "v1", resource: resource.resource })
    }
}

impl View for CachedView<'_> {
    fn get(&self, resource: GroupResource<&str>, namespace: &str, name: &str) -> Result<Option<JsonObject>, Refusal> {
        let Some(resource) = self.resource(resource) else { return Ok(None) };
        if [namespace, name].iter().any(|part| part.contains('/')) {
            return Ok(None);
        }
        let key = match namespace {
            "" => [resource.cache.prefix().as_ref(), name.as_bytes()].concat(),
            namespace => [resource.cache.prefix().as_ref(), namespace.as_bytes(), b"/", name.as_bytes()].concat(),
        };
        resource.cache.get(&key).map(|cached| decode(&cached, &resource)).transpose()
    }

    fn list(&self, resource: GroupResource<&str>, namespace: &str) -> Result<Vec<JsonObject>, Refusal> {
        let Some(resource) = self.resource(resource) else { return Ok(Vec::new()) };
        let prefix = match namespace {
            "" => resource.cache.prefix().clone(),
            namespace => Key::from([resource.cache.prefix().as_ref(), namespace.as_bytes(), b"/"].concat()),
        };
        let snapshot = resource.cache.snapshot();
        let within = snapshot.entries.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        within.map(|(_, cached)| decode(cached, &resource)).collect()
    }

    fn param_resource(&self, kind: GroupVersionKind<&str>) -> Option<ParamResource> {
        self.has_read_params.set(true);
        self.server.param_resource(kind)
    }

    fn params(
        &self,
        resource: GroupVersionResource<&str>,
        namespace: &str,
        name: Option<&str>,
    ) -> Result<Vec<JsonObject>, Refusal> {
        let definitions = || self.server.definitions.snapshot().resource(resource).cloned();
        let found = self.server.resolve(resource).or_else(definitions);
        let Some(resource) = found else { return Ok(Vec::new()) };
        if [Some(namespace), name].into_iter().flatten().any(|part| part.contains('/')) {
            return Ok(Vec::new());
        }
        let prefix = match namespace {
            "" => resource.cache.prefix().clone(),
            namespace => Key::from([resource.cache.prefix().as_ref(), namespace.as_bytes(), b"/"].concat()),
        };
        if let Some(name) = name {
            let found = resource.cache.get(&[prefix.as_ref(), name.as_bytes()].concat());
            return found.iter().map(|cached| decode(cached, &resource)).collect();
        }
        let snapshot = resource.cache.snapshot();
        let within = snapshot.entries.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        within.map(|(_, cached)| decode(cached, &resource)).collect()
    }
}

/// An object that cannot be read is no missing one: what depends on it is refused.
fn decode(cached: &CachedEntry, resource: &Resource) -> Result<JsonObject, Refusal> {
    match &cached.value {
        CachedValue::Object(stored) => Ok(object_codec::decode_served(stored, resource)?),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => {
            let key = cached.key.escape_ascii();
            Err(Status::storage_read_error(format!("the object at {key}, which admission needs, cannot be read"))
                .into())
        }
    }
}

/// The server's authorizer.
pub(super) struct ServerAuthorization<'a>(pub(super) &'a AccessRules);

impl Authorization for ServerAuthorization<'_> {
    fn is_allowed(&self, user: &User, check: &ResourceAttributes<'_>, verb: &str) -> bool {
        let attributes = Attributes::for_resource(user, verb, *check);
        self.0.authorizer.decide(&self.0.index.load(), &attributes).is_allowed()
    }

    fn decide(&self, user: &User, check: &CheckAttributes) -> AuthorizerDecision {
        let account =
            check.service_account.as_ref().map(|(namespace, name)| User::service_account(namespace, name, ""));
        let user = account.as_ref().unwrap_or(user);
        let attributes = match &check.path {
            Some(path) => Attributes::for_path(user, &check.verb, path),
            None => {
                let resource = ResourceAttributes {
                    group: &check.group,
                    version: "",
                    resource: &check.resource,
                    subresource: &check.subresource,
                    namespace: &check.namespace,
                    name: &check.name,
                };
                Attributes::for_resource(user, &check.verb, resource)
            }
        };
        let allowed = self.0.authorizer.decide(&self.0.index.load(), &attributes).is_allowed();
        AuthorizerDecision { allowed, ..AuthorizerDecision::default() }
    }
}

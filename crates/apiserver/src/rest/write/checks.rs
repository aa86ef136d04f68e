//! Checks of a write that depend on the caller or on other objects.

use access::Attributes;
use api::json::JsonObject;
use api::{FieldError, GroupVersionKind, Status, Verb};
use kinds::types_of;
use object::Rejection;
use registry::read::ReadConsistency;
use schema::SchemaCursor;
use store::Compare;

use super::super::RequestContext;
use super::ObjectWrite;
use crate::admission::{NamespaceFreshness, RoleWrite};
use crate::error_status;

impl ObjectWrite<'_> {
    /// Rejects a role or binding that grants permissions that the writer does not have.
    pub(super) fn check_escalation(&self, old: Option<&JsonObject>, new: &JsonObject) -> Result<(), Status> {
        let context = self.context;
        let (resource, namespace, user) = (context.resource, context.namespace(), &*context.caller.user);
        let name = &*context.target.name;
        context.server.check_escalation(&RoleWrite { user, resource, namespace, name, old, new })
    }

    /// Requires that the writer of a policy or binding may read its params.
    pub(super) fn check_param_permission(
        &self,
        old: Option<&JsonObject>,
        new: &JsonObject,
    ) -> Result<Option<FieldError>, Status> {
        let context = self.context;
        let Some(kind) = context.resource.strategy().admission else { return Ok(None) };
        let group = &*context.target.group;
        let error = context.server.check_param_permission(&context.caller.user, kind, group, [old, Some(new)])?;
        if let Some(error) = &error {
            self.context.admission.record_refusal(&error.to_string());
        }
        Ok(error)
    }

    /// Requires the permission of the signer of a certificate, if the write approves or signs one.
    pub(super) fn check_signer(&self, old: &JsonObject, new: &JsonObject) -> Result<(), Status> {
        let context = self.context;
        match (context.resource.strategy().signer_verb)(&context.target.subresource, old, new) {
            Some(verb) => context.server.check_signer_permission(&context.caller.user, verb, old),
            None => Ok(()),
        }
    }
}

impl RequestContext<'_> {
    /// The kind's warnings about a write of the object itself.
    pub(in super::super) fn warnings(self, old: Option<&JsonObject>, new: &JsonObject) -> Vec<String> {
        if !self.target.subresource.is_empty() {
            return Vec::new();
        }
        if self.resource.as_custom().is_some() {
            return apiextensions::finalizer_warnings(old, new);
        }
        (self.resource.strategy().warnings)(&self.server.feature_gates, old, new)
    }

    /// Forbids to create an object while the definition of its resource is being deleted.
    pub(in super::super) fn reject_terminating_definition(self, name: &str) -> Result<(), Status> {
        match self.resource.as_custom() {
            Some((live, _)) if live.definition.is_terminating() => {
                let message = "create not allowed while custom resource definition is terminating";
                Err(Status::forbidden(self.target.group_resource(), name, message))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Authorizes an update or apply that creates the object. Like kube-apiserver it requires the verb `create` on the
    /// object's name, and checks it after validation.
    pub(super) fn authorize_create(self) -> Result<(), Status> {
        let asked = self.target;
        if asked.verb == Verb::Create {
            return Ok(());
        }
        let object = access::ResourceAttributes {
            group: &asked.group,
            version: &asked.version,
            resource: &asked.resource,
            subresource: &asked.subresource,
            namespace: &asked.namespace,
            name: &asked.name,
        };
        let attributes = Attributes::for_resource(&self.caller.user, Verb::Create.as_str(), object);
        self.server.access_rules.authorize(&attributes)
    }

    /// Requires an active namespace if the request creates an absent object. Returns the condition of the write, if any.
    pub(in super::super) async fn require_active_namespace_if_absent(self) -> Result<Option<Compare>, Status> {
        let key = self.object_key(&self.target.name);
        let found = self
            .server
            .registry
            .get(&self.resource.cache, &key, ReadConsistency::Any)
            .await
            .map_err(error_status::status_for_read_error)?;
        if found.is_some() { Ok(None) } else { self.require_active_namespace(NamespaceFreshness::Latest).await }
    }

    /// Requires that the request's namespace exists and is not terminating. Returns the condition of the write, if any.
    pub(in super::super) async fn require_active_namespace(
        self,
        freshness: NamespaceFreshness,
    ) -> Result<Option<Compare>, Status> {
        match self.namespace() {
            "" => Ok(None),
            namespace => self.server.require_active_namespace(namespace, freshness, self.status_context("")).await,
        }
    }

    pub(in super::super) fn rejection_status(self, rejection: Rejection, name: &str) -> Status {
        error_status::status_for_rejection(rejection, self.status_context(name))
    }

    /// The schema of a kind in this server's release; `None` if the release does not have the kind.
    pub(in super::super) fn schema_of(&self, kind: GroupVersionKind<&str>) -> Option<SchemaCursor<'static>> {
        types_of(self.server.served_resources.release()).for_kind(kind).map(SchemaCursor::new)
    }
}

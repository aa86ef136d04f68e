//! Admission checks that depend on other objects: RBAC escalation, signer permission, namespace lifecycle.

mod control;
mod guard;
mod metrics;
mod param_permission;
mod served_kinds;
mod session;
mod view;

pub use control::AdmissionConfig;
pub(crate) use control::AdmissionControl;
pub(crate) use guard::AdmissionGuard;
pub(crate) use session::{AdmissionPhase, AdmissionSession, AdmittedWrite};

use access::rbac::escalation::{self, RbacWrite};
use access::{Attributes, User};
use api::json::JsonObject;
use api::{GroupResource, GroupVersionResource, Status};
use object::{StoredObject, unstructured};
use registry::CachedValue;
use registry::read::ReadConsistency;
use serde_json::Value;
use store::{Compare, Key};

use crate::ApiServer;
use crate::error_status::{self, StatusContext};
use crate::resource::Resource;

const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };

const CERTIFICATES_GROUP: &str = "certificates.k8s.io";

/// The required freshness of the namespace that a create checks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamespaceFreshness {
    /// The cached state suffices; the write is conditional on it.
    Cached,
    /// The latest state in storage.
    Latest,
}

/// A write to check for RBAC escalation. Kinds other than roles and bindings pass.
pub(crate) struct RoleWrite<'a> {
    pub(crate) user: &'a User,
    pub(crate) resource: &'a Resource,
    /// The namespace of the request; empty for cluster-scoped resources.
    pub(crate) namespace: &'a str,
    /// The name in the path; empty for a create.
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a JsonObject>,
    pub(crate) new: &'a JsonObject,
}

impl ApiServer {
    /// Rejects a role or binding that grants permissions that the user does not have.
    pub(crate) fn check_escalation(&self, role_write: &RoleWrite<'_>) -> Result<(), Status> {
        let Some(kind) = role_write.resource.strategy().rbac else { return Ok(()) };
        let bytes = |object: &JsonObject| serde_json::to_vec(object).expect("an object has string keys");
        let (new, old) = (bytes(role_write.new), role_write.old.map(bytes));
        let RoleWrite { user, namespace, name, .. } = *role_write;
        let rbac_write = RbacWrite { user, kind, namespace, name, new: &new, old: old.as_deref() };
        let result =
            escalation::check_escalation(&self.access_rules.authorizer, &self.access_rules.index.load(), &rbac_write);
        result.map_err(|error| {
            let name =
                role_write.new.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
            error_status::status_for_escalation(&error, kind, name)
        })
    }

    /// Requires `verb` on the signer of a CertificateSigningRequest that the user approves or signs.
    pub(crate) fn check_signer_permission(&self, user: &User, verb: &str, request: &JsonObject) -> Result<(), Status> {
        let text = |part: &str, name: &str| {
            request.get(part).and_then(|part| part.get(name)).and_then(Value::as_str).unwrap_or_default()
        };
        let signer = text("spec", "signerName");
        let domain = signer.split('/').next().unwrap_or_default();
        let index = self.access_rules.index.load();
        let is_allowed = |name: &str| {
            let signers = access::ResourceAttributes {
                group: CERTIFICATES_GROUP,
                resource: "signers",
                name,
                ..access::ResourceAttributes::default()
            };
            self.access_rules.authorizer.decide(&index, &Attributes::for_resource(user, verb, signers)).is_allowed()
        };
        if is_allowed(signer) || is_allowed(&format!("{domain}/*")) {
            return Ok(());
        }
        let message = format!("user not permitted to {verb} requests with signerName {signer:?}");
        let resource = GroupResource { group: CERTIFICATES_GROUP, resource: "certificatesigningrequests" };
        Err(Status::forbidden(resource, text("metadata", "name"), message))
    }

    /// True if a namespace has a label with the value `true`, as far as the cache knows.
    pub(crate) fn has_namespace_label(&self, namespace: &str, label: &str) -> Result<bool, Status> {
        let Some(namespaces) = self.resolve(NAMESPACES) else { return Ok(false) };
        let key = [namespaces.cache.prefix().as_ref(), namespace.as_bytes()].concat();
        let Some(cached) = namespaces.cache.get(&key) else { return Ok(false) };
        let CachedValue::Object(stored) = &cached.value else { return Ok(false) };
        let object = crate::object_codec::decode_served(stored, &namespaces)?;
        Ok(unstructured::text(&object, &["metadata", "labels", label]) == "true")
    }

    /// Requires that a namespace exists and is not terminating. Returns the condition that the create must include: the
    /// namespace is unchanged. Otherwise its deletion could finish first and leave the object behind.
    pub(crate) async fn require_active_namespace(
        &self,
        namespace: &str,
        namespace_freshness: NamespaceFreshness,
        status_context: StatusContext<'_>,
    ) -> Result<Option<Compare>, Status> {
        let Some(namespaces) = self.resolve(NAMESPACES) else { return Ok(None) };
        let key = Key::from([namespaces.cache.prefix().as_ref(), namespace.as_bytes()].concat());
        let missing = || Err(Status::not_found(GroupResource { group: "", resource: "namespaces" }, namespace));
        // A namespace missing from the cache may have just been created through another server.
        let consistencies: &[ReadConsistency] = match namespace_freshness {
            NamespaceFreshness::Cached => &[ReadConsistency::Any, ReadConsistency::Latest],
            NamespaceFreshness::Latest => &[ReadConsistency::Latest],
        };
        for consistency in consistencies {
            let found = self
                .registry
                .get(&namespaces.cache, &key, *consistency)
                .await
                .map_err(error_status::status_for_read_error)?;
            let Some(cached) = found.as_deref() else { continue };
            if let CachedValue::Object(stored) = &cached.value {
                reject_terminating(stored, &namespaces, namespace, status_context)?;
                return Ok(Some(Compare { key, revision: Some(cached.revision) }));
            }
        }
        missing()
    }
}

fn reject_terminating(
    stored: &StoredObject,
    namespaces: &Resource,
    namespace: &str,
    status_context: StatusContext<'_>,
) -> Result<(), Status> {
    let object = crate::object_codec::decode_served(stored, namespaces)?;
    let is_terminating = object.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    if !is_terminating {
        return Ok(());
    }
    let message = format!("unable to create new content in namespace {namespace} because it is being terminated");
    Err(Status::forbidden(status_context.resource, status_context.name, message)
        .with_cause("NamespaceTerminating", format!("namespace {namespace} is being terminated")))
}

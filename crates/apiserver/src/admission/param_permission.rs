//! The writer of a policy or binding needs the permission to read the params that it shows to expressions.

use ::admission::ParamResource;
use access::user::MASTERS_GROUP;
use access::{Attributes, ResourceAttributes, User};
use api::json::JsonObject;
use api::{FieldError, GroupVersion, GroupVersionKind, KindScope, Status};
use kinds::AdmissionObject;
use object::unstructured::{nested_object, text};
use registry::CachedValue;

use crate::ApiServer;
use crate::object_codec;

/// What decides whether a user may read params: `*` where it is not known.
struct ParamAttributes {
    group: String,
    version: String,
    resource: String,
}

impl ApiServer {
    /// The resource of a kind that parametrizes policies.
    pub(super) fn param_resource(&self, kind: GroupVersionKind<&str>) -> Option<ParamResource> {
        let built_in = self.resources.iter().find(|(_, resource)| resource.group_version_kind() == kind);
        if let Some((name, resource)) = built_in {
            let is_namespaced = resource.scope() == KindScope::Namespaced;
            return Some(ParamResource { resource: name.owned(), is_namespaced, is_custom: false });
        }
        let custom = self.definitions.snapshot();
        let (name, resource) = custom.resource_of_kind(kind)?;
        let is_namespaced = resource.scope() == KindScope::Namespaced;
        Some(ParamResource { resource: name, is_namespaced, is_custom: true })
    }

    /// The error of a policy or binding whose writer may not read its params. `states` are the old and the new one. What
    /// did not change is not checked.
    pub(crate) fn check_param_permission(
        &self,
        user: &User,
        kind: AdmissionObject,
        group: &str,
        [old, new]: [Option<&JsonObject>; 2],
    ) -> Result<Option<FieldError>, Status> {
        let field = match kind {
            AdmissionObject::Webhooks => return Ok(None),
            AdmissionObject::Policy => "paramKind",
            AdmissionObject::Binding { .. } => "paramRef",
        };
        let part = |object: Option<&JsonObject>| Some(nested_object(object?, &["spec", field])?.clone());
        let policy = |object: Option<&JsonObject>| Some(text(object?, &["spec", "policyName"]).to_owned());
        let Some(reference) = part(new) else { return Ok(None) };
        if user.is_in_group(MASTERS_GROUP) || (part(old).as_ref() == Some(&reference) && policy(old) == policy(new)) {
            return Ok(None);
        }
        let refused = match kind {
            AdmissionObject::Webhooks => None,
            AdmissionObject::Policy => self.refused_param_kind(user, &reference),
            AdmissionObject::Binding { policies } => {
                let found = self.stored_policy(group, policies, &policy(new).unwrap_or_default())?;
                self.refused_param_ref(user, &reference, found.as_ref(), &policy(new).unwrap_or_default())
            }
        };
        Ok(refused.map(|detail| FieldError::forbidden(format!("spec.{field}"), detail)))
    }

    fn refused_param_kind(&self, user: &User, param_kind: &JsonObject) -> Option<String> {
        let (attributes, _) = self.param_attributes(param_kind);
        if self.may_read_params(user, "get", &attributes, "*", "*") {
            return None;
        }
        Some(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown_user(user),
            text(param_kind, &["kind"]),
            text(param_kind, &["apiVersion"])
        ))
    }

    fn refused_param_ref(
        &self,
        user: &User,
        reference: &JsonObject,
        policy: Option<&JsonObject>,
        policy_name: &str,
    ) -> Option<String> {
        let param_kind = policy.and_then(|policy| nested_object(policy, &["spec", "paramKind"]));
        let (attributes, unresolved) = match param_kind {
            Some(kind) => self.param_attributes(kind),
            None => (ParamAttributes::any(), None),
        };
        let (name, namespace) = (text(reference, &["name"]), text(reference, &["namespace"]));
        let verb = if name.is_empty() { "list" } else { "get" };
        if self.may_read_params(user, verb, &attributes, namespace, name) {
            return None;
        }
        let user = shown_user(user);
        let lacks = format!(
            "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, \
             versions and resources"
        );
        Some(match (policy, unresolved, param_kind) {
            (None, ..) => format!("unable to get policy {policy_name} {lacks}"),
            (Some(_), Some(failed), Some(kind)) => {
                let (version, kind) = (text(kind, &["apiVersion"]), text(kind, &["kind"]));
                format!("unable to {failed} paramKind &ParamKind{{APIVersion:{version},Kind:{kind},}} {lacks}")
            }
            (Some(_), ..) => {
                format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
            }
        })
    }

    /// The attributes of a kind of params, and what failed if they are not known.
    fn param_attributes(&self, param_kind: &JsonObject) -> (ParamAttributes, Option<&'static str>) {
        let Ok(GroupVersion { group, version }) = GroupVersion::parse(text(param_kind, &["apiVersion"])) else {
            return (ParamAttributes::any(), Some("parse"));
        };
        let kind = GroupVersionKind { group, version, kind: text(param_kind, &["kind"]) };
        let (group, version) = (group.to_owned(), version.to_owned());
        match self.param_resource(kind) {
            Some(found) => (ParamAttributes { group, version, resource: found.resource.resource.to_string() }, None),
            None => (ParamAttributes { group, version, resource: "*".to_owned() }, Some("resolve")),
        }
    }

    fn may_read_params(
        &self,
        user: &User,
        verb: &str,
        attributes: &ParamAttributes,
        namespace: &str,
        name: &str,
    ) -> bool {
        let resource = ResourceAttributes {
            group: &attributes.group,
            version: &attributes.version,
            resource: &attributes.resource,
            subresource: "",
            namespace,
            name,
        };
        let attributes = Attributes::for_resource(user, verb, resource);
        self.access_rules.authorizer.decide(&self.access_rules.index.load(), &attributes).is_allowed()
    }

    /// A policy as the cache has it.
    fn stored_policy(&self, group: &str, policies: &str, name: &str) -> Result<Option<JsonObject>, Status> {
        let is_wanted = |resource: &str, of: &str| resource == policies && of == group;
        let served = self.resources.iter().find(|(served, _)| is_wanted(served.resource, served.group));
        let Some((_, resource)) = served.filter(|_| !name.contains('/')) else { return Ok(None) };
        let key = [resource.cache.prefix().as_ref(), name.as_bytes()].concat();
        match resource.cache.get(&key).as_deref().map(|cached| &cached.value) {
            Some(CachedValue::Object(stored)) => object_codec::decode_served(stored, resource).map(Some),
            Some(CachedValue::Raw(_) | CachedValue::Undecodable(_)) | None => Ok(None),
        }
    }
}

impl ParamAttributes {
    fn any() -> Self {
        let any = || "*".to_owned();
        Self { group: any(), version: any(), resource: any() }
    }
}

/// A user as Kubernetes prints it in these errors.
fn shown_user(user: &User) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}

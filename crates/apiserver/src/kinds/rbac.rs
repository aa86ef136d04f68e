//! Roles and bindings: what clients leave out is filled in, and what no reader could follow is refused.

use access::rbac::{RbacKind, validation};
use api::json::JsonObject;
use catalogue::ServedResource;
use object::Rejection;

/// Which of the four it is; `None` if it is none of them.
pub(crate) fn rbac_kind(resource: &ServedResource) -> Option<RbacKind> {
    let kinds = [RbacKind::Role, RbacKind::ClusterRole, RbacKind::RoleBinding, RbacKind::ClusterRoleBinding];
    let is_it =
        |kind: &RbacKind| resource.group.name == access::rbac::RBAC_GROUP && resource.kind.plural == kind.resource();
    kinds.into_iter().find(is_it)
}

/// Completes an object that is about to be stored, and checks it.
pub(super) fn default_and_validate(kind: RbacKind, object: &mut JsonObject) -> Result<(), Rejection> {
    validation::set_defaults(kind, object);
    let name = object.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
    let bytes = serde_json::to_vec(object).expect("an object has string keys");
    let errors = validation::validate_object(kind, name, &bytes);
    Rejection::ensure_no_errors(errors.map_err(|error| Rejection::BadRequest(error.to_string()))?)
}

//! Roles and bindings: what clients leave out is filled in, and what no reader could follow is refused.

use access::rbac::{Kind, validation};
use catalogue::Served;
use object::Refusal;

use crate::forms::Object;

/// Which of the four it is; `None` if it is none of them.
pub(crate) fn kind_of(served: &Served) -> Option<Kind> {
    let kinds = [Kind::Role, Kind::ClusterRole, Kind::RoleBinding, Kind::ClusterRoleBinding];
    let is_it = |kind: &Kind| served.group.name == access::rbac::GROUP && served.kind.plural == kind.resource();
    kinds.into_iter().find(is_it)
}

/// Completes an object that is about to be stored, and checks it.
pub(super) fn complete(kind: Kind, object: &mut Object) -> Result<(), Refusal> {
    validation::set_defaults(kind, object);
    let name = object.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
    let bytes = serde_json::to_vec(object).expect("an object has string keys");
    let faults = validation::faults(kind, name, &bytes);
    Refusal::invalid_unless_empty(faults.map_err(|error| Refusal::BadRequest(error.to_string()))?)
}

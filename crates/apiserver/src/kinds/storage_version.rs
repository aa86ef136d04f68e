//! StorageVersions: names that say a resource, and entries that do not contradict each other.

use api::objects::StorageVersionStatus;
use object::Refusal;
use serde_json::Value;
use storageversion::validation;

use crate::forms::Object;

/// What a new one has, and the refusal of a name that is not `<group>.<resource>`. That there is a name at all is checked with
/// the rest of the metadata.
pub(super) fn complete(object: &mut Object) -> Result<(), Refusal> {
    for part in ["spec", "status"] {
        object.entry(part).or_insert_with(|| Object::new().into());
    }
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    let errors = name.filter(|name| !name.is_empty()).map(validation::name).unwrap_or_default();
    Refusal::invalid_unless_empty(errors)
}

/// Refuses a status that Kubernetes would refuse.
pub(super) fn check_status(object: &Object) -> Result<(), Refusal> {
    let status = object.get("status").cloned().unwrap_or_default();
    let status: Option<StorageVersionStatus> =
        serde_json::from_value(status).map_err(|error| Refusal::BadRequest(error.to_string()))?;
    Refusal::invalid_unless_empty(validation::status(&status.unwrap_or_default()))
}

//! StorageVersions: names that say a resource, and entries that do not contradict each other.

use api::json::JsonObject;
use api::objects::StorageVersionStatus;
use object::Rejection;
use serde_json::Value;
use storageversion::validation;

/// What a new one has, and the refusal of a name that is not `<group>.<resource>`. That there is a name at all is checked with
/// the rest of the metadata.
pub(super) fn prepare_for_create(object: &mut JsonObject) -> Result<(), Rejection> {
    for part in ["spec", "status"] {
        object.entry(part).or_insert_with(|| JsonObject::new().into());
    }
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    let errors = name.filter(|name| !name.is_empty()).map(validation::validate_name).unwrap_or_default();
    Rejection::ensure_no_errors(errors)
}

/// Refuses a status that Kubernetes would refuse.
pub(super) fn validate_status(object: &JsonObject) -> Result<(), Rejection> {
    let status = object.get("status").cloned().unwrap_or_default();
    let status: Option<StorageVersionStatus> =
        serde_json::from_value(status).map_err(|error| Rejection::BadRequest(error.to_string()))?;
    Rejection::ensure_no_errors(validation::validate_status(&status.unwrap_or_default()))
}

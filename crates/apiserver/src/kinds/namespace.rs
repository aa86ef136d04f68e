//! Namespaces: the label that names them, the finalizer that keeps them until they are empty, and those that must stay.

use api::json::JsonObject;
use api::time::Time;
use api::{FieldError, GroupResource, Status, validation};
use object::Rejection;
use object::delete::DeleteOutcome;
use serde_json::{Value, json};

/// The label by which selectors find a namespace by its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that the namespace controller removes once nothing is left inside.
const FINALIZER: &str = "kubernetes";
/// Finalizers without a domain.
const STANDARD_FINALIZERS: [&str; 3] = [FINALIZER, "orphan", "foregroundDeletion"];
/// Namespaces that the control plane itself lives in.
const UNDELETABLE_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What a new namespace has.
pub(super) fn prepare_for_create(object: &mut JsonObject) {
    set_name_label(object);
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let finalizers = spec.get("finalizers").and_then(Value::as_array);
    if finalizers.is_none_or(|finalizers| !finalizers.iter().any(|finalizer| finalizer == FINALIZER)) {
        let mut all = finalizers.cloned().unwrap_or_default();
        all.push(FINALIZER.into());
        spec["finalizers"] = all.into();
    }
    object.insert("status".to_owned(), json!({"phase": "Active"}));
}

/// What an update may not change: finalizers go by `finalize` alone.
pub(super) fn prepare_for_update(old: &JsonObject, new: &mut JsonObject) -> Result<(), Rejection> {
    set_name_label(new);
    match old.get("spec") {
        Some(spec) => new.insert("spec".to_owned(), spec.clone()),
        None => new.remove("spec"),
    };
    Ok(())
}

/// A namespace that is deleted stays, terminating, until its finalizers are gone. `before` is what is stored.
pub(super) fn mark_terminating(removed: &JsonObject, stored: &JsonObject, now: Time) -> DeleteOutcome {
    let finalizers = removed.get("spec").and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
    if finalizers.is_none_or(Vec::is_empty) {
        return DeleteOutcome::Remove(removed.clone());
    }
    let mut marked = stored.clone();
    let metadata = marked.entry("metadata").or_insert_with(|| json!({}));
    if metadata.get("deletionTimestamp").is_none() {
        metadata["deletionTimestamp"] = now.to_string().into();
    }
    let status = marked.entry("status").or_insert_with(|| json!({}));
    status["phase"] = "Terminating".into();
    DeleteOutcome::Mark(marked)
}

/// Refuses finalizers without a domain that Kubernetes does not know.
pub(super) fn check_finalizers(new: &JsonObject) -> Result<(), Rejection> {
    let finalizers = new.get("spec").and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
    let mut errors = Vec::new();
    for (at, finalizer) in finalizers.into_iter().flatten().filter_map(Value::as_str).enumerate() {
        let path = format!("spec.finalizers[{at}]");
        errors.extend(
            validation::validate_label_key(finalizer)
                .into_iter()
                .map(|error| FieldError::invalid(&*path, finalizer, error)),
        );
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(path, finalizer, detail));
        }
    }
    Rejection::ensure_no_errors(errors)
}

/// Refuses a phase that contradicts the metadata.
pub(super) fn check_phase(new: &JsonObject) -> Result<(), Rejection> {
    let is_deleted = new.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    let phase = new.get("status").and_then(|status| status.get("phase")).and_then(Value::as_str).unwrap_or_default();
    let detail = match (is_deleted, phase) {
        (false, "Active") | (true, "Terminating") => return Ok(()),
        (false, _) => "may only be 'Active' if `deletionTimestamp` is empty",
        (true, _) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
    };
    Rejection::ensure_no_errors(vec![FieldError::invalid("status.Phase", phase, detail)])
}

/// Whether nothing holds the namespace any more.
pub(super) fn is_finalized(object: &JsonObject) -> bool {
    let is_empty = |part: &str| {
        let list = object.get(part).and_then(|part| part.get("finalizers")).and_then(Value::as_array);
        list.is_none_or(Vec::is_empty)
    };
    object.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some())
        && is_empty("spec")
        && is_empty("metadata")
}

/// Refuses to delete what everything else depends on.
pub(super) fn check_deletable(name: &str) -> Result<(), Status> {
    if UNDELETABLE_NAMESPACES.contains(&name) {
        let message = "this namespace may not be deleted";
        return Err(Status::forbidden(GroupResource { group: "", resource: "namespaces" }, name, message));
    }
    Ok(())
}

/// Gives a namespace the label with its name.
pub(super) fn set_name_label(object: &mut JsonObject) {
    let Some(name) = object.get("metadata").and_then(|metadata| metadata.get("name")).cloned() else { return };
    let metadata = object.get_mut("metadata").expect("it was there a line above");
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    metadata["labels"][NAME_LABEL] = name;
}

//! Namespaces: name label, finalizer, phase, and namespaces that cannot be deleted.

use access::User;
use api::json::JsonObject;
use api::time::Time;
use api::{FieldError, validation};
use object::delete::DeleteOutcome;
use object::rules::NameRule;
use object::selectable_fields::SelectableFields;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_column};
use object::{KindRules, Rejection};
use serde_json::{Value, json};

use crate::fields::{object_field_mut, set_if_empty, string_field};
use crate::strategy::{KindStrategy, RULES, SubresourceStrategy, WritableFields};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { name_rule: NameRule::Label, ..RULES },
    prepare_for_create,
    prepare_for_update,
    check_deletable,
    adjust_deletion: |stored, outcome, now| match outcome {
        DeleteOutcome::Remove(last) => mark_terminating(&last, stored, now),
        other @ (DeleteOutcome::Mark(_) | DeleteOutcome::Pending) => other,
    },
    is_removed_by_update: |_, namespace| is_finalized(namespace),
    subresources: &[
        SubresourceStrategy {
            complete: |_, namespace, _, _| set_name_label(namespace),
            prepare: |_, namespace, _| check_finalizers(namespace),
            ..SubresourceStrategy::new("finalize", WritableFields::Fields(&["metadata", "spec.finalizers"]))
        },
        SubresourceStrategy::status(|_, namespace, _| check_phase(namespace)),
    ],
    validate_create: |namespace| {
        let finalizers = namespace.path("spec.finalizers");
        for finalizer in finalizers.items().map(|finalizer| finalizer.reported_at(finalizers)) {
            finalizer.qualified_name();
            finalizer.finalizer_name();
        }
    },
    columns: NAMESPACES,
    selectable_fields: &SelectableFields { names: &["metadata.name", "status.phase"], ..SelectableFields::LISTED },
    ..KindStrategy::DEFAULT
};

/// The label by which selectors find a namespace by its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The finalizer that the namespace controller removes once the namespace is empty.
const FINALIZER: &str = "kubernetes";

/// Finalizers without a domain.
const STANDARD_FINALIZERS: [&str; 3] = [FINALIZER, "orphan", "foregroundDeletion"];

/// Namespaces of the control plane, which cannot be deleted.
const UNDELETABLE_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Sets the name label, the finalizer and the phase of a new namespace.
fn prepare_for_create(_: &User, object: &mut JsonObject) -> Result<(), Rejection> {
    set_name_label(object);
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let finalizers = spec.get("finalizers").and_then(Value::as_array);
    if finalizers.is_none_or(|finalizers| !finalizers.iter().any(|finalizer| finalizer == FINALIZER)) {
        let mut all = finalizers.cloned().unwrap_or_default();
        all.push(FINALIZER.into());
        spec["finalizers"] = all.into();
    }
    object.insert("status".to_owned(), json!({"phase": "Active"}));
    Ok(())
}

/// Keeps the spec as stored: finalizers are removed through `finalize` alone.
fn prepare_for_update(old: &JsonObject, new: &mut JsonObject) -> Result<(), Rejection> {
    set_name_label(new);
    match old.get("spec") {
        Some(spec) => new.insert("spec".to_owned(), spec.clone()),
        None => new.remove("spec"),
    };
    Ok(())
}

/// A deleted namespace stays in phase `Terminating` until its finalizers are removed.
fn mark_terminating(removed: &JsonObject, stored: &JsonObject, now: Time) -> DeleteOutcome {
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

/// Rejects finalizers without a domain that Kubernetes does not know.
fn check_finalizers(new: &JsonObject) -> Result<(), Rejection> {
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

/// Rejects a phase that contradicts the metadata.
fn check_phase(new: &JsonObject) -> Result<(), Rejection> {
    let is_deleted = new.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    let phase = new.get("status").and_then(|status| status.get("phase")).and_then(Value::as_str).unwrap_or_default();
    let detail = match (is_deleted, phase) {
        (false, "Active") | (true, "Terminating") => return Ok(()),
        (false, _) => "may only be 'Active' if `deletionTimestamp` is empty",
        (true, _) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
    };
    Rejection::ensure_no_errors(vec![FieldError::invalid("status.Phase", phase, detail)])
}

/// Whether a deleted namespace has no finalizers left.
fn is_finalized(object: &JsonObject) -> bool {
    let is_empty = |part: &str| {
        let list = object.get(part).and_then(|part| part.get("finalizers")).and_then(Value::as_array);
        list.is_none_or(Vec::is_empty)
    };
    object.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some())
        && is_empty("spec")
        && is_empty("metadata")
}

/// Rejects to delete the namespaces of the control plane.
fn check_deletable(name: &str) -> Result<(), Rejection> {
    if UNDELETABLE_NAMESPACES.contains(&name) {
        return Err(Rejection::Forbidden("this namespace may not be deleted".to_owned()));
    }
    Ok(())
}

/// Sets the label with the namespace's name.
fn set_name_label(object: &mut JsonObject) {
    let Some(name) = object.get("metadata").and_then(|metadata| metadata.get("name")).cloned() else { return };
    let metadata = object.get_mut("metadata").expect("it was there a line above");
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    metadata["labels"][NAME_LABEL] = name;
}

/// A namespace has its name label and starts active.
pub(crate) fn set_namespace_defaults(namespace: &mut JsonObject) {
    if let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) {
        let name = string_field(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = object_field_mut(metadata, "labels")
        {
            labels.insert(NAME_LABEL.to_owned(), name.into());
        }
    }
    if let Some(status) = object_field_mut(namespace, "status") {
        set_if_empty(status, "phase", "Active");
    }
}

const NAMESPACES: &[Column] = &[
    NAME,
    string_column("Status", "Whether it takes new objects.", |namespace, _| {
        string_cell(namespace, &["status", "phase"])
    }),
    AGE,
];

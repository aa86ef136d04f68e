//! DefaultStorageClass, StorageObjectInUseProtection and PersistentVolumeClaimResize.

use std::cmp::Ordering;

use api::GroupResource;
use api::json::JsonObject;
use object::unstructured::{flag, get, metadata_mut, metadata_string, nested_object_mut, text};
use schema::compare_quantities;
use serde_json::{Value, json};

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const STORAGE_CLASSES: GroupResource<&str> = GroupResource { group: "storage.k8s.io", resource: "storageclasses" };
const CLAIMS: &str = "persistentvolumeclaims";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) static DEFAULT_STORAGE_CLASS: Plugin = Plugin {
    name: "DefaultStorageClass",
    operations: &[Operation::Create],
    admit: Some(set_storage_class),
    validate: None,
};

pub(super) static IN_USE_PROTECTION: Plugin = Plugin {
    name: "StorageObjectInUseProtection",
    operations: &[Operation::Create],
    admit: Some(add_finalizer),
    validate: None,
};

pub(super) static CLAIM_RESIZE: Plugin = Plugin {
    name: "PersistentVolumeClaimResize",
    operations: &[Operation::Update],
    admit: None,
    validate: Some(check_growth),
};

/// The newest object that an annotation marks as default; of several from the same second the first by name.
pub(super) fn newest_default(objects: Vec<JsonObject>, annotations: &[&str]) -> Option<JsonObject> {
    let is_default = |class: &JsonObject| {
        let value = |key: &&str| get(class, &["metadata", "annotations", key]).and_then(Value::as_str) == Some("true");
        annotations.iter().any(value)
    };
    objects.into_iter().filter(is_default).min_by(|left, right| {
        let [left_time, right_time] = [left, right].map(|class| metadata_string(class, "creationTimestamp"));
        let [left_name, right_name] = [left, right].map(|class| metadata_string(class, "name"));
        right_time.cmp(left_time).then_with(|| left_name.cmp(right_name))
    })
}

fn class_of(claim: &JsonObject) -> Option<&str> {
    let annotation = get(claim, &["metadata", "annotations", CLASS_ANNOTATION]);
    annotation.or_else(|| get(claim, &["spec", "storageClassName"])).and_then(Value::as_str)
}

fn set_storage_class(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    const DEFAULT: &[&str] =
        &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    if !write.attributes.is_object("", CLAIMS) {
        return Ok(());
    }
    let Some(claim) = write.object.as_mut().filter(|claim| class_of(claim).is_none()) else { return Ok(()) };
    if let Some(class) = newest_default(environment.view.list(STORAGE_CLASSES, "")?, DEFAULT) {
        let name = metadata_string(&class, "name");
        nested_object_mut(claim, "spec").insert("storageClassName".to_owned(), name.into());
    }
    Ok(())
}

fn add_finalizer(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let attributes = &write.attributes;
    let finalizer = if attributes.is_object("", "persistentvolumes") {
        "kubernetes.io/pv-protection"
    } else if attributes.is_object("", CLAIMS) {
        "kubernetes.io/pvc-protection"
    } else if attributes.is_object("storage.k8s.io", "volumeattributesclasses")
        && environment.gates.enabled("VolumeAttributesClass")
    {
        "kubernetes.io/vac-protection"
    } else {
        return Ok(());
    };
    let Some(object) = &mut write.object else { return Ok(()) };
    if let Value::Array(finalizers) = metadata_mut(object).entry("finalizers").or_insert_with(|| json!([]))
        && !finalizers.iter().any(|given| given == finalizer)
    {
        finalizers.push(finalizer.into());
    }
    Ok(())
}

fn check_growth(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let (Some(new), Some(old)) = (&write.object, write.old_object) else { return Ok(()) };
    if !write.attributes.is_object("", CLAIMS) {
        return Ok(());
    }
    let size = |claim| get(claim, &["spec", "resources", "requests", "storage"]).cloned().unwrap_or_default();
    if compare_quantities(&size(new), &size(old)) != Some(Ordering::Greater) {
        return Ok(());
    }
    if text(old, &["status", "phase"]) != "Bound" {
        return Err(Refusal::forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(new).filter(|class| !class.is_empty() && Some(*class) == class_of(old));
    let found = class.map(|class| environment.view.get(STORAGE_CLASSES, "", class)).transpose()?.flatten();
    if found.is_some_and(|class| flag(&class, &["allowVolumeExpansion"])) {
        return Ok(());
    }
    Err(Refusal::forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}

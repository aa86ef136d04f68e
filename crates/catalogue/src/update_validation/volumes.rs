//! Volumes and claims to them: what is bound stays bound.
//!
//! How much smaller a claim may become is not a question of what stays, and not answered here.

use api::FieldError;
use api::json::JsonObject;
use serde_json::{Map, Value};

use super::unified_diff::unified_diff;
use super::{FIELD_IS_IMMUTABLE, ObjectUpdate, copy_or_remove, list_items};
use crate::schema::semantic_equality::is_field_equal;
use crate::schema::{StructField, TypeForm};

/// The class of a claim, before there was a field for it.
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Labels of nodes by which volumes were bound to them, and what they are called since.
const RENAMED_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

pub(super) fn check_persistent_volume(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    [check_volume_source(update), check_volume_node_affinity(update), check_attributes_class(update)]
        .into_iter()
        .flatten()
        .collect()
}

fn check_volume_source(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let old = volume_source_fields(update, update.old_value("spec"));
    let mut new = volume_source_fields(update, update.new_value("spec"));
    let secret = "controllerExpandSecretRef";
    if old.get("csi").is_some_and(|csi| csi.get(secret).is_none())
        && let Some(csi) = new.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove(secret);
    }
    let TypeForm::Struct(spec) = update.field("spec")?.value_type().form() else { return None };
    let is_kept =
        |name: &String| spec.field(name).is_none_or(|field| is_field_equal(field, old.get(name), new.get(name)));
    if old.keys().chain(new.keys()).all(is_kept) {
        return None;
    }
    let difference = unified_diff(&Value::Object(old), &Value::Object(new));
    let detail = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
    Some(FieldError::forbidden("spec.persistentvolumesource", detail))
}

/// The fields that say where a volume is: in protobuf they are a message of their own.
fn volume_source_fields(update: ObjectUpdate<'_>, spec: Option<&Value>) -> JsonObject {
    let is_source = |name: &str| {
        let field = update.field(&format!("spec.{name}"));
        field.is_some_and(|field: StructField| field.protobuf_numbers().count() > 1)
    };
    let fields = spec.and_then(Value::as_object).into_iter().flatten();
    fields.filter(|(name, _)| is_source(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn check_volume_node_affinity(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let path = "spec.nodeAffinity";
    let old = update.old_value(path).filter(|_| !update.gates.enabled("MutablePVNodeAffinity"))?;
    let mut renamed = old.clone();
    let terms = renamed.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (at, term) in terms.into_iter().flatten().enumerate() {
        for part in ["matchExpressions", "matchFields"] {
            let new = update
                .new_value(path)
                .and_then(|affinity| affinity.pointer(&format!("/required/nodeSelectorTerms/{at}")));
            let new = list_items(new.and_then(|term| term.get(part)));
            let requirements = term.get_mut(part).and_then(Value::as_array_mut).into_iter().flatten();
            requirements.zip(new).for_each(|(old, new)| rename_label_key(old, new));
        }
    }
    if is_field_equal(update.field(path)?, Some(&renamed), update.new_value(path)) {
        return None;
    }
    let detail = format!("{FIELD_IS_IMMUTABLE}, except for updating from beta label to GA");
    Some(FieldError::invalid("nodeAffinity", update.displayed_value(path), detail))
}

fn rename_label_key(old: &mut Value, new: &Value) {
    let [before, after] = [&*old, new].map(|value| value.get("key").and_then(Value::as_str).unwrap_or_default());
    if RENAMED_LABELS.contains(&(before, after)) {
        old["key"] = after.into();
    }
}

pub(super) fn check_persistent_volume_claim(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = Map::new();
    let spec = |value: Option<&Value>| value.and_then(Value::as_object).unwrap_or(&empty).clone();
    let (mut old, mut new) = (spec(update.old_value("spec")), spec(update.new_value("spec")));
    if update.old_string("spec.volumeName").is_empty() {
        copy_or_remove(new.get("volumeName"), &mut old, "volumeName");
    }
    errors.extend(check_storage_class(update, &mut new));
    if update.new_string("status.phase") == "Bound" {
        allow_bound_claim_changes(update, &mut new);
    }
    let [old, new] = [old, new].map(Value::Object);
    if update.field("spec").is_some_and(|field| !is_field_equal(field, Some(&old), Some(&new))) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims";
        errors.push(FieldError::forbidden("spec", format!("{detail}\n{}", unified_diff(&old, &new))));
    }
    errors.extend(check_attributes_class(update));
    errors
}

/// A class may be given to a claim that has none, and move from the annotation to the field.
fn check_storage_class(update: ObjectUpdate<'_>, new: &mut JsonObject) -> Option<FieldError> {
    let annotation = |state: Option<&Value>| {
        let annotations = state.and_then(|metadata| metadata.get("annotations"));
        annotations
            .and_then(|annotations| annotations.get(STORAGE_CLASS_ANNOTATION))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let [before, after] = [update.old_value("metadata"), update.new_value("metadata")].map(annotation);
    let has_none = update.old_value("spec.storageClassName").is_none();
    let given = update.new_value("spec.storageClassName").and_then(Value::as_str).filter(|_| has_none);
    let is_as_annotated = given.is_some_and(|class| before.as_deref().is_none_or(|before| before == class));
    if is_as_annotated {
        new.remove("storageClassName");
    }
    let is_moved = is_as_annotated && before.is_some() && after.is_none();
    if is_moved || before.unwrap_or_default() == *after.as_deref().unwrap_or_default() {
        return None;
    }
    let field = format!("metadata.annotations.{STORAGE_CLASS_ANNOTATION}");
    Some(FieldError::invalid(field, after.unwrap_or_default(), FIELD_IS_IMMUTABLE))
}

/// A claim that is bound may ask for more space, and for other attributes.
fn allow_bound_claim_changes(update: ObjectUpdate<'_>, new: &mut JsonObject) {
    let requests = new.get_mut("resources").and_then(|resources| resources.get_mut("requests"));
    if let Some(requests) = requests.and_then(Value::as_object_mut) {
        copy_or_remove(update.old_value("spec.resources.requests.storage"), requests, "storage");
    }
    copy_or_remove(update.old_value("spec.volumeAttributesClassName"), new, "volumeAttributesClassName");
}

fn check_attributes_class(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let path = "spec.volumeAttributesClassName";
    if update.is_unchanged(path) || update.gates.enabled("VolumeAttributesClass") {
        return None;
    }
    Some(FieldError::forbidden(path, "update is forbidden when the VolumeAttributesClass feature gate is disabled"))
}

//! Claims to persistent volumes.
//!
//! The lower limit for shrinking a claim is not checked.

use access::User;
use api::FieldError;
use api::json::JsonObject;
use object::Rejection;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_cell_or, string_column};
use object::unstructured;
use schema::semantic_equality::is_field_equal;
use serde_json::{Map, Value, json};

use crate::persistent_volume::{
    ATTRIBUTES_CLASS, MODE, VOLUME_MODE_IS_FIXED, access_modes, check_attributes_class, phase_cell, storage_class_cell,
};
use crate::strategy::KindStrategy;
use crate::update_validation::unified_diff::unified_diff;
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate, copy_or_remove};
use crate::validation::Field;
use crate::validation::volume_sources::{VOLUME_MODES, check_access_modes, check_each_access_mode};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    prepare_for_create,
    // Clients may omit the field that was completed.
    prepare_for_update: |_, claim| {
        claim.get_mut("spec").and_then(Value::as_object_mut).map(complete_data_sources);
        Ok(())
    },
    validate: |claim| check_claim_spec(claim.at("spec")),
    validate_status: |claim, _| check_status(claim.at("status")),
    validate_update: |claim, subresource| match subresource {
        "status" => Vec::new(),
        _ => check_update(claim),
    },
    immutable_fields: &[VOLUME_MODE_IS_FIXED],
    columns: CLAIMS,
    ..KindStrategy::DEFAULT
};

/// The states of a volume that is being resized.
const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// The spec of a claim, or of a claim template.
pub(crate) fn check_claim_spec(spec: Field<'_>) {
    check_access_modes(spec, "at least 1 access mode is required");
    spec.at("selector").label_selector();
    check_each_access_mode(spec);
    let storage = spec.path("resources.requests").key("storage").reported_at(spec.at("resources").key("storage"));
    if storage.is_present() {
        storage.quantity_positive();
    } else {
        storage.required("");
    }
    if !spec.at("storageClassName").text().is_empty() {
        spec.at("storageClassName").dns_subdomain();
    }
    spec.at("volumeMode").one_of_if_present(&VOLUME_MODES);
    check_data_sources(spec);
    let class = spec.at("volumeAttributesClassName");
    if !class.text().is_empty() && class.is_enabled("VolumeAttributesClass") {
        class.dns_subdomain();
    }
}

fn check_data_sources(spec: Field<'_>) {
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    for object in [source, reference].into_iter().filter(|object| object.is_present()) {
        let (group, kind) = (object.at("apiGroup"), object.at("kind"));
        object.require(&["name", "kind"]);
        if group.text().is_empty() && kind.text() != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            object.invalid_as(kind.text(), detail);
        }
        if !group.text().is_empty() {
            group.dns_subdomain();
        }
    }
    let namespace = reference.at("namespace");
    if !namespace.text().is_empty() {
        namespace.dns_label();
        if source.is_present() {
            spec.invalid_as(json!({}), "may not be specified when dataSourceRef.namespace is specified");
        }
    } else if source.is_present() && reference.is_present() {
        let is_same = |name: &&'static str| source.at(name).value() == reference.at(name).value();
        if !["apiGroup", "kind", "name"].iter().all(is_same) {
            spec.invalid_as(json!({}), "must match dataSourceRef");
        }
    }
}

fn check_status(status: Field<'_>) {
    for (_, amount) in status.at("capacity").entries() {
        amount.whole_quantity_not_negative();
    }
    let states = status.at("allocatedResourceStatuses");
    for (resource, state) in states.entries() {
        check_claim_resource(states, resource);
        if !RESIZE_STATES.contains(&state.text()) {
            states.unsupported_as(resource, &RESIZE_STATES);
        }
    }
    let allocated = status.at("allocatedResources");
    for (resource, amount) in allocated.entries() {
        if check_claim_resource(allocated, resource) {
            amount.whole_quantity_not_negative();
        }
    }
}

/// The name of a resource that a claim can have. True if it is valid.
fn check_claim_resource(field: Field<'_>, resource: &str) -> bool {
    let errors = field.error_count();
    api::validation::validate_label_key(resource).into_iter().for_each(|error| field.invalid_as(resource, error));
    let is_native = !resource.contains('/') || resource.contains("kubernetes.io/");
    if field.error_count() == errors && is_native && resource != "storage" {
        field.unsupported_as(resource, &["storage"]);
    }
    field.error_count() == errors
}

/// A new claim is pending.
fn prepare_for_create(_: &User, object: &mut JsonObject) -> Result<(), Rejection> {
    object.insert("status".to_owned(), json!({"phase": "Pending"}));
    object.get_mut("spec").and_then(Value::as_object_mut).map(complete_data_sources);
    Ok(())
}

/// The older field of a data source has claims and snapshots alone; each field is completed from the other.
fn complete_data_sources(spec: &mut JsonObject) {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_known = |source: &Value| {
        let kind = (text(source, "apiGroup"), text(source, "kind"));
        kind == (String::new(), "PersistentVolumeClaim".to_owned())
            || kind == ("snapshot.storage.k8s.io".to_owned(), "VolumeSnapshot".to_owned())
    };
    let [source, reference] = ["dataSource", "dataSourceRef"].map(|name| spec.get(name).cloned());
    match (source, reference) {
        (Some(source), None) if is_known(&source) => drop(spec.insert("dataSourceRef".to_owned(), source)),
        (Some(_), None) => drop(spec.remove("dataSource")),
        (None, Some(mut reference)) if text(&reference, "namespace").is_empty() => {
            reference.as_object_mut().map(|reference| reference.remove("namespace"));
            spec.insert("dataSource".to_owned(), reference);
        }
        _ => {}
    }
}

/// The annotation that held the storage class before there was a field.
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn check_update(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = Map::new();
    let spec = |value: Option<&Value>| value.and_then(Value::as_object).unwrap_or(&empty).clone();
    let (mut old, mut new) = (spec(update.old_value("spec")), spec(update.new_value("spec")));
    complete_data_sources(&mut old);
    if update.old_string("spec.volumeName").is_empty() {
        copy_or_remove(new.get("volumeName"), &mut old, "volumeName");
    }
    errors.extend(check_storage_class(update, &mut new));
    if update.new_string("status.phase") == "Bound" {
        allow_bound_claim_changes(update, &mut new);
    }
    let [old, new] = [old, new].map(Value::Object);
    if let Some(field) = update.field("spec").filter(|field| !is_field_equal(*field, Some(&old), Some(&new))) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims";
        errors.push(FieldError::forbidden(
            "spec",
            format!("{detail}\n{}", unified_diff(&old, &new, Some(field.value_type()))),
        ));
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

/// A bound claim may request more storage and another attributes class.
fn allow_bound_claim_changes(update: ObjectUpdate<'_>, new: &mut JsonObject) {
    let requests = new.get_mut("resources").and_then(|resources| resources.get_mut("requests"));
    if let Some(requests) = requests.and_then(Value::as_object_mut) {
        copy_or_remove(update.old_value("spec.resources.requests.storage"), requests, "storage");
    }
    copy_or_remove(update.old_value("spec.volumeAttributesClassName"), new, "volumeAttributesClassName");
}

const CLAIMS: &[Column] = &[
    NAME,
    string_column("Status", "Whether it is bound.", |claim, _| phase_cell(claim)),
    string_column("Volume", "The volume it got.", |claim, _| string_cell(claim, &["spec", "volumeName"])),
    string_column("Capacity", "How much the volume holds.", |claim, _| {
        match unstructured::text(claim, &["spec", "volumeName"]) {
            "" => "".into(),
            _ => string_cell_or(claim, &["status", "capacity", "storage"], "0"),
        }
    }),
    string_column("Access Modes", "How it may be mounted.", |claim, _| {
        match unstructured::text(claim, &["spec", "volumeName"]) {
            "" => "".into(),
            _ => access_modes(claim, "status").into(),
        }
    }),
    string_column("StorageClass", "Its class.", |claim, _| storage_class_cell(claim)),
    ATTRIBUTES_CLASS,
    AGE,
    MODE,
];

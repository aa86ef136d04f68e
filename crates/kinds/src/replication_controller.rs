//! Replication controllers.

use api::FieldError;
use api::json::JsonObject;
use object::KindRules;
use object::rules::{GarbageCollectionPolicy, GenerationRule};
use object::scale::{ScalePaths, ScaleSelector};
use object::selectable_fields::SelectableFields;
use object::table::cells::{AGE, NAME, integer_cell, integer_column, wide_column};
use object::table::{Column, cells};
use object::unstructured;
use serde_json::json;

use crate::fields::{object_field_mut, set_if_empty};
use crate::strategy::{KindStrategy, RULES};
use crate::workload::{CONTAINERS, IMAGES, check_replicas, check_template, desired_replicas, template_labels};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules {
        generation: GenerationRule::Counted,
        garbage_collection: GarbageCollectionPolicy::OrphanDependents,
        ..RULES
    },
    validate,
    columns: CONTROLLERS,
    selectable_fields: &SelectableFields {
        names: &["metadata.name", "metadata.namespace", "status.replicas"],
        value: |controller, field| {
            let replicas = || unstructured::integer(controller, &["status", "replicas"]).unwrap_or_default();
            (field == "status.replicas").then(|| replicas().to_string().into())
        },
        ..SelectableFields::LISTED
    },
    scale: ScalePaths { selector: ScaleSelector::Labels(&["spec", "selector"]), ..ScalePaths::WORKLOAD },
    ..KindStrategy::DEFAULT
};

/// Rejects negative replicas, and a template that the selector, a plain map of labels, does not match.
fn validate(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let Some(spec) = object.get("spec") else { return };
    check_replicas(errors, spec);
    check_template(errors, spec, &json!({"matchLabels": spec.get("selector")}));
}

/// Selector and labels default to the labels of the pod template.
pub(crate) fn set_replication_controller_defaults(controller: &mut JsonObject) {
    let Some(labels) = template_labels(controller) else { return };
    if let Some(spec) = object_field_mut(controller, "spec") {
        set_if_empty(spec, "selector", labels.clone());
    }
    if let Some(metadata) = object_field_mut(controller, "metadata") {
        set_if_empty(metadata, "labels", labels);
    }
}

const CONTROLLERS: &[Column] = &[
    NAME,
    integer_column("Desired", "How many pods it wants.", |controller, _| desired_replicas(controller).into()),
    integer_column("Current", "How many pods there are.", |controller, _| {
        integer_cell(controller, &["status", "replicas"])
    }),
    integer_column("Ready", "How many pods are ready.", |controller, _| {
        integer_cell(controller, &["status", "readyReplicas"])
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    wide_column("Selector", "Which pods are its own.", |controller, _| {
        cells::labels_cell(controller, &["spec", "selector"])
    }),
];

//! Replication controllers.

use api::json::JsonObject;
use object::KindRules;
use object::rules::{GarbageCollectionPolicy, GenerateNameRule, GenerationRule};
use object::scale::{ScalePaths, ScaleSelector};
use object::selectable_fields::SelectableFields;
use object::table::cells::{AGE, NAME, integer_cell, integer_column, wide_column};
use object::table::{Column, cells};
use object::unstructured;

use crate::fields::{object_field_mut, set_if_empty};
use crate::pod::validation::check_pod_template;
use crate::replica_set::check_replica_set_status;
use crate::strategy::{KindStrategy, RULES};
use crate::validation::Field;
use crate::workload::{CONTAINERS, IMAGES, WorkloadWords, check_runs_for_ever, desired_replicas, template_labels};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules {
        generation: GenerationRule::Counted,
        generate_name: GenerateNameRule::Never,
        garbage_collection: GarbageCollectionPolicy::OrphanDependents,
        ..RULES
    },
    validate: |controller| check_spec(controller.at("spec")),
    validate_status: |controller, _| check_replica_set_status(controller.at("status")),
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

/// The selector is a plain map of labels.
fn check_spec(spec: Field<'_>) {
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    spec.at("minReadySeconds").not_negative();
    if selector.len() == 0 {
        selector.required("");
    }
    if spec.at("replicas").is_present() {
        spec.at("replicas").not_negative();
    } else {
        spec.at("replicas").required("");
    }
    if !template.is_present() {
        return template.required("");
    }
    let labels = template.path("metadata.labels");
    if selector.entries().any(|(key, value)| labels.key(key).value() != value.value()) {
        labels.invalid("`selector` does not match template `labels`");
    }
    check_pod_template(template);
    check_runs_for_ever(template, &WorkloadWords { empty_selector: "", deadline: "ReplicationController" });
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

//! Replica sets.

use object::KindRules;
use object::rules::GenerationRule;
use object::table::Column;
use object::table::cells::{AGE, NAME, integer_cell, integer_column};

use crate::deployment::WORDS;
use crate::strategy::{KindStrategy, LENIENT_RULES};
use crate::validation::{Field, go_label_selector};
use crate::workload::{
    CONTAINERS, IMAGES, SELECTOR_COLUMN, SELECTOR_IS_FIXED, check_available_are_ready, check_replica_counts,
    check_selector, check_template, desired_replicas,
};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..LENIENT_RULES },
    validate: |set| check_spec(set.at("spec")),
    validate_status: |set, _| check_replica_set_status(set.at("status")),
    immutable_fields: SELECTOR_IS_FIXED,
    columns: REPLICA_SETS,
    ..KindStrategy::DEFAULT
};

fn check_spec(spec: Field<'_>) {
    spec.at("replicas").not_negative();
    spec.at("minReadySeconds").not_negative();
    if check_selector(spec.at("selector"), &WORDS) {
        check_template(spec.at("template"), spec.at("selector"), &WORDS);
    } else {
        let selector = spec.at("selector");
        selector.invalid_showing(go_label_selector(selector.value()), "invalid label selector");
    }
}

/// The status of a replica set or a replication controller.
pub(crate) fn check_replica_set_status(status: Field<'_>) {
    check_replica_counts(
        status,
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    );
    check_available_are_ready(status, "readyReplicas");
}

const REPLICA_SETS: &[Column] = &[
    NAME,
    integer_column("Desired", "How many pods it wants.", |set, _| desired_replicas(set).into()),
    integer_column("Current", "How many pods there are.", |set, _| integer_cell(set, &["status", "replicas"])),
    integer_column("Ready", "How many pods are ready.", |set, _| integer_cell(set, &["status", "readyReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR_COLUMN,
];

//! Replica sets.

use object::KindRules;
use object::rules::GenerationRule;
use object::table::Column;
use object::table::cells::{AGE, NAME, integer_cell, integer_column};

use crate::strategy::{KindStrategy, RULES};
use crate::workload::{CONTAINERS, IMAGES, SELECTOR_COLUMN, SELECTOR_IS_FIXED, check_workload, desired_replicas};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    validate: check_workload,
    immutable_fields: SELECTOR_IS_FIXED,
    columns: REPLICA_SETS,
    ..KindStrategy::DEFAULT
};

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

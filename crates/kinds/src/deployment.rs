//! Deployments.

use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::cells::{AGE, NAME, integer_cell, string_column, wide_column};
use object::table::{Column, cells};
use serde_json::json;

use crate::fields::restore_metadata_field;
use crate::strategy::{KindStrategy, RULES, SubresourceStrategy};
use crate::workload::{CONTAINERS, IMAGES, READY, SELECTOR_IS_FIXED, check_workload, set_rolling_update_defaults};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::CountedWithAnnotations, ..RULES },
    subresources: &[SubresourceStrategy::status(|old, deployment, _| {
        restore_metadata_field(old, deployment, "labels");
        Ok(())
    })],
    validate: check_workload,
    immutable_fields: SELECTOR_IS_FIXED,
    columns: DEPLOYMENTS,
    ..KindStrategy::DEFAULT
};

pub(crate) fn set_deployment_defaults(spec: &mut JsonObject) {
    set_rolling_update_defaults(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
}

const DEPLOYMENTS: &[Column] = &[
    NAME,
    READY,
    string_column("Up-to-date", "How many pods follow the present template.", |deployment, _| {
        integer_cell(deployment, &["status", "updatedReplicas"])
    }),
    string_column("Available", "How many pods have been ready for long enough.", |deployment, _| {
        integer_cell(deployment, &["status", "availableReplicas"])
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    wide_column("Selector", "Which pods are its own.", |deployment, _| {
        cells::selector_text(deployment, &["spec", "selector"]).replace("<error>", "<invalid>").into()
    }),
];

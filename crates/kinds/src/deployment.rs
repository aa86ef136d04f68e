//! Deployments.

use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::cells::{AGE, NAME, integer_cell, string_column, wide_column};
use object::table::{Column, cells};
use serde_json::json;

use crate::fields::restore_metadata_field;
use crate::reset_fields;
use crate::strategy::{KindStrategy, LENIENT_RULES, SubresourceStrategy};
use crate::validation::{Field, go_label_selector, go_object};
use crate::workload::{
    CONTAINERS, IMAGES, READY, SELECTOR_IS_FIXED, WorkloadWords, check_available_are_ready, check_collisions,
    check_replica_counts, check_selector, check_template, set_rolling_update_defaults,
};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::DEPLOYMENT,
    rules: KindRules { generation: GenerationRule::CountedWithAnnotations, ..LENIENT_RULES },
    subresources: &[SubresourceStrategy::status(|old, deployment, _| {
        restore_metadata_field(old, deployment, "labels");
        Ok(())
    })],
    validate: |deployment| check_spec(deployment.at("spec")),
    validate_status,
    immutable_fields: SELECTOR_IS_FIXED,
    columns: DEPLOYMENTS,
    ..KindStrategy::DEFAULT
};

/// Pods of deployments belong to replica sets, and share their rules.
pub(crate) const WORDS: WorkloadWords = WorkloadWords { empty_selector: "deployment", deadline: "ReplicaSet" };

fn check_spec(spec: Field<'_>) {
    spec.at("replicas").not_negative();
    if check_selector(spec.at("selector"), &WORDS) {
        check_template(spec.at("template"), spec.at("selector"), &WORDS);
    } else {
        let selector = spec.at("selector");
        selector.invalid_showing(go_label_selector(selector.value()), "invalid label selector");
    }
    check_strategy(spec.at("strategy"));
    spec.at("minReadySeconds").not_negative();
    spec.at("revisionHistoryLimit").not_negative();
    let deadline = spec.at("progressDeadlineSeconds");
    deadline.not_negative();
    if deadline.is_present() && deadline.integer_or_zero() <= spec.at("minReadySeconds").integer_or_zero() {
        deadline.invalid("must be greater than minReadySeconds");
    }
}

fn check_strategy(strategy: Field<'_>) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" => strategy.forbid(&["rollingUpdate"], "may not be specified when strategy `type` is 'Recreate'"),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            unavailable.number_or_percentage();
            surge.number_or_percentage();
            if unavailable.is_zero_or_0_percent() && surge.is_zero_or_0_percent() {
                unavailable.invalid("may not be 0 when `maxSurge` is 0");
            }
            unavailable.at_most_100_percent();
        }
        other => {
            let amount = |name| rolling.at(name).value().cloned().unwrap_or_else(|| 0.into());
            let amounts = [("MaxUnavailable", amount("maxUnavailable")), ("MaxSurge", amount("maxSurge"))];
            let rolling = if rolling.is_present() { go_object(&amounts) } else { "null".to_owned() };
            let kind = go_object(&[("Type", other.into())]);
            let shown = format!("{},\"RollingUpdate\":{rolling}}}", kind.trim_end_matches('}'));
            strategy.unsupported_showing(shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

fn validate_status(deployment: Field<'_>, old: Field<'_>) {
    let status = deployment.at("status");
    check_replica_counts(
        status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
    );
    check_available_are_ready(status, "readyReplicas");
    check_collisions(status, old.at("status"));
}

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

//! Daemon sets: an annotation counts the changes of their pod template.

use access::User;
use api::json::JsonObject;
use object::rules::GenerationRule;
use object::table::cells::{AGE, NAME, integer_cell, integer_column, string_column};
use object::table::{Column, cells};
use object::{KindRules, Rejection};
use serde_json::{Value, json};

use crate::pod::validation::check_pod_template;
use crate::strategy::{KindStrategy, LENIENT_RULES};
use crate::validation::labels::selector_matches;
use crate::validation::{Field, go_object};
use crate::workload::{
    CONTAINERS, IMAGES, SELECTOR_COLUMN, SELECTOR_IS_FIXED, WorkloadWords, check_collisions, check_runs_for_ever,
    set_rolling_update_defaults,
};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..LENIENT_RULES },
    prepare_for_create,
    prepare_for_update,
    validate: |set| check_spec(set.at("spec")),
    validate_status,
    immutable_fields: SELECTOR_IS_FIXED,
    columns: DAEMON_SETS,
    ..KindStrategy::DEFAULT
};

fn check_spec(spec: Field<'_>) {
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    let errors = selector.error_count();
    selector.label_selector();
    let labels = template.path("metadata.labels");
    let is_usable = selector.error_count() == errors;
    if is_usable && (!selector.is_present() || !selector_matches(selector, labels)) {
        labels.invalid("`selector` does not match template `labels`");
    }
    if selector.is_present() && !selector.has_selector_terms() {
        selector.invalid("empty selector is invalid for daemonset");
    }
    check_pod_template(template);
    check_runs_for_ever(template, &WorkloadWords { empty_selector: "daemonset", deadline: "DaemonSet" });
    spec.at("minReadySeconds").not_negative();
    check_update_strategy(spec.at("updateStrategy"));
    spec.at("revisionHistoryLimit").not_negative();
}

fn check_update_strategy(strategy: Field<'_>) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            [unavailable, surge].into_iter().for_each(Field::number_or_percentage);
            [unavailable, surge].into_iter().for_each(Field::at_most_100_percent);
            match (unavailable.is_zero_or_0_percent(), surge.is_zero_or_0_percent()) {
                (false, false) => surge.invalid("may not be set when maxUnavailable is non-zero"),
                (true, true) => unavailable.required("cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        other => {
            let shown = go_object(&[("Type", other.into()), ("RollingUpdate", json!(rolling.value()))]);
            strategy.unsupported_showing(shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn validate_status(set: Field<'_>, old: Field<'_>) {
    let status = set.at("status");
    for count in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ] {
        status.at(count).not_negative();
    }
    check_collisions(status, old.at("status"));
}

/// The generation of the pod template, once a field; controllers still label pods by it.
const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// Starts the template generation at 1.
fn prepare_for_create(_: &User, object: &mut JsonObject) -> Result<(), Rejection> {
    let generation = template_generation(object).max(1);
    set_template_generation(object, generation);
    Ok(())
}

/// Increments the template generation when the pod template changes.
fn prepare_for_update(old: &JsonObject, new: &mut JsonObject) -> Result<(), Rejection> {
    let template = |object: &JsonObject| object.get("spec").and_then(|spec| spec.get("template")).cloned();
    let generation = template_generation(old).saturating_add(i64::from(template(old) != template(new)));
    set_template_generation(new, generation.max(1));
    Ok(())
}

fn template_generation(object: &JsonObject) -> i64 {
    let annotation = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations")?.get(TEMPLATE_GENERATION_ANNOTATION)?.as_str());
    annotation.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(object: &mut JsonObject, generation: i64) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let annotations = metadata.as_object_mut().map(|metadata| metadata.entry("annotations").or_insert(Value::Null));
    let Some(annotations) = annotations else { return };
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(TEMPLATE_GENERATION_ANNOTATION.to_owned(), generation.to_string().into());
    }
}

pub(crate) fn set_daemon_set_defaults(spec: &mut JsonObject) {
    set_rolling_update_defaults(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
}

const DAEMON_SETS: &[Column] = &[
    NAME,
    integer_column("Desired", "On how many nodes it should run.", |set, _| {
        integer_cell(set, &["status", "desiredNumberScheduled"])
    }),
    integer_column("Current", "On how many of those it runs.", |set, _| {
        integer_cell(set, &["status", "currentNumberScheduled"])
    }),
    integer_column("Ready", "How many pods are ready.", |set, _| integer_cell(set, &["status", "numberReady"])),
    integer_column("Up-to-date", "How many pods follow the present template.", |set, _| {
        integer_cell(set, &["status", "updatedNumberScheduled"])
    }),
    integer_column("Available", "How many pods have been ready for long enough.", |set, _| {
        integer_cell(set, &["status", "numberAvailable"])
    }),
    string_column("Node Selector", "On which nodes it runs.", |set, _| {
        cells::labels_cell(set, &["spec", "template", "spec", "nodeSelector"])
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR_COLUMN,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_generation_counts_template_changes() {
        let set = |image: &str| {
            let Value::Object(set) = json!({"metadata": {"name": "d"}, "spec": {"template": {"image": image}}}) else {
                unreachable!("it is an object")
            };
            set
        };
        let mut first = set("a");
        prepare_for_create(&User::named("u"), &mut first).unwrap();
        assert_eq!(template_generation(&first), 1);
        let mut same = set("a");
        prepare_for_update(&first, &mut same).unwrap();
        assert_eq!(template_generation(&same), 1);
        let mut next = set("b");
        prepare_for_update(&same, &mut next).unwrap();
        assert_eq!(template_generation(&next), 2);
        set_template_generation(&mut same, i64::MAX);
        prepare_for_update(&same, &mut next).unwrap();
        assert_eq!(template_generation(&next), i64::MAX);
    }
}

//! Stateful sets.

use api::json::JsonObject;
use object::KindRules;
use object::rules::{GenerationRule, NameRule};
use object::table::cells::{AGE, NAME};
use serde_json::{Value, json};

use crate::feature_gates::FeatureGates;
use crate::fields::{object_field_mut, objects_mut, set_if_absent, set_if_empty, string_field};
use crate::persistent_volume_claim::check_claim_spec;
use crate::pod::validation::check_pod_template_with;
use crate::release::Release::*;
use crate::strategy::{KindStrategy, LENIENT_RULES};
use crate::update_validation::immutable_fields::{ImmutableField, ViolationMessage, fixed_field, immutable_field};
use crate::validation::{Field, go_label_selector, go_object};
use crate::workload::{
    CONTAINERS, IMAGES, READY, WorkloadWords, check_available_are_ready, check_collisions, check_replica_counts,
    check_runs_for_ever, check_selector, check_template_labels,
};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, name_rule: NameRule::Label, ..LENIENT_RULES },
    validate: |set| check_spec(set.at("spec")),
    validate_create: |set| {
        let spec = set.at("spec");
        spec.at("volumeClaimTemplates").each(|claim| check_claim_spec(claim.at("spec")));
        if !spec.at("serviceName").text().is_empty() {
            spec.at("serviceName").dns_label();
        }
    },
    validate_status,
    immutable_fields: IMMUTABLE_FIELDS,
    columns: &[NAME, READY, AGE, CONTAINERS, IMAGES],
    ..KindStrategy::DEFAULT
};

const WORDS: WorkloadWords = WorkloadWords { empty_selector: "statefulset", deadline: "StatefulSet" };

fn check_spec(spec: Field<'_>) {
    let policy = spec.at("podManagementPolicy");
    match policy.text() {
        "" => policy.required(""),
        "OrderedReady" | "Parallel" => {}
        _ => policy.invalid("must be 'OrderedReady' or 'Parallel'"),
    }
    check_update_strategy(spec.at("updateStrategy"));
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    if retention.is_present() {
        ["whenDeleted", "whenScaled"].iter().for_each(|name| retention.at(name).one_of(&["Retain", "Delete"]));
    }
    spec.at("replicas").not_negative();
    spec.at("minReadySeconds").not_negative();
    let start = spec.path("ordinals.start");
    start.not_negative();
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    if check_selector(selector, &WORDS) {
        check_template_labels(template, selector);
        let claims: Vec<&str> =
            spec.at("volumeClaimTemplates").items().map(|claim| claim.path("metadata.name").text()).collect();
        check_pod_template_with(template, &claims);
    } else {
        selector.invalid_showing(go_label_selector(selector.value()), "");
    }
    check_runs_for_ever(template, &WORDS);
}

fn check_update_strategy(strategy: Field<'_>) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "" => strategy.required(""),
        "OnDelete" if rolling.is_present() => rolling.invalid("only allowed for updateStrategy 'RollingUpdate'"),
        "OnDelete" => {}
        "RollingUpdate" => {
            rolling.at("partition").not_negative();
            let unavailable = rolling.at("maxUnavailable");
            if unavailable.is_present() {
                unavailable.number_or_percentage();
                if unavailable.is_zero_or_0_percent() {
                    unavailable.invalid("cannot be 0");
                }
                unavailable.at_most_100_percent();
            }
        }
        other => {
            let shown = go_object(&[("Type", other.into()), ("RollingUpdate", json!(rolling.value()))]);
            strategy.invalid_showing(shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn validate_status(set: Field<'_>, old: Field<'_>) {
    let status = set.at("status");
    check_replica_counts(
        status,
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    );
    check_available_are_ready(status, "status.readyReplicas");
    check_collisions(status, old.at("status"));
}

const IMMUTABLE_FIELDS: &[ImmutableField] = &[
    immutable_field(
        "spec",
        ViolationMessage::ForbiddenExcept(
            &[
                "minReadySeconds",
                "ordinals",
                "persistentVolumeClaimRetentionPolicy",
                "replicas",
                "template",
                "updateStrategy",
            ],
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                     'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ),
    )
    .until(R33),
    immutable_field(
        "spec",
        ViolationMessage::ForbiddenExcept(
            &[
                "minReadySeconds",
                "ordinals",
                "persistentVolumeClaimRetentionPolicy",
                "replicas",
                "revisionHistoryLimit",
                "template",
                "updateStrategy",
            ],
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                     'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                     'minReadySeconds' are forbidden",
        ),
    )
    .since(R33)
    .until(R37),
    fixed_field("spec.selector").since(R37),
    fixed_field("spec.volumeClaimTemplates").since(R37),
    fixed_field("spec.serviceName").since(R37),
    fixed_field("spec.podManagementPolicy").since(R37),
];

pub(crate) fn set_stateful_set_defaults(spec: &mut JsonObject, gates: &FeatureGates) {
    if let Some(strategy) = object_field_mut(spec, "updateStrategy") {
        if string_field(strategy, "type").is_empty() {
            strategy.insert("type".to_owned(), "RollingUpdate".into());
            set_if_absent(strategy, "rollingUpdate", json!({}));
        }
        let is_rolling = string_field(strategy, "type") == "RollingUpdate";
        let rolling = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut);
        if let Some(rolling) = rolling.filter(|_| is_rolling) {
            set_if_absent(rolling, "partition", 0);
            if gates.enabled("MaxUnavailableStatefulSet") {
                set_if_absent(rolling, "maxUnavailable", 1);
            }
        }
    }
    for claim in objects_mut(spec, "volumeClaimTemplates") {
        // Whatever the client sent: nothing else is a claim.
        claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
        claim.insert("apiVersion".to_owned(), "v1".into());
    }
    if let Some(retention) = object_field_mut(spec, "persistentVolumeClaimRetentionPolicy") {
        set_if_empty(retention, "whenDeleted", "Retain");
        set_if_empty(retention, "whenScaled", "Retain");
    }
}

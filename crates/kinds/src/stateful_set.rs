//! Stateful sets.

use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::cells::{AGE, NAME};
use serde_json::{Value, json};

use crate::feature_gates::FeatureGates;
use crate::fields::{object_field_mut, objects_mut, set_if_absent, set_if_empty, string_field};
use crate::release::Release::*;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::{ImmutableField, ViolationMessage, fixed_field, immutable_field};
use crate::workload::{CONTAINERS, IMAGES, READY, check_workload};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    validate: check_workload,
    immutable_fields: IMMUTABLE_FIELDS,
    columns: &[NAME, READY, AGE, CONTAINERS, IMAGES],
    ..KindStrategy::DEFAULT
};

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
        set_if_empty(claim, "kind", "PersistentVolumeClaim");
        set_if_empty(claim, "apiVersion", "v1");
    }
    if let Some(retention) = object_field_mut(spec, "persistentVolumeClaimRetentionPolicy") {
        set_if_empty(retention, "whenDeleted", "Retain");
        set_if_empty(retention, "whenScaled", "Retain");
    }
}

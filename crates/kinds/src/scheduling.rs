//! Priority classes, pod groups and workloads of pod groups.

use api::FieldError;
use api::json::JsonObject;
use object::KindRules;
use object::rules::{GenerationRule, StatusSubresource};
use object::table::Column;
use object::table::cells::{AGE, NAME, boolean_column, integer_cell, integer_column, string_cell, string_column};
use object::unstructured;

use crate::release::Release::*;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::{fixed_field, forbidden_change};

pub(crate) static PRIORITY_CLASS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    validate: check_name,
    immutable_fields: &[forbidden_change("value", "may not be changed in an update."), fixed_field("preemptionPolicy")],
    columns: PRIORITY_CLASSES,
    ..KindStrategy::DEFAULT
};

pub(crate) static POD_GROUP_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { status: StatusSubresource::StatusOnly, ..RULES },
    immutable_fields: &[
        fixed_field("spec.podGroupTemplateRef"),
        fixed_field("spec.parentCompositePodGroupName"),
        fixed_field("spec.workloadRef"),
        fixed_field("spec.schedulingPolicy").until(R37),
        fixed_field("spec.schedulingConstraints"),
        fixed_field("spec.resourceClaims"),
        fixed_field("spec.disruptionMode"),
        fixed_field("spec.priorityClassName"),
        fixed_field("spec.priority"),
        fixed_field("spec.preemptionPolicy"),
    ],
    ..KindStrategy::DEFAULT
};

pub(crate) static COMPOSITE_POD_GROUP_STRATEGY: KindStrategy =
    KindStrategy { rules: KindRules { status: StatusSubresource::StatusOnly, ..RULES }, ..KindStrategy::DEFAULT };

pub(crate) static WORKLOAD_STRATEGY: KindStrategy = KindStrategy {
    immutable_fields: &[
        fixed_field("spec.controllerRef").displayed_as("controllerRef").immutable_once_set().until(R36),
        fixed_field("spec.podGroups").displayed_as("podGroups").until(R36),
        fixed_field("spec.controllerRef").since(R36),
        fixed_field("spec.podGroupTemplates").since(R36).until(R37),
    ],
    ..KindStrategy::DEFAULT
};

/// The priority classes that Kubernetes creates.
const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

fn check_name(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")?.as_str()).unwrap_or_default();
    if name.starts_with("system-") && !SYSTEM_CLASSES.contains(&name) {
        let detail = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system \
             priority class"
        );
        errors.push(FieldError::forbidden("metadata.name", detail));
    }
}

const PRIORITY_CLASSES: &[Column] = &[
    NAME,
    integer_column("Value", "Higher comes first.", |class, _| integer_cell(class, &["value"])),
    boolean_column("Global-Default", "Whether pods get it that name none.", |class, _| {
        unstructured::flag(class, &["globalDefault"]).into()
    }),
    AGE,
    string_column("PreemptionPolicy", "Whether it drives out others.", |class, _| {
        string_cell(class, &["preemptionPolicy"])
    }),
];

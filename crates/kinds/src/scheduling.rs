//! Priority classes, pod groups and workloads of pod groups.

use object::KindRules;
use object::rules::{GenerationRule, StatusSubresource};
use object::table::Column;
use object::table::cells::{AGE, NAME, boolean_column, integer_cell, integer_column, string_cell, string_column};
use object::unstructured;

use crate::release::Release::*;
use crate::reset_fields;
use crate::strategy::{KindStrategy, LENIENT_RULES, RULES};
use crate::update_validation::immutable_fields::{fixed_field, forbidden_change};
use crate::validation::Field;

pub(crate) static PRIORITY_CLASS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Constant, ..LENIENT_RULES },
    validate_create: check_priority_class,
    immutable_fields: &[forbidden_change("value", "may not be changed in an update."), fixed_field("preemptionPolicy")],
    columns: PRIORITY_CLASSES,
    ..KindStrategy::DEFAULT
};

pub(crate) static POD_GROUP_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::POD_GROUP,
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

pub(crate) static COMPOSITE_POD_GROUP_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules { status: StatusSubresource::StatusOnly, ..RULES },
    ..KindStrategy::DEFAULT
};

pub(crate) static WORKLOAD_STRATEGY: KindStrategy = KindStrategy {
    immutable_fields: &[
        fixed_field("spec.controllerRef").displayed_as("controllerRef").immutable_once_set().until(R36),
        fixed_field("spec.podGroups").displayed_as("podGroups").until(R36),
        fixed_field("spec.controllerRef").since(R36),
        fixed_field("spec.podGroupTemplates").since(R36).until(R37),
    ],
    ..KindStrategy::DEFAULT
};

/// The priority classes that Kubernetes creates, and their values.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
/// Higher values are for the system.
const USER_VALUE_MAX: i64 = 1_000_000_000;

fn check_priority_class(class: Field<'_>) {
    let (name, value) = (class.path("metadata.name"), class.at("value"));
    if name.text().starts_with("system-") {
        let known = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name.text());
        let is_global = class.at("globalDefault").flag();
        let error = match known {
            None => Some(format!("{} is not a known system priority class", name.text())),
            Some((_, expected)) if *expected != value.integer_or_zero() => {
                Some(format!("value of {} PriorityClass must be {expected}", name.text()))
            }
            Some(_) if is_global => Some(format!("globalDefault of {} PriorityClass must be false", name.text())),
            Some(_) => None,
        };
        if let Some(error) = error {
            let detail = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            name.forbidden(format!("{detail}{error}"));
        }
    } else if value.integer_or_zero() > USER_VALUE_MAX {
        value.forbidden(format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}"));
    }
    if class.at("preemptionPolicy").is_present() {
        class.at("preemptionPolicy").require_one_of(&["PreemptLowerPriority", "Never"]);
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

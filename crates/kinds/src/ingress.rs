//! Ingresses and ingress classes.

mod validation;

use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_cell_or, string_column};
use object::unstructured;
use object::unstructured::{metadata_string, objects};
use serde_json::Value;

use crate::service::table::load_balancer_addresses;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static INGRESS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    validate: validation::check_ingress,
    validate_create: validation::check_new_ingress,
    validate_status: validation::check_ingress_status,
    columns: INGRESSES,
    ..KindStrategy::DEFAULT
};

pub(crate) static INGRESS_CLASS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    validate: |class| validation::check_ingress_class(class.at("spec")),
    immutable_fields: &[fixed_field("spec.controller")],
    columns: INGRESS_CLASSES,
    ..KindStrategy::DEFAULT
};

const INGRESSES: &[Column] = &[
    NAME,
    string_column("Class", "The class that serves it.", |ingress, _| {
        string_cell_or(ingress, &["spec", "ingressClassName"], "<none>")
    }),
    string_column("Hosts", "The hosts it answers for.", |ingress, _| ingress_hosts(ingress).into()),
    string_column("Address", "Where it is reached.", |ingress, _| load_balancer_addresses(ingress).into()),
    string_column("Ports", "The ports it listens on.", |ingress, _| {
        if unstructured::list(ingress, &["spec", "tls"]).is_empty() { "80".into() } else { "80, 443".into() }
    }),
    AGE,
];

/// The hosts of three rules; the rest is counted over all rules, as in Kubernetes.
fn ingress_hosts(ingress: &JsonObject) -> String {
    const SHOWN_MAX: usize = 3;
    let rules = unstructured::list(ingress, &["spec", "rules"]).len();
    let named = objects(ingress, &["spec", "rules"]).map(|rule| unstructured::text(rule, &["host"]));
    let mut shown = Vec::new();
    let mut is_cut = false;
    for host in named {
        if shown.len() == SHOWN_MAX {
            is_cut = true;
            break;
        }
        if !host.is_empty() {
            shown.push(host);
        }
    }
    match shown.join(",") {
        none if none.is_empty() => "*".to_owned(),
        shown if is_cut => format!("{shown} + {} more...", rules - SHOWN_MAX),
        shown => shown,
    }
}

const INGRESS_CLASSES: &[Column] = &[
    Column {
        format: "name",
        ..string_column("Name", "The name of the object.", |class, _| {
            name_with_default_mark(class, &["ingressclass.kubernetes.io/is-default-class"])
        })
    },
    string_column("Controller", "What serves it.", |class, _| string_cell(class, &["spec", "controller"])),
    string_column("Parameters", "Where its parameters are.", |class, _| {
        let Some(parameters) = unstructured::nested_object(class, &["spec", "parameters"]) else {
            return "<none>".into();
        };
        let group = unstructured::text(parameters, &["apiGroup"]);
        let kind = api::GroupKind { group, kind: unstructured::text(parameters, &["kind"]) };
        format!("{kind}/{}", unstructured::text(parameters, &["name"])).into()
    }),
    AGE,
];

/// The name, with a mark if an annotation makes the object the default of its kind.
pub(crate) fn name_with_default_mark(object: &JsonObject, annotations: &[&str]) -> Value {
    let name = metadata_string(object, "name");
    let is_set = |annotation: &&str| unstructured::text(object, &["metadata", "annotations", annotation]) == "true";
    if annotations.iter().any(is_set) { format!("{name} (default)").into() } else { name.into() }
}

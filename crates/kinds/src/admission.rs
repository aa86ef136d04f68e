//! Admission webhooks, admission policies and their bindings.

mod matching;
mod policies;
mod webhooks;

use api::json::JsonObject;
use object::KindRules;
use object::rules::{GenerationRule, StatusSubresource};
use object::table::cells::{AGE, NAME, count_at, integer_column, string_cell, string_column};
use object::table::{Column, cells};
use object::unstructured;
use serde_json::Value;

use crate::reset_fields;
use crate::strategy::{AdmissionObject, KindStrategy, RULES};

/// Of webhooks, policies and bindings.
const RULES_OF_POLICIES: KindRules =
    KindRules { generation: GenerationRule::Counted, allows_unconditional_update: false, ..RULES };

pub(crate) static WEBHOOK_STRATEGY: KindStrategy = KindStrategy {
    allows_any_finalizer: true,
    rules: RULES_OF_POLICIES,
    validate: webhooks::check_webhooks,
    columns: WEBHOOKS,
    admission: Some(AdmissionObject::Webhooks),
    ..KindStrategy::DEFAULT
};

pub(crate) static VALIDATING_POLICY_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    allows_any_finalizer: true,
    rules: KindRules { status: StatusSubresource::StatusOnly, ..RULES_OF_POLICIES },
    validate: policies::check_validating_policy,
    validate_status: policies::check_policy_status,
    columns: VALIDATING_POLICIES,
    admission: Some(AdmissionObject::Policy),
    ..KindStrategy::DEFAULT
};

pub(crate) static MUTATING_POLICY_STRATEGY: KindStrategy = KindStrategy {
    allows_any_finalizer: true,
    rules: RULES_OF_POLICIES,
    validate: policies::check_mutating_policy,
    columns: MUTATING_POLICIES,
    admission: Some(AdmissionObject::Policy),
    ..KindStrategy::DEFAULT
};

pub(crate) static VALIDATING_BINDING_STRATEGY: KindStrategy = KindStrategy {
    validate: policies::check_validating_binding,
    admission: Some(AdmissionObject::Binding { policies: "validatingadmissionpolicies" }),
    ..BINDING_STRATEGY
};

pub(crate) static MUTATING_BINDING_STRATEGY: KindStrategy = KindStrategy {
    validate: policies::check_mutating_binding,
    admission: Some(AdmissionObject::Binding { policies: "mutatingadmissionpolicies" }),
    ..BINDING_STRATEGY
};

const BINDING_STRATEGY: KindStrategy =
    KindStrategy { allows_any_finalizer: true, rules: RULES_OF_POLICIES, columns: BINDINGS, ..KindStrategy::DEFAULT };

const WEBHOOKS: &[Column] =
    &[NAME, integer_column("Webhooks", "How many there are.", |hooks, _| count_at(hooks, &["webhooks"]).into()), AGE];

const PARAMETER_KIND: Column = string_column("ParamKind", "The kind of its parameters.", |policy, _| {
    let Some(kind) = unstructured::nested_object(policy, &["spec", "paramKind"]) else { return "<unset>".into() };
    format!("{}/{}", unstructured::text(kind, &["apiVersion"]), unstructured::text(kind, &["kind"])).into()
});

const VALIDATING_POLICIES: &[Column] = &[
    NAME,
    integer_column("Validations", "How many rules it has.", |policy, _| {
        count_at(policy, &["spec", "validations"]).into()
    }),
    PARAMETER_KIND,
    AGE,
];

const MUTATING_POLICIES: &[Column] = &[
    NAME,
    integer_column("Mutations", "How many rules it has.", |policy, _| count_at(policy, &["spec", "mutations"]).into()),
    PARAMETER_KIND,
    AGE,
];

const BINDINGS: &[Column] = &[
    NAME,
    string_column("PolicyName", "The policy it binds.", |binding, _| string_cell(binding, &["spec", "policyName"])),
    string_column("ParamRef", "The parameters it uses.", |binding, _| param_ref_cell(binding)),
    AGE,
];

fn param_ref_cell(binding: &JsonObject) -> Value {
    let field = |name: &str| unstructured::text(binding, &["spec", "paramRef", name]);
    match (field("namespace"), field("name")) {
        (_, "") if unstructured::nested_object(binding, &["spec", "paramRef", "selector"]).is_some() => {
            cells::selector_text(binding, &["spec", "paramRef", "selector"]).into()
        }
        (_, "") => "<unset>".into(),
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

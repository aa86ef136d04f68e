//! What is asked before a request is admitted, and how requests share the server.

use api::json::JsonObject;
use serde_json::Value;

use super::Column;
use super::cells::{
    AGE, NAME, count_at, find_condition, integer_cell, integer_column, string_cell, string_cell_or, string_column,
};
use crate::unstructured;

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "ValidatingAdmissionPolicy" => VALIDATING_POLICIES,
        "MutatingAdmissionPolicy" => MUTATING_POLICIES,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => BINDINGS,
        "FlowSchema" => FLOW_SCHEMAS,
        "PriorityLevelConfiguration" => PRIORITY_LEVELS,
        _ => return None,
    })
}

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
            super::cells::selector_text(binding, &["spec", "paramRef", "selector"]).into()
        }
        (_, "") => "<unset>".into(),
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

const FLOW_SCHEMAS: &[Column] = &[
    NAME,
    string_column("PriorityLevel", "The level of its requests.", |schema, _| {
        string_cell(schema, &["spec", "priorityLevelConfiguration", "name"])
    }),
    string_column("MatchingPrecedence", "Lower comes first.", |schema, _| {
        integer_cell(schema, &["spec", "matchingPrecedence"])
    }),
    string_column("DistinguisherMethod", "What makes a flow.", |schema, _| {
        string_cell_or(schema, &["spec", "distinguisherMethod", "type"], "<none>")
    }),
    AGE,
    string_column("MissingPL", "Whether its level is missing.", |schema, _| {
        find_condition(schema, "Dangling").map_or_else(|| "?".into(), |condition| string_cell(condition, &["status"]))
    }),
];

const PRIORITY_LEVELS: &[Column] = &[
    NAME,
    string_column("Type", "Whether it is limited.", |level, _| string_cell(level, &["spec", "type"])),
    string_column("NominalConcurrencyShares", "Its share of the server.", |level, _| {
        integer_cell_or_none(level, &["spec", "limited", "nominalConcurrencyShares"])
    }),
    string_column("Queues", "How many queues it has.", |level, _| integer_cell_or_none(level, &queuing_path("queues"))),
    string_column("HandSize", "How many queues a flow may use.", |level, _| {
        integer_cell_or_none(level, &queuing_path("handSize"))
    }),
    string_column("QueueLengthLimit", "How many requests wait in a queue.", |level, _| {
        integer_cell_or_none(level, &queuing_path("queueLengthLimit"))
    }),
    AGE,
];

fn queuing_path(field: &str) -> [&str; 5] {
    ["spec", "limited", "limitResponse", "queuing", field]
}

fn integer_cell_or_none(object: &JsonObject, path: &[&str]) -> Value {
    unstructured::integer(object, path).map_or_else(|| "<none>".into(), Value::from)
}

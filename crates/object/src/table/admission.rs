//! What is asked before a request is admitted, and how requests share the server.

use serde_json::Value;

use super::Column;
use super::cells::{AGE, NAME, condition, count_at, number, number_at, text, text_at, text_or};
use crate::access::{self, Object};

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
    &[NAME, number("Webhooks", "How many there are.", |hooks, _| count_at(hooks, &["webhooks"]).into()), AGE];

const PARAMETER_KIND: Column = text("ParamKind", "The kind of its parameters.", |policy, _| {
    let Some(kind) = access::part(policy, &["spec", "paramKind"]) else { return "<unset>".into() };
    format!("{}/{}", access::text(kind, &["apiVersion"]), access::text(kind, &["kind"])).into()
});

const VALIDATING_POLICIES: &[Column] = &[
    NAME,
    number("Validations", "How many rules it has.", |policy, _| count_at(policy, &["spec", "validations"]).into()),
    PARAMETER_KIND,
    AGE,
];

const MUTATING_POLICIES: &[Column] = &[
    NAME,
    number("Mutations", "How many rules it has.", |policy, _| count_at(policy, &["spec", "mutations"]).into()),
    PARAMETER_KIND,
    AGE,
];

const BINDINGS: &[Column] = &[
    NAME,
    text("PolicyName", "The policy it binds.", |binding, _| text_at(binding, &["spec", "policyName"])),
    text("ParamRef", "The parameters it uses.", |binding, _| parameters(binding)),
    AGE,
];

fn parameters(binding: &Object) -> Value {
    let field = |name: &str| access::text(binding, &["spec", "paramRef", name]);
    match (field("namespace"), field("name")) {
        (_, "") if access::part(binding, &["spec", "paramRef", "selector"]).is_some() => {
            super::cells::selector(binding, &["spec", "paramRef", "selector"]).into()
        }
        (_, "") => "<unset>".into(),
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

const FLOW_SCHEMAS: &[Column] = &[
    NAME,
    text("PriorityLevel", "The level of its requests.", |schema, _| {
        text_at(schema, &["spec", "priorityLevelConfiguration", "name"])
    }),
    text("MatchingPrecedence", "Lower comes first.", |schema, _| number_at(schema, &["spec", "matchingPrecedence"])),
    text("DistinguisherMethod", "What makes a flow.", |schema, _| {
        text_or(schema, &["spec", "distinguisherMethod", "type"], "<none>")
    }),
    AGE,
    text("MissingPL", "Whether its level is missing.", |schema, _| {
        condition(schema, "Dangling").map_or_else(|| "?".into(), |condition| text_at(condition, &["status"]))
    }),
];

const PRIORITY_LEVELS: &[Column] = &[
    NAME,
    text("Type", "Whether it is limited.", |level, _| text_at(level, &["spec", "type"])),
    text("NominalConcurrencyShares", "Its share of the server.", |level, _| {
        number_or_none(level, &["spec", "limited", "nominalConcurrencyShares"])
    }),
    text("Queues", "How many queues it has.", |level, _| number_or_none(level, &queuing("queues"))),
    text("HandSize", "How many queues a flow may use.", |level, _| number_or_none(level, &queuing("handSize"))),
    text("QueueLengthLimit", "How many requests wait in a queue.", |level, _| {
        number_or_none(level, &queuing("queueLengthLimit"))
    }),
    AGE,
];

fn queuing(field: &str) -> [&str; 5] {
    ["spec", "limited", "limitResponse", "queuing", field]
}

fn number_or_none(object: &Object, path: &[&str]) -> Value {
    access::integer(object, path).map_or_else(|| "<none>".into(), Value::from)
}

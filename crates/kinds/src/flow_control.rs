//! Flow schemas and priority levels.

mod validation;

use api::json::JsonObject;
use object::KindRules;
use object::rules::{GenerationRule, StatusSubresource};
use object::table::Column;
use object::table::cells::{AGE, NAME, find_condition, integer_cell, string_cell, string_cell_or, string_column};
use object::unstructured;
use serde_json::Value;

use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES};

pub(crate) static FLOW_SCHEMA_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules { generation: GenerationRule::Counted, status: StatusSubresource::StatusOnly, ..RULES },
    validate: validation::check_flow_schema,
    validate_status: |schema, _| validation::check_conditions(schema.at("status")),
    columns: FLOW_SCHEMAS,
    ..KindStrategy::DEFAULT
};

pub(crate) static PRIORITY_LEVEL_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules { generation: GenerationRule::Counted, status: StatusSubresource::StatusOnly, ..RULES },
    validate: validation::check_priority_level,
    validate_status: |level, _| validation::check_conditions(level.at("status")),
    columns: PRIORITY_LEVELS,
    ..KindStrategy::DEFAULT
};

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

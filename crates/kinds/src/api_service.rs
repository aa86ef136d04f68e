//! API services.

use object::KindRules;
use object::rules::StatusSubresource;
use object::table::Column;
use object::table::cells::{AGE, NAME, find_condition, string_column};
use object::unstructured;

use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    allows_any_finalizer: true,
    rules: KindRules { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..RULES },
    columns: API_SERVICES,
    ..KindStrategy::DEFAULT
};

const API_SERVICES: &[Column] = &[
    NAME,
    string_column("Service", "What serves it.", |service, _| {
        let Some(reference) = unstructured::nested_object(service, &["spec", "service"]) else { return "Local".into() };
        format!("{}/{}", unstructured::text(reference, &["namespace"]), unstructured::text(reference, &["name"])).into()
    }),
    string_column("Available", "Whether it answers.", |service, _| {
        let Some(condition) = find_condition(service, "Available") else { return "Unknown".into() };
        match (unstructured::text(condition, &["status"]), unstructured::text(condition, &["reason"])) {
            (status @ "True", _) | (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})").into(),
        }
    }),
    AGE,
];

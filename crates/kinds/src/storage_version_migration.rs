//! Storage version migrations.

use object::KindRules;
use object::rules::StatusSubresource;
use object::table::Column;
use object::table::cells::{NAME, string_cell, string_column};
use object::unstructured;
use object::unstructured::objects;

use crate::release::Release::*;
use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..RULES },
    immutable_fields: &[
        fixed_field("spec.resource.group").displayed_as("group").until(R35),
        fixed_field("spec.resource.version").displayed_as("version").until(R35),
        fixed_field("spec.resource.resource").displayed_as("resource").until(R35),
        fixed_field("spec").since(R35),
    ],
    columns: MIGRATIONS,
    ..KindStrategy::DEFAULT
};

const MIGRATIONS: &[Column] = &[
    Column { format: "", ..NAME },
    string_column("Resource", "What is migrated.", |migration, _| {
        let field = |name: &str| unstructured::text(migration, &["spec", "resource", name]);
        api::GroupResource { group: field("group"), resource: field("resource") }.to_string().into()
    }),
    string_column("Status", "How far it is.", |migration, _| {
        let mut conditions = objects(migration, &["status", "conditions"]).collect::<Vec<_>>().into_iter().rev();
        let known = conditions.find(|condition| {
            unstructured::text(condition, &["status"]) == "True"
                && matches!(unstructured::text(condition, &["type"]), "Running" | "Failed" | "Succeeded")
        });
        known.map_or_else(|| "Unknown".into(), |condition| string_cell(condition, &["type"]))
    }),
];

//! Controller revisions.

use api::json::JsonObject;
use object::table::Column;
use object::table::cells::{AGE, NAME, integer_cell, string_column};
use object::unstructured;
use object::unstructured::objects;
use serde_json::Value;

use crate::strategy::KindStrategy;
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    validate: |revision| revision.at("revision").not_negative(),
    validate_create: |revision| match revision.at("data").value() {
        None => revision.at("data").required("data is mandatory"),
        Some(Value::Object(_)) => {}
        Some(_) => revision.at("data").required("data must be a valid JSON object"),
    },
    immutable_fields: &[fixed_field("data")],
    columns: REVISIONS,
    ..KindStrategy::DEFAULT
};

const REVISIONS: &[Column] = &[
    NAME,
    string_column("Controller", "What it is a revision of.", |revision, _| {
        let mut owners = objects(revision, &["metadata", "ownerReferences"]);
        let controller = owners.find(|owner| unstructured::flag(owner, &["controller"]));
        controller.map_or_else(|| "<none>".into(), |owner| owner_name(owner).into())
    }),
    string_column("Revision", "Its number.", |revision, _| integer_cell(revision, &["revision"])),
    AGE,
];

/// The owner as kind, group and name: `deployment.apps/web`.
fn owner_name(owner: &JsonObject) -> String {
    let group = unstructured::text(owner, &["apiVersion"]).rsplit_once('/').map_or("", |(group, _)| group);
    let kind = unstructured::text(owner, &["kind"]);
    let kind = api::GroupKind { group, kind }.to_string().to_lowercase();
    format!("{kind}/{}", unstructured::text(owner, &["name"]))
}

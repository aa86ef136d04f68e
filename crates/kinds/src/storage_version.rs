//! StorageVersions: names identify a resource, and entries must be consistent.

mod validation;

use api::json::JsonObject;
use api::objects::StorageVersionStatus;
use object::KindRules;
use object::rules::{NameRule, StatusSubresource};
use object::table::Column;
use object::table::cells::{AGE, NAME, first_few_cell, string_cell_or, string_column};
use object::unstructured::objects;
use object::{Rejection, unstructured};

use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES, SubresourceStrategy};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules {
        name_rule: NameRule::PathSegment,
        status: StatusSubresource::StatusOnly,
        allows_unconditional_update: false,
        ..RULES
    },
    // `prepare_for_create` checks the name by a rule of its own.
    prepare_for_create: |_, version| prepare_for_create(version),
    subresources: &[SubresourceStrategy::status(|_, version, _| validate_status(version))],
    columns: STORAGE_VERSIONS,
    ..KindStrategy::DEFAULT
};

/// Initializes a new object, and rejects a name, or the beginning of a generated one, that is not `<group>.<resource>`.
/// Metadata validation rejects an absent name.
fn prepare_for_create(object: &mut JsonObject) -> Result<(), Rejection> {
    for part in ["spec", "status"] {
        object.entry(part).or_insert_with(|| JsonObject::new().into());
    }
    let names = ["generateName", "name"].map(|field| (field, unstructured::metadata_string(object, field)));
    let given = names.into_iter().filter(|(_, name)| !name.is_empty());
    let errors = given.flat_map(|(field, name)| validation::validate_name(&format!("metadata.{field}"), name));
    Rejection::ensure_no_errors(errors.collect())
}

/// Rejects an invalid status.
fn validate_status(object: &JsonObject) -> Result<(), Rejection> {
    let status = object.get("status").cloned().unwrap_or_default();
    let status: Option<StorageVersionStatus> =
        serde_json::from_value(status).map_err(|error| Rejection::BadRequest(error.to_string()))?;
    Rejection::ensure_no_errors(validation::validate_status(&status.unwrap_or_default()))
}

const STORAGE_VERSIONS: &[Column] = &[
    NAME,
    string_column("CommonEncodingVersion", "The version that all servers write.", |version, _| {
        string_cell_or(version, &["status", "commonEncodingVersion"], "<unset>")
    }),
    string_column("StorageVersions", "The version that each server writes.", |version, _| {
        first_few_cell(
            objects(version, &["status", "storageVersions"]).map(|server| {
                let field = |name: &str| unstructured::text(server, &[name]);
                format!("{}={}", field("apiServerID"), field("encodingVersion"))
            }),
            "<unset>",
        )
    }),
    AGE,
];

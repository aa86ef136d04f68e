//! Rules that an update need not satisfy because the stored definition does not satisfy them either.

use std::collections::HashSet;

use api::json::JsonObject;

use crate::rules::StoredExpressions;

use super::conversion::{ConversionRules, has_invalid_ca_bundle, has_recognized_review_version};
use super::error_list::ErrorList;
use super::internal_form::{InternalSpec, VersionFields, are_same_schemas, are_same_selectable_fields};
use super::json_fields::{object, objects, text};
use super::list_types::{check_items_of_set_or_map, non_atomic_items};
use super::structural::is_structural;
use super::views::SELECTABLE_FIELDS_MAX;
use super::{SCHEMA_TYPES, ValidationOptions, defaults};

/// From this release on, unchanged selectable fields may be too many.
const SELECTABLE_FIELDS_KEPT_SINCE: u8 = 35;

/// What a new state must satisfy.
#[derive(Clone, Debug)]
pub(super) struct Requirements {
    /// Every version has a schema.
    pub(super) schema: bool,
    /// Types are those of OpenAPI v3.
    pub(super) valid_types: bool,
    pub(super) structural: bool,
    /// Defaults have no unknown fields.
    pub(super) pruned_defaults: bool,
    /// The items of sets are atomic.
    pub(super) atomic_sets: bool,
    /// Keys of list maps always have a value.
    pub(super) list_map_keys: bool,
    /// Scope and kind stay.
    pub(super) immutable_names: bool,
    pub(super) conversion: ConversionRules,
    pub(super) unchanged: Unchanged,
}

/// What an update leaves as it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Unchanged {
    /// Versions whose schema is unchanged: the cost of a single rule is not limited.
    pub(super) schemas: HashSet<String>,
    /// Versions that had too many selectable fields before; the empty name stands for fields that all versions share.
    pub(super) too_many_selectable_fields: HashSet<String>,
    pub(super) expressions: StoredExpressions,
}

impl Requirements {
    /// What a new definition must satisfy.
    pub(super) fn of_create() -> Self {
        Self {
            schema: true,
            valid_types: true,
            structural: true,
            pruned_defaults: true,
            atomic_sets: true,
            list_map_keys: true,
            immutable_names: false,
            conversion: ConversionRules { requires_recognized_review_version: true, allows_invalid_ca_bundle: true },
            unchanged: Unchanged::default(),
        }
    }

    /// What an update of the stored definition must satisfy.
    pub(super) fn of_update(
        old_definition: &JsonObject,
        old: &InternalSpec<'_>,
        new: &InternalSpec<'_>,
        options: &ValidationOptions,
    ) -> Self {
        let is_established = is_established(old_definition);
        let has_schema =
            old.shared.schema().is_some() || old.versions.iter().all(|version| version.fields.schema().is_some());
        Self {
            schema: has_schema,
            valid_types: !old
                .has_node(&|node| !node.schema_type().is_empty() && !SCHEMA_TYPES.contains(&node.schema_type())),
            structural: old.schemas().all(|schema| is_structural(schema, options.minor)),
            pruned_defaults: !old.schema_values().any(|schema| defaults::has_unpruned_defaults(schema, options.minor)),
            atomic_sets: !old.has_node(&|node| non_atomic_items(node).is_some()),
            list_map_keys: !old.has_node(&|node| {
                let mut errors = ErrorList::default();
                check_items_of_set_or_map(&mut errors, node, "");
                !errors.is_empty()
            }),
            immutable_names: is_established,
            conversion: ConversionRules {
                requires_recognized_review_version: has_recognized_review_version(old.spec),
                allows_invalid_ca_bundle: !is_established || has_invalid_ca_bundle(old.spec),
            },
            unchanged: Unchanged::between(old, new, options),
        }
    }
}

impl Unchanged {
    fn between(old: &InternalSpec<'_>, new: &InternalSpec<'_>, options: &ValidationOptions) -> Self {
        let mut unchanged = Self::default();
        for version in &new.versions {
            if let (Some(old), Some(new)) = (old.schema_of(version.name()), new.schema_of(version.name()))
                && are_same_schemas(old, new)
            {
                unchanged.schemas.insert(version.name().to_owned());
            }
        }
        if options.minor >= SELECTABLE_FIELDS_KEPT_SINCE {
            unchanged.note_selectable_fields("", &old.shared, &new.shared);
            for version in &new.versions {
                let same_name = old.versions.iter().rev().find(|candidate| candidate.name() == version.name());
                if let Some(old) = same_name {
                    unchanged.note_selectable_fields(version.name(), &old.fields, &version.fields);
                }
            }
        }
        old.schema_values().for_each(|schema| unchanged.expressions.add_schema(schema));
        unchanged
    }

    fn note_selectable_fields(&mut self, version: &str, old: &VersionFields<'_>, new: &VersionFields<'_>) {
        if old.selectable_fields().len() > SELECTABLE_FIELDS_MAX && are_same_selectable_fields(old, new) {
            self.too_many_selectable_fields.insert(version.to_owned());
        }
    }
}

/// True if the stored definition is established.
pub(super) fn is_established(definition: &JsonObject) -> bool {
    object(definition, "status").is_some_and(|status| {
        objects(status, "conditions")
            .any(|condition| text(condition, "type") == "Established" && text(condition, "status") == "True")
    })
}

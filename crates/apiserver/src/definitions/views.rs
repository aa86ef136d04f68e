//! What watches show of a version, and when that ends with an edit of the definition.
//!
//! An edit that changes the form of objects ends the watches of a version, as in kube-apiserver: the stream ends without
//! an error, and the client continues with a new watch. Other edits, of labels or descriptions of another version for
//! example, leave watches alone.

use std::sync::{Arc, OnceLock};

use api::json::JsonObject;
use apiextensions::Definition;
use apiextensions::definition::{DefinitionVersion, SchemaJson};
use serde_json::Value;
use store::Revision;
use tokio_util::sync::CancellationToken;

use super::LiveDefinition;

/// The views of one version.
#[derive(Clone, Debug)]
pub(crate) struct VersionViews {
    /// The form of objects.
    pub(crate) objects: Arc<View>,
    /// The form of objects, the columns of tables, and the fields that selectors may name.
    pub(crate) details: Arc<View>,
}

/// A form in which watches show objects. Shared by all states of a definition that have it.
#[derive(Debug, Default)]
pub(crate) struct View {
    ended_at: OnceLock<Revision>,
    ended: CancellationToken,
}

impl View {
    /// The revision of the edit that ended the view; `None` while it lasts. Known before the edited definition is served.
    pub(crate) fn ended_at(&self) -> Option<Revision> {
        self.ended_at.get().copied()
    }

    /// Waits for the end. The edited definition is served by then.
    pub(crate) async fn wait_until_ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends the wait of [`Self::wait_until_ended`].
    pub(super) fn notify(&self) {
        self.ended.cancel();
    }
}

/// The views of a new state of a definition: those of the previous state that show the same, and new ones.
pub(super) fn views_of(definition: &Definition, previous: Option<&LiveDefinition>) -> Vec<VersionViews> {
    let versions = definition.spec.versions.iter();
    let views = versions.map(|version| {
        let known = previous.and_then(|previous| Some((previous, position_of(&previous.definition, &version.name)?)));
        let Some((known, position)) = known.filter(|(known, _)| shows_same_objects(&known.definition, definition))
        else {
            return VersionViews { objects: Arc::default(), details: Arc::default() };
        };
        let (before, views) = (&known.definition.spec.versions[position], known.views(position));
        if before.served != version.served {
            return VersionViews { objects: Arc::default(), details: Arc::default() };
        }
        let details = if has_same_details(before, version) { views.details.clone() } else { Arc::default() };
        VersionViews { objects: views.objects.clone(), details }
    });
    views.collect()
}

/// Marks the views of `known` as ended that its next state does not have; `None` if the definition is gone.
pub(super) fn end_replaced(
    known: &LiveDefinition,
    next: Option<&LiveDefinition>,
    ended_at: Revision,
) -> Vec<Arc<View>> {
    let lasting: Vec<&Arc<View>> =
        next.iter().flat_map(|next| &next.views).flat_map(|views| [&views.objects, &views.details]).collect();
    let views = known.views.iter().flat_map(|views| [&views.objects, &views.details]);
    let ended = views.filter(|view| !lasting.iter().any(|lasting| Arc::ptr_eq(lasting, view)));
    ended.inspect(|view| _ = view.ended_at.set(ended_at)).cloned().collect()
}

fn position_of(definition: &Definition, version: &str) -> Option<usize> {
    definition.spec.versions.iter().position(|known| known.name == version)
}

/// True if every object that `before` could show looks the same under `after`, in every version. An object may be stored
/// in any version, so the schemas of all of them count; a new version changes nothing.
fn shows_same_objects(before: &Definition, after: &Definition) -> bool {
    let names = |definition: &Definition| {
        let names = &definition.status.accepted_names;
        (names.kind.clone(), names.list_kind.clone())
    };
    let (old, new) = (&before.spec, &after.spec);
    before.metadata.uid == after.metadata.uid
        && (before.metadata.generation == after.metadata.generation && after.metadata.generation > 0
            || old.scope == new.scope
                && old.preserve_unknown_fields == new.preserve_unknown_fields
                && old.conversion == new.conversion
                && old.versions.iter().all(|version| {
                    after
                        .version(&version.name)
                        .is_some_and(|same| gives_same_form(&schema_of(version), &schema_of(same)))
                }))
        && before.is_served() == after.is_served()
        && names(before) == names(after)
}

fn schema_of(version: &DefinitionVersion) -> Value {
    version.schema.open_api_v3_schema.as_ref().map_or(Value::Null, SchemaJson::to_value)
}

/// The parts of a schema that decide about the form of objects, beside those of nested schemas: all others only describe
/// or validate.
const FORM_FIELDS: [&str; 5] =
    ["type", "nullable", "default", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"];

/// True if two schemas prune and default every object alike.
fn gives_same_form<'s>(a: &'s Value, b: &'s Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let nested = |name: &str| match (a.get(name), b.get(name)) {
        (None, None) => true,
        (Some(a), Some(b)) => gives_same_form(a, b),
        (Some(_), None) | (None, Some(_)) => false,
    };
    let properties = |schema: &'s JsonObject| schema.get("properties").and_then(Value::as_object);
    let has_same_properties = match (properties(a), properties(b)) {
        (Some(a), Some(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, schema)| b.get(name).is_some_and(|same| gives_same_form(schema, same)))
        }
        (a, b) => a.is_none() && b.is_none(),
    };
    FORM_FIELDS.iter().all(|name| a.get(*name) == b.get(*name))
        && has_same_properties
        && nested("items")
        && nested("additionalProperties")
}

fn has_same_details(before: &DefinitionVersion, after: &DefinitionVersion) -> bool {
    before.additional_printer_columns == after.additional_printer_columns
        && before.selectable_fields == after.selectable_fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn descriptions_and_validations_do_not_change_the_form_of_objects() {
        let schema =
            |spec: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
        let before =
            schema(json!({"size": {"type": "string", "maxLength": 3}, "n": {"type": "integer", "default": 1}}));
        for (spec, is_same) in [
            (
                json!({"size": {"type": "string", "maxLength": 9, "description": "x"}, "n": {"type": "integer", "default": 1}}),
                true,
            ),
            (json!({"size": {"type": "string"}, "n": {"type": "integer", "default": 2}}), false),
            (json!({"size": {"type": "string"}, "n": {"type": "integer"}}), false),
            (
                json!({"size": {"type": "string"}, "n": {"type": "integer", "default": 1}, "m": {"type": "string"}}),
                false,
            ),
            (json!({"size": {"type": "string", "nullable": true}, "n": {"type": "integer", "default": 1}}), false),
            (
                json!({"size": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer", "default": 1}}),
                false,
            ),
        ] {
            assert_eq!(gives_same_form(&before, &schema(spec.clone())), is_same, "{spec}");
        }
        assert!(!gives_same_form(&before, &Value::Null));
        let items = |item: Value| json!({"type": "array", "items": item});
        assert!(!gives_same_form(&items(json!({"type": "string"})), &items(json!({"type": "integer"}))));
        let values = |value: Value| json!({"type": "object", "additionalProperties": value});
        assert!(!gives_same_form(&values(json!(true)), &values(json!({"type": "string"}))));
    }
}

//! Custom resource definitions.

mod conversion;

use api::FieldError;
use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use serde_json::{Value, json};

use crate::fields::{list_items, object_field_mut, objects_mut, set_if_absent, set_if_empty, string_field};
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    allows_any_finalizer: true,
    rules: KindRules { generation: GenerationRule::Counted, allows_unconditional_update: false, ..RULES },
    validate_update: |definition, _| check_update(definition),
    immutable_fields: &[fixed_field("spec.group"), fixed_field("spec.names.plural")],
    conversion: |from, to| match (from.version, to.version) {
        ("v1beta1", "v1") => Some(conversion::v1beta1_to_v1),
        ("v1", "v1beta1") => Some(conversion::v1_to_v1beta1),
        _ => None,
    },
    ..KindStrategy::DEFAULT
};

/// Once a definition is established, its scope and kind are immutable.
fn check_update(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let is_established = list_items(update.old_value("status.conditions")).iter().any(|condition| {
        condition.get("type").is_some_and(|kind| kind == "Established")
            && condition.get("status").is_some_and(|status| status == "True")
    });
    let fixed =
        ["spec.scope", "spec.names.kind"].into_iter().filter(|path| is_established && !update.is_unchanged(path));
    fixed.map(|path| FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE)).collect()
}

pub(crate) fn set_custom_resource_definition_defaults(definition: &mut JsonObject) {
    let Some(spec) = object_field_mut(definition, "spec") else { return };
    if let Some(names) = object_field_mut(spec, "names") {
        let kind = string_field(names, "kind").to_owned();
        if !kind.is_empty() {
            set_if_empty(names, "singular", kind.to_lowercase());
            set_if_empty(names, "listKind", format!("{kind}List"));
        }
    }
    set_if_absent(spec, "conversion", json!({"strategy": "None"}));
    let is_stored = |version: &&mut JsonObject| version.get("storage").and_then(Value::as_bool) == Some(true);
    let stored = objects_mut(spec, "versions").find(is_stored).and_then(|version| version.get("name").cloned());
    if let Some(stored) = stored
        && let Some(status) = object_field_mut(definition, "status")
    {
        set_if_empty(status, "storedVersions", json!([stored]));
    }
}

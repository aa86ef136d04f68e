//! Custom resource definitions. Their rules are those of [`apiextensions`].

mod conversion;

use api::FieldError;
use api::json::JsonObject;
use api::time::Time;
use apiextensions::lifecycle;
use apiextensions::validation::{self, ValidationOptions};
use object::KindRules;
use object::delete::DeleteOutcome;
use object::rules::GenerationRule;
use object::unstructured::metadata_string;

use crate::feature_gates::FeatureGates;
use crate::strategy::{KindStrategy, LENIENT_RULES};
use crate::types::object_meta_of;
use crate::update_validation::ObjectUpdate;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    allows_any_finalizer: true,
    rules: KindRules { generation: GenerationRule::Counted, allows_unconditional_update: false, ..LENIENT_RULES },
    prepare_for_create: |_, definition| {
        lifecycle::set_initial_status(definition);
        Ok(())
    },
    prepare_for_update: |_, definition| {
        lifecycle::add_stored_version(definition);
        Ok(())
    },
    adjust_deletion,
    validate_create: |definition| {
        let errors = definition.object().map(|new| validation::validate_definition(new, &options(definition.gates())));
        errors.into_iter().flatten().for_each(|error| definition.add_error(error));
    },
    validate_update,
    warnings: |gates, old, new| validation::warnings(old, new, &options(gates)),
    conversion: |from, to| match (from.version, to.version) {
        ("v1beta1", "v1") => Some(conversion::v1beta1_to_v1),
        ("v1", "v1beta1") => Some(conversion::v1_to_v1beta1),
        _ => None,
    },
    ..KindStrategy::DEFAULT
};

fn options(gates: &FeatureGates) -> ValidationOptions {
    ValidationOptions { minor: gates.release().minor(), object_meta: object_meta_of(gates.release()) }
}

fn validate_update(update: ObjectUpdate<'_>, subresource: &str) -> Vec<FieldError> {
    match subresource {
        "status" => validation::validate_definition_status_update(update.new),
        _ => validation::validate_definition_update(update.old, update.new, &options(update.gates)),
    }
}

/// The first deletion only marks a definition, whatever its finalizers and the options of the request: its objects go
/// first. Kubernetes deletes a collection of definitions at once and leaves their objects in storage; here they go too.
fn adjust_deletion(definition: &JsonObject, outcome: DeleteOutcome, now: Time) -> DeleteOutcome {
    if !metadata_string(definition, "deletionTimestamp").is_empty() {
        return outcome;
    }
    let mut marked = definition.clone();
    lifecycle::begin_deletion(&mut marked, now);
    DeleteOutcome::Mark(marked)
}

pub(crate) fn set_custom_resource_definition_defaults(definition: &mut JsonObject) {
    lifecycle::set_defaults(definition);
}

#[cfg(test)]
mod tests;

//! Validation of values in new and updated objects, in Kubernetes' words.
//!
//! Objects must have passed [`schema::check_types`] and have their defaults. The rules are those of the kinds, in the
//! vocabulary of `validation`.

use api::FieldError;
use api::json::JsonObject;
use object::validate::validate_finalizer_names;

use crate::feature_gates::FeatureGates;
use crate::strategy::KindStrategy;
use crate::validation::{Field, Report};

/// The invalid values of a new object.
pub fn validate_create(strategy: &KindStrategy, gates: &FeatureGates, object: &JsonObject) -> Vec<FieldError> {
    let report = Report::new(gates);
    check_finalizers(strategy, report.root(object));
    (strategy.validate)(report.root(object));
    (strategy.validate_create)(report.root(object));
    report.take_errors()
}

/// The invalid values of an object, whether it is new or not.
pub fn validate_object(strategy: &KindStrategy, gates: &FeatureGates, object: &JsonObject) -> Vec<FieldError> {
    let report = Report::new(gates);
    (strategy.validate)(report.root(object));
    report.take_errors()
}

/// The invalid values of an updated object, apart from those that the stored object has as well: another server or
/// release accepted them. `subresource` is the one through which the update came; empty: the object itself.
pub fn validate_values(
    strategy: &KindStrategy,
    gates: &FeatureGates,
    subresource: &str,
    [old, new]: [&JsonObject; 2],
) -> Vec<FieldError> {
    let report = Report::new(gates);
    check_finalizers(strategy, report.root(new));
    if STATUS_SUBRESOURCES.contains(&subresource) {
        (strategy.validate_status)(report.root(new), report.root(old));
        return report.take_errors();
    }
    (strategy.validate)(report.root(new));
    let mut errors = report.take_errors();
    if !errors.is_empty() {
        (strategy.validate)(report.root(old));
        let before = report.take_errors();
        errors.retain(|error| !before.contains(error));
    }
    errors
}

/// Subresources whose writes change the status alone.
const STATUS_SUBRESOURCES: [&str; 2] = ["approval", "status"];

/// Finalizers without a domain are those of Kubernetes.
fn check_finalizers(strategy: &KindStrategy, object: Field<'_>) {
    if let Some(fields) = object.object().filter(|_| !strategy.allows_any_finalizer) {
        validate_finalizer_names(fields).into_iter().for_each(|error| object.add_error(error));
    }
}

#[cfg(test)]
mod tests;

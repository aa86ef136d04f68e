//! Validation of values in new and updated objects.
//!
//! It covers common mistakes: an invalid schedule, labels that the selector does not match, a port out of range. It
//! does not check required fields; other values that Kubernetes validates are accepted unchecked.

use api::FieldError;
use api::json::JsonObject;

use crate::strategy::KindStrategy;

/// The invalid values of an object, in Kubernetes' words. The object must have passed [`schema::check_types`] and have
/// its defaults.
pub fn validate_values(strategy: &KindStrategy, object: &JsonObject) -> Vec<FieldError> {
    let mut errors = Vec::new();
    (strategy.validate)(&mut errors, object);
    errors
}

#[cfg(test)]
mod tests;

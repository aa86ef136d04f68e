//! Values that Kubernetes refuses, in new objects and in changed ones.
//!
//! These are the mistakes that people make: an invalid schedule, labels that the selector does not match, a port out of range.
//! Nothing is demanded here that an object may lack; the rest of what Kubernetes validates is accepted as it is.

use api::FieldError;
use api::json::JsonObject;

use crate::strategy::KindStrategy;

/// The invalid values of an object, in Kubernetes' words. The object must have passed [`schema::check_types`] and have its
/// defaults.
pub fn validate_values(strategy: &KindStrategy, object: &JsonObject) -> Vec<FieldError> {
    let mut errors = Vec::new();
    (strategy.validate)(&mut errors, object);
    errors
}

#[cfg(test)]
mod tests;

//! Admission policies: compiled policies with their bindings, and their evaluation.
//!
//! A [`PolicySet`] is compiled from the objects of one revision. A policy without binding has no effect. Policies run in
//! the order of their names, bindings of a policy likewise; Kubernetes' order is that of a hash map.

mod expressions;
mod mutating_dispatch;
mod openapi_types;
mod params;
mod set;
mod type_check;
mod validating_dispatch;
mod variables;

pub(crate) use mutating_dispatch::dispatch as mutate;
pub use openapi_types::type_in_document;
pub use set::PolicySet;
pub use type_check::{CheckedTypes, ExpressionWarning, checked_resources, param_kind, type_check};
pub(crate) use validating_dispatch::dispatch as validate;

use crate::attributes::Attributes;

const GROUP: &str = "admissionregistration.k8s.io";

/// Resources that no policy sees: policies themselves, so that one cannot block its own repair, and reviews, which are
/// not stored.
fn is_excluded(attributes: &Attributes<'_>) -> bool {
    match attributes.resource.group {
        GROUP => matches!(
            attributes.resource.resource,
            "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        ),
        "authentication.k8s.io" => matches!(attributes.resource.resource, "selfsubjectreviews" | "tokenreviews"),
        "authorization.k8s.io" => matches!(
            attributes.resource.resource,
            "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        ),
        _ => false,
    }
}

/// The error type of a check in metrics, by its message as in Kubernetes.
fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with(crate::webhook::OUT_OF_BUDGET_START) {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

//! The objects that parametrize a policy.

use api::json::JsonObject;
use api::selector::LabelSelector;
use object::unstructured::{nested_object, text};

use super::set::{Binding, Policy};
use crate::attributes::Attributes;
use crate::ports::View;
use crate::refusal::Refusal;
use crate::webhook::selector::{matches_labels, parse_label_selector};

/// Which objects a binding uses.
#[derive(Debug)]
pub(super) struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<Result<LabelSelector, String>>,
    /// True if a request is refused if there are none.
    is_required: bool,
}

impl ParamRef {
    pub(super) fn read(reference: &JsonObject) -> Self {
        Self {
            name: text(reference, &["name"]).to_owned(),
            namespace: text(reference, &["namespace"]).to_owned(),
            selector: nested_object(reference, &["selector"]).map(parse_label_selector),
            is_required: text(reference, &["parameterNotFoundAction"]) == "Deny",
        }
    }
}

/// An object for the variable `params`; `None` for null.
pub(super) type Param = Option<JsonObject>;

/// Why there are no params, as Kubernetes says it, and whether the policy itself is wrong or its binding.
pub(super) enum ParamError {
    OfPolicy(String),
    OfBinding(String),
}

/// The params of a binding, one run of the policy for each.
pub(super) fn collect(
    policy: &Policy,
    binding: &Binding,
    attributes: &Attributes<'_>,
    view: &dyn View,
) -> Result<Vec<Param>, ParamError> {
    let of_binding = |text: &str| Err(ParamError::OfBinding(text.to_owned()));
    let Some(kind) = &policy.param_kind else { return Ok(vec![None]) };
    let Some(found) = view.param_resource(kind.borrowed()) else {
        return Err(ParamError::OfPolicy(format!("failed to find resource referenced by paramKind: '{kind}'")));
    };
    let Some(reference) = &binding.param_ref else { return Ok(vec![None]) };
    let namespace = match (found.is_namespaced, reference.namespace.as_str(), attributes.namespace) {
        (true, "", "") => {
            return of_binding(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
            );
        }
        (true, "", namespace) | (true, namespace, _) => namespace,
        (false, "", _) => "",
        (false, ..) => return of_binding("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
    };
    let name = (!reference.name.is_empty()).then_some(reference.name.as_str());
    let mut params =
        view.params(found.resource.borrowed(), namespace, name).map_err(|it| ParamError::OfBinding(text_of(it)))?;
    match (&reference.selector, name) {
        (Some(_), Some(_)) => return of_binding("paramRef.name and paramRef.selector are mutually exclusive"),
        (Some(Err(error)), None) => return of_binding(error),
        (Some(Ok(selector)), None) => params.retain(|param| matches_labels(selector, param)),
        (None, Some(_)) => {}
        (None, None) => return of_binding("one of name or selector must be provided"),
    }
    if params.is_empty() && reference.is_required {
        return of_binding("no params found for policy binding with `Deny` parameterNotFoundAction");
    }
    Ok(params.into_iter().map(Some).collect())
}

/// The text of a refusal within another one.
pub(super) fn text_of(refusal: Refusal) -> String {
    match refusal {
        Refusal::Forbidden(text) => text,
        Refusal::Status(status) => {
            let message = status.message.strip_prefix("Internal error occurred: ");
            message.map(str::to_owned).unwrap_or(status.message)
        }
    }
}

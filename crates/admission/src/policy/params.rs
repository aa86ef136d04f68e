//! The objects that parametrize a policy.

use api::json::JsonObject;
use api::selector::LabelSelector;
use api::{GroupVersion, GroupVersionKind};
use object::unstructured::{nested_object, text};

use super::set::Binding;
use crate::attributes::Attributes;
use crate::ports::{ParamResource, View};
use crate::refusal::Refusal;
use crate::webhook::selector::{matches_labels, parse_label_selector};

/// The kind of the objects that parametrize a policy.
#[derive(Debug)]
pub(super) struct ParamKind {
    /// As the policy has it.
    api_version: String,
    kind: String,
}

impl ParamKind {
    pub(super) fn read(kind: &JsonObject) -> Self {
        Self { api_version: text(kind, &["apiVersion"]).to_owned(), kind: text(kind, &["kind"]).to_owned() }
    }

    /// The resource of the kind. The text of an error is Kubernetes'.
    pub(super) fn resolve(&self, view: &dyn View) -> Result<ParamResource, String> {
        let GroupVersion { group, version } = GroupVersion::parse(&self.api_version)
            .map_err(|error| format!("failed to parse paramKind APIVersion: {error}"))?;
        let kind = GroupVersionKind { group, version, kind: &*self.kind };
        let unknown = || format!("failed to find resource referenced by paramKind: '{kind}'");
        view.param_resource(kind).ok_or_else(unknown)
    }
}

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

/// The params of a binding, one run of the policy for each. `resource` is that of the policy's `paramKind`, if it has one.
/// The text of an error is Kubernetes'.
pub(super) fn collect(
    resource: Option<&ParamResource>,
    binding: &Binding,
    attributes: &Attributes<'_>,
    view: &dyn View,
) -> Result<Vec<Param>, String> {
    let fails = |text: &str| Err(text.to_owned());
    let Some(found) = resource else { return Ok(vec![None]) };
    let Some(reference) = &binding.param_ref else { return Ok(vec![None]) };
    let namespace = match (found.is_namespaced, reference.namespace.as_str(), attributes.namespace) {
        (true, "", "") => {
            return fails("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources");
        }
        (true, "", namespace) | (true, namespace, _) => namespace,
        (false, "", _) => "",
        (false, ..) => return fails("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
    };
    let name = (!reference.name.is_empty()).then_some(reference.name.as_str());
    let mut params = view.params(found.resource.borrowed(), namespace, name).map_err(text_of)?;
    match (&reference.selector, name) {
        (Some(_), Some(_)) => return fails("paramRef.name and paramRef.selector are mutually exclusive"),
        (Some(Err(error)), None) => return fails(error),
        (Some(Ok(selector)), None) => params.retain(|param| matches_labels(selector, param)),
        (None, Some(_)) => {}
        (None, None) => return fails("one of name or selector must be provided"),
    }
    if params.is_empty() && reference.is_required {
        return fails("no params found for policy binding with `Deny` parameterNotFoundAction");
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

//! Whether a webhook is called for a write, and in which version.

use api::json::JsonObject;
use api::{GroupResource, GroupVersionKind, GroupVersionResource, Status};

use super::configuration::{MatchCriteria, Rule, split_resource};
use super::selector::matches_labels;
use crate::attributes::{Attributes, Operation};
use crate::chain::{Context, Write};
use crate::ports::EquivalentResource;
use crate::refusal::Refusal;

const NAMESPACES: GroupResource<&str> = GroupResource { group: "", resource: "namespaces" };

/// The resource and kind by which a webhook is called: those of a rule that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) resource: GroupVersionResource,
    pub(crate) kind: GroupVersionKind,
}

/// What a rule matched, before anything is copied: most candidates fail by their selectors.
#[derive(Clone, Copy)]
enum MatchedResource<'a> {
    Requested,
    Equivalent(&'a EquivalentResource),
}

impl MatchedResource<'_> {
    fn invocation(self, attributes: &Attributes<'_>) -> Invocation {
        match self {
            Self::Requested => Invocation { resource: attributes.resource.owned(), kind: attributes.kind.owned() },
            Self::Equivalent(found) => Invocation { resource: found.resource.clone(), kind: found.kind.clone() },
        }
    }
}

/// The kinds that webhooks never see, so that a webhook cannot block its own repair.
pub(crate) fn is_exempt(attributes: &Attributes<'_>) -> bool {
    attributes.kind.group == "admissionregistration.k8s.io"
        && matches!(
            attributes.kind.kind,
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// Matches rules, then selectors. `object` is the object as mutated so far. Match conditions are not evaluated here.
pub(crate) fn find_invocation(
    criteria: &MatchCriteria,
    write: &Write<'_>,
    object: Option<&JsonObject>,
    context: &Context<'_>,
) -> Result<Option<Invocation>, Refusal> {
    // Rules are the cheapest to check; errors of selectors count only if a rule matches anyway.
    let attributes = &write.attributes;
    if !criteria.excluded.is_empty() && match_rules(&criteria.excluded, criteria, attributes, context)?.is_some() {
        return Ok(None);
    }
    let found = if criteria.is_of_all_resources {
        Some(MatchedResource::Requested)
    } else {
        match_rules(&criteria.rules, criteria, attributes, context)?
    };
    let Some(matched) = found else { return Ok(None) };
    let is_namespace_matched = matches_namespace(criteria, write, object, context);
    if is_namespace_matched == Ok(false) {
        return Ok(None);
    }
    let is_object_matched = match &criteria.object_selector {
        Err(error) => Err(Refusal::internal(error)),
        Ok(selector) if selector.is_empty() => Ok(true),
        Ok(selector) => {
            let has_labels = |object: &JsonObject| object.contains_key("metadata") && matches_labels(selector, object);
            Ok(object.is_some_and(has_labels) || write.old_object.is_some_and(has_labels))
        }
    };
    if is_object_matched == Ok(false) {
        return Ok(None);
    }
    is_namespace_matched?;
    is_object_matched?;
    Ok(Some(matched.invocation(attributes)))
}

fn match_rules<'a>(
    rules: &[Rule],
    criteria: &MatchCriteria,
    attributes: &Attributes<'_>,
    context: &'a Context<'_>,
) -> Result<Option<MatchedResource<'a>>, Refusal> {
    if rules.iter().any(|rule| rule.matches(attributes, attributes.resource)) {
        return Ok(Some(MatchedResource::Requested));
    }
    if !criteria.matches_equivalent {
        return Ok(None);
    }
    let equivalents = context.equivalents(attributes);
    for rule in rules {
        for equivalent in equivalents {
            let resource = equivalent.resource.borrowed();
            if resource == attributes.resource || !rule.matches(attributes, resource) {
                continue;
            }
            if equivalent.kind.kind.is_empty() {
                return Err(Refusal::internal(format!("unable to convert to {resource}: unknown kind")));
            }
            return Ok(Some(MatchedResource::Equivalent(equivalent)));
        }
    }
    Ok(None)
}

impl Rule {
    fn matches(&self, attributes: &Attributes<'_>, resource: GroupVersionResource<&str>) -> bool {
        let has = |items: &[String], wanted: &str| items.iter().any(|item| item == "*" || item == wanted);
        (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
            && self.matches_scope(attributes, resource)
            && self.has_operation(attributes.operation)
            && has(&self.groups, resource.group)
            && has(&self.versions, resource.version)
            && self.resources.iter().any(|item| {
                let (name, subresource) = split_resource(item);
                (name == "*" || name == resource.resource)
                    && (subresource == "*" || subresource == attributes.subresource)
            })
    }

    pub(crate) fn has_operation(&self, operation: Operation) -> bool {
        self.operations.iter().any(|item| item == "*" || item == operation.as_str())
    }

    fn matches_scope(&self, attributes: &Attributes<'_>, resource: GroupVersionResource<&str>) -> bool {
        let is_namespaces = resource == GroupVersionResource { group: "", version: "v1", resource: "namespaces" };
        let is_cluster_scoped = is_namespaces || attributes.namespace.is_empty();
        match self.scope.as_str() {
            "*" => true,
            "Namespaced" => !is_cluster_scoped,
            "Cluster" => is_cluster_scoped,
            _ => false,
        }
    }
}

fn matches_namespace(
    criteria: &MatchCriteria,
    write: &Write<'_>,
    object: Option<&JsonObject>,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    if is_outside_namespaces(&write.attributes) {
        return Ok(true);
    }
    match &criteria.namespace_selector {
        Err(error) => Err(Refusal::internal(error)),
        Ok(selector) if selector.is_empty() => Ok(true),
        Ok(selector) => {
            let namespace = selected_namespace(write, object, context)?;
            Ok(namespace.is_some_and(|namespace| matches_labels(selector, namespace)))
        }
    }
}

/// True for a write that every namespace selector matches.
pub(crate) fn is_outside_namespaces(attributes: &Attributes<'_>) -> bool {
    attributes.namespace.is_empty() && attributes.resource.resource != "namespaces"
}

/// The namespace whose labels namespace selectors match: that of the object, or the object itself; `None` if no selector
/// that has requirements matches.
pub(crate) fn selected_namespace<'a>(
    write: &'a Write<'_>,
    object: Option<&'a JsonObject>,
    context: &'a Context<'_>,
) -> Result<Option<&'a JsonObject>, Refusal> {
    let attributes = &write.attributes;
    let is_written = matches!(attributes.operation, Operation::Create | Operation::Update);
    if attributes.resource.resource == "namespaces" && attributes.subresource.is_empty() && is_written {
        return Ok(object);
    }
    match context.namespace(attributes)? {
        Some(namespace) => Ok(Some(namespace)),
        None => Err(Status::not_found(NAMESPACES, attributes.namespace).into()),
    }
}

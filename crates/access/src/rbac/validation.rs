//! Validation and defaulting of RBAC objects (metadata excepted), with Kubernetes' rules and messages.

use api::wire::read;
use api::{FieldError, validation};
use serde_json::{Map, Value};

use super::{LabelSelectorSpec, PolicyRule, RBAC_GROUP, RbacKind, RbacObjectError, Role, RoleBinding, Subject};

/// Validates a role or binding before it is stored. The immutability of `roleRef` is checked with the other immutable
/// fields, because it depends on the release.
pub fn validate_object(kind: RbacKind, name: &str, object: &[u8]) -> Result<Vec<FieldError>, RbacObjectError> {
    let unreadable = |source| RbacObjectError { kind, name: name.to_owned(), source };
    match kind {
        RbacKind::Role | RbacKind::ClusterRole => Ok(validate_role(kind, &read(object).map_err(unreadable)?)),
        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
            Ok(validate_binding(kind, &read(object).map_err(unreadable)?))
        }
    }
}

/// Sets the `apiGroup` of subjects and of `roleRef` where the client omitted it.
pub fn set_defaults(kind: RbacKind, object: &mut Map<String, Value>) {
    if matches!(kind, RbacKind::Role | RbacKind::ClusterRole) {
        return;
    }
    let fill = |fields: &mut Map<String, Value>| {
        let group = fields.entry("apiGroup").or_insert(Value::Null);
        if group.is_null() || *group == "" {
            *group = RBAC_GROUP.into();
        }
    };
    if let Some(role_ref) = object.get_mut("roleRef").and_then(Value::as_object_mut) {
        fill(role_ref);
    }
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten().filter_map(Value::as_object_mut) {
        if subject.get("kind").is_some_and(|kind| kind == "User" || kind == "Group") {
            fill(subject);
        }
    }
}

fn validate_role(kind: RbacKind, role: &Role) -> Vec<FieldError> {
    let rules = role.rules.iter().enumerate();
    let mut errors: Vec<FieldError> =
        rules.flat_map(|(at, rule)| validate_rule(kind, rule, &format!("rules[{at}]"))).collect();
    let Some(aggregation) = role.aggregation_rule.as_ref().filter(|_| kind == RbacKind::ClusterRole) else {
        return errors;
    };
    let path = "aggregationRule.clusterRoleSelectors";
    if aggregation.cluster_role_selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(path, detail));
    }
    for (at, selector) in aggregation.cluster_role_selectors.iter().enumerate() {
        errors.extend(validate_selector(selector, &format!("{path}[{at}]")));
    }
    errors
}

fn validate_rule(kind: RbacKind, rule: &PolicyRule, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let required = |field: &str, detail: &str| FieldError::required(format!("{path}.{field}"), detail);
    if rule.verbs.is_empty() {
        errors.push(required("verbs", "verbs must contain at least one value"));
    }
    if !rule.non_resource_urls.is_empty() {
        let urls = |detail: &str| {
            FieldError::invalid(format!("{path}.nonResourceURLs"), rule.non_resource_urls.clone(), detail)
        };
        if kind == RbacKind::Role {
            errors.push(urls("namespaced rules cannot apply to non-resource URLs"));
        }
        if !(rule.api_groups.is_empty() && rule.resources.is_empty() && rule.resource_names.is_empty()) {
            errors.push(urls("rules cannot apply to both regular resources and non-resource URLs"));
        }
        return errors;
    }
    if rule.api_groups.is_empty() {
        errors.push(required("apiGroups", "resource rules must supply at least one api group"));
    }
    if rule.resources.is_empty() {
        errors.push(required("resources", "resource rules must supply at least one resource"));
    }
    errors
}

fn validate_selector(selector: &LabelSelectorSpec, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let labels = format!("{path}.matchLabels");
    for (key, value) in &selector.match_labels {
        let of_key = validation::validate_label_key(key).into_iter().map(|error| (key, error));
        let of_value = validation::validate_label_value(value).into_iter().map(|error| (value, error));
        errors.extend(of_key.chain(of_value).map(|(text, error)| FieldError::invalid(&labels, text.as_str(), error)));
    }
    for (at, requirement) in selector.match_expressions.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        match (requirement.operator.as_str(), requirement.values.is_empty()) {
            ("In" | "NotIn", true) => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            ("Exists" | "DoesNotExist", false) => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
            (operator, _) => {
                errors.push(FieldError::invalid(format!("{path}.operator"), operator, "not a valid selector operator"));
            }
        }
        let of_key = validation::validate_label_key(&requirement.key).into_iter();
        errors.extend(of_key.map(|error| FieldError::invalid(format!("{path}.key"), requirement.key.as_str(), error)));
        for (at, value) in requirement.values.iter().enumerate() {
            let faults = validation::validate_label_value(value).into_iter();
            errors
                .extend(faults.map(|fault| FieldError::invalid(format!("{path}.values[{at}]"), value.as_str(), fault)));
        }
    }
    if !errors.is_empty() {
        errors.push(FieldError::invalid(path, Value::Null, "invalid label selector."));
    }
    errors
}

fn validate_binding(kind: RbacKind, binding: &RoleBinding) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = &binding.role_ref;
    if role.api_group != RBAC_GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", role.api_group.as_str(), &[RBAC_GROUP]));
    }
    let kinds: &[&str] = if kind == RbacKind::RoleBinding { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.kind.as_str()) {
        errors.push(FieldError::not_supported("roleRef.kind", role.kind.as_str(), kinds));
    }
    if role.name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    let of_name = validation::validate_path_segment_name(&role.name).into_iter();
    errors.extend(of_name.map(|error| FieldError::invalid("roleRef.name", role.name.as_str(), error)));
    for (at, subject) in binding.subjects.iter().enumerate() {
        errors.extend(validate_subject(kind, subject, &format!("subjects[{at}]")));
    }
    errors
}

fn validate_subject(kind: RbacKind, subject: &Subject, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = |name: &str| format!("{path}.{name}");
    if subject.name.is_empty() {
        errors.push(FieldError::required(field("name"), ""));
    }
    match subject.kind.as_str() {
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                let of_name = validation::validate_dns1123_subdomain(&subject.name).into_iter();
                errors.extend(of_name.map(|error| FieldError::invalid(field("name"), subject.name.as_str(), error)));
            }
            if !subject.api_group.is_empty() {
                errors.push(FieldError::not_supported(field("apiGroup"), subject.api_group.as_str(), &[""]));
            }
            if kind == RbacKind::ClusterRoleBinding && subject.namespace.is_empty() {
                errors.push(FieldError::required(field("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if subject.api_group != RBAC_GROUP {
                errors.push(FieldError::not_supported(field("apiGroup"), subject.api_group.as_str(), &[RBAC_GROUP]));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(field("kind"), other, &kinds));
        }
    }
    errors
}

#[cfg(test)]
mod tests;

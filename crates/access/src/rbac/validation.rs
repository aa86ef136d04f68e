//! What a role or binding must look like to be stored, its metadata aside: Kubernetes' rules in Kubernetes' words.

use api::wire::read;
use api::{FieldError, validation};
use serde_json::{Map, Value};

use super::{Binding, GROUP, Kind, LabelSelector, ObjectError, PolicyRule, Role, Subject};

/// What is wrong with an object that is about to be stored. That a binding keeps its role is said with what else updates may
/// not change, which depends on the release.
pub fn faults(kind: Kind, name: &str, object: &[u8]) -> Result<Vec<FieldError>, ObjectError> {
    let unreadable = |source| ObjectError { kind, name: name.to_owned(), source };
    match kind {
        Kind::Role | Kind::ClusterRole => Ok(role_faults(kind, &read(object).map_err(unreadable)?)),
        Kind::RoleBinding | Kind::ClusterRoleBinding => Ok(binding_faults(kind, &read(object).map_err(unreadable)?)),
    }
}

/// Fills in the groups that clients leave out.
pub fn set_defaults(kind: Kind, object: &mut Map<String, Value>) {
    if matches!(kind, Kind::Role | Kind::ClusterRole) {
        return;
    }
    let fill = |fields: &mut Map<String, Value>| {
        let group = fields.entry("apiGroup").or_insert(Value::Null);
        if group.is_null() || *group == "" {
            *group = GROUP.into();
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

fn role_faults(kind: Kind, role: &Role) -> Vec<FieldError> {
    let rules = role.rules.iter().enumerate();
    let mut faults: Vec<FieldError> =
        rules.flat_map(|(at, rule)| rule_faults(kind, rule, &format!("rules[{at}]"))).collect();
    let Some(aggregation) = role.aggregation_rule.as_ref().filter(|_| kind == Kind::ClusterRole) else { return faults };
    let path = "aggregationRule.clusterRoleSelectors";
    if aggregation.cluster_role_selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        faults.push(FieldError::required(path, detail));
    }
    for (at, selector) in aggregation.cluster_role_selectors.iter().enumerate() {
        faults.extend(selector_faults(selector, &format!("{path}[{at}]")));
    }
    faults
}

fn rule_faults(kind: Kind, rule: &PolicyRule, path: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let required = |field: &str, detail: &str| FieldError::required(format!("{path}.{field}"), detail);
    if rule.verbs.is_empty() {
        faults.push(required("verbs", "verbs must contain at least one value"));
    }
    if !rule.non_resource_urls.is_empty() {
        let urls = |detail: &str| {
            FieldError::invalid(format!("{path}.nonResourceURLs"), rule.non_resource_urls.clone(), detail)
        };
        if kind == Kind::Role {
            faults.push(urls("namespaced rules cannot apply to non-resource URLs"));
        }
        if !(rule.api_groups.is_empty() && rule.resources.is_empty() && rule.resource_names.is_empty()) {
            faults.push(urls("rules cannot apply to both regular resources and non-resource URLs"));
        }
        return faults;
    }
    if rule.api_groups.is_empty() {
        faults.push(required("apiGroups", "resource rules must supply at least one api group"));
    }
    if rule.resources.is_empty() {
        faults.push(required("resources", "resource rules must supply at least one resource"));
    }
    faults
}

fn selector_faults(selector: &LabelSelector, path: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let labels = format!("{path}.matchLabels");
    for (key, value) in &selector.match_labels {
        let of_key = validation::label_key(key).into_iter().map(|fault| (key, fault));
        let of_value = validation::label_value(value).into_iter().map(|fault| (value, fault));
        faults.extend(of_key.chain(of_value).map(|(text, fault)| FieldError::invalid(&labels, text.as_str(), fault)));
    }
    for (at, requirement) in selector.match_expressions.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        match (requirement.operator.as_str(), requirement.values.is_empty()) {
            ("In" | "NotIn", true) => faults.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            ("Exists" | "DoesNotExist", false) => faults.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
            (operator, _) => {
                faults.push(FieldError::invalid(format!("{path}.operator"), operator, "not a valid selector operator"));
            }
        }
        let of_key = validation::label_key(&requirement.key).into_iter();
        faults.extend(of_key.map(|fault| FieldError::invalid(format!("{path}.key"), requirement.key.as_str(), fault)));
    }
    faults
}

fn binding_faults(kind: Kind, binding: &Binding) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let role = &binding.role_ref;
    if role.api_group != GROUP {
        faults.push(FieldError::not_supported("roleRef.apiGroup", role.api_group.as_str(), &[GROUP]));
    }
    let kinds: &[&str] = if kind == Kind::RoleBinding { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.kind.as_str()) {
        faults.push(FieldError::not_supported("roleRef.kind", role.kind.as_str(), kinds));
    }
    if role.name.is_empty() {
        faults.push(FieldError::required("roleRef.name", ""));
    }
    let of_name = validation::path_segment_name(&role.name).into_iter();
    faults.extend(of_name.map(|fault| FieldError::invalid("roleRef.name", role.name.as_str(), fault)));
    for (at, subject) in binding.subjects.iter().enumerate() {
        faults.extend(subject_faults(kind, subject, &format!("subjects[{at}]")));
    }
    faults
}

fn subject_faults(kind: Kind, subject: &Subject, path: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let field = |name: &str| format!("{path}.{name}");
    if subject.name.is_empty() {
        faults.push(FieldError::required(field("name"), ""));
    }
    match subject.kind.as_str() {
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                let of_name = validation::dns1123_subdomain(&subject.name).into_iter();
                faults.extend(of_name.map(|fault| FieldError::invalid(field("name"), subject.name.as_str(), fault)));
            }
            if !subject.api_group.is_empty() {
                faults.push(FieldError::not_supported(field("apiGroup"), subject.api_group.as_str(), &[""]));
            }
            if kind == Kind::ClusterRoleBinding && subject.namespace.is_empty() {
                faults.push(FieldError::required(field("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if subject.api_group != GROUP {
                faults.push(FieldError::not_supported(field("apiGroup"), subject.api_group.as_str(), &[GROUP]));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            faults.push(FieldError::not_supported(field("kind"), other, &kinds));
        }
    }
    faults
}

#[cfg(test)]
mod tests;

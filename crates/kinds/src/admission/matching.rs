//! Which requests a webhook or a policy applies to: rules, resources and conditions.

use std::collections::HashSet;

use k8s_cel::Type;

use crate::expressions::{AdmissionVariables, admission_environment};
use crate::validation::Field;

pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
pub(super) const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const MATCH_CONDITIONS_MAX: usize = 64;

/// The resources of a policy or a binding.
pub(super) fn check_match_resources(resources: Field<'_>) {
    resources.at("matchPolicy").one_of(&MATCH_POLICIES);
    resources.at("namespaceSelector").label_selector();
    resources.at("objectSelector").label_selector();
    resources.at("resourceRules").each(check_named_rule);
    resources.at("excludeResourceRules").each(check_named_rule);
}

fn check_named_rule(rule: Field<'_>) {
    let mut seen = HashSet::new();
    for name in rule.at("resourceNames").items() {
        name.path_segment();
        if !seen.insert(name.text()) {
            name.duplicate();
        }
    }
    check_rule(rule);
}

pub(super) fn check_rule(rule: Field<'_>) {
    let operations = rule.at("operations");
    check_wildcard_list(operations, "operations");
    operations.each(|operation| operation.one_of(&OPERATIONS));
    check_wildcard_list(rule.at("apiGroups"), "API groups");
    check_wildcard_list(rule.at("apiVersions"), "API versions");
    rule.at("apiVersions").each(|version| {
        version.require_text();
    });
    check_resources(rule.at("resources"));
    rule.at("scope").one_of_if_present(&SCOPES);
}

/// A list that is not empty, in which `*` stands alone.
fn check_wildcard_list(list: Field<'_>, name: &str) {
    match list.len() {
        0 => list.required(""),
        1 => {}
        _ if list.texts().any(|text| text == "*") => {
            list.invalid(format!("if '*' is present, must not specify other {name}"));
        }
        _ => {}
    }
}

/// Resources, each perhaps with a subresource. Wildcards must not repeat what stands beside them.
fn check_resources(resources: Field<'_>) {
    if resources.len() == 0 {
        resources.required("");
    }
    let (mut all_of_resource, mut of_all_resources) = (HashSet::new(), HashSet::new());
    let mut has_plain = false;
    for item in resources.items() {
        if !item.require_text() {
            continue;
        }
        let Some((resource, part)) = item.text().split_once('/') else {
            has_plain = item.text() != "*";
            continue;
        };
        if all_of_resource.contains(resource) {
            item.invalid_text(format!("if '{resource}/*' is present, must not specify {}", item.text()));
        }
        if of_all_resources.contains(part) {
            item.invalid_text(format!("if '*/{part}' is present, must not specify {}", item.text()));
        }
        if part == "*" {
            all_of_resource.insert(resource);
        }
        if resource == "*" {
            of_all_resources.insert(part);
        }
    }
    let has = |wanted: &str| resources.texts().any(|text| text == wanted);
    if resources.len() > 1 && has("*/*") {
        resources.invalid("if '*/*' is present, must not specify other resources");
    }
    if has("*") && has_plain {
        resources.invalid("if '*' is present, must not specify other resources without subresources");
    }
}

/// Conditions with names of their own, each an expression that is true or false.
pub(super) fn check_match_conditions(conditions: Field<'_>, params: bool) {
    conditions.at_most(MATCH_CONDITIONS_MAX);
    let mut names = HashSet::new();
    for condition in conditions.items() {
        let (expression, name) = (condition.at("expression"), condition.at("name"));
        let text = expression.text().trim();
        if text.is_empty() {
            expression.required("");
        } else {
            let environment = admission_environment(expression, AdmissionVariables { params, authorizer: true });
            expression.expression_of(text, &environment, &[Type::Bool]);
        }
        if name.require_text() {
            name.qualified_name();
            if !names.insert(name.text()) {
                name.duplicate();
            }
        }
    }
}

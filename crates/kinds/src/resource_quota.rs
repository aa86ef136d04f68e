//! Resource quotas.

use std::collections::BTreeSet;

use api::FieldError;
use api::json::JsonObject;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell_or, string_column};
use object::unstructured;
use serde_json::Value;

use crate::fields::list_items;
use crate::strategy::{KindStrategy, LENIENT_RULES};
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate};
use crate::validation::resources::{ResourceScope, is_quota_huge_page};
use crate::validation::{Field, go_object};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: LENIENT_RULES,
    returns_deleted_object: true,
    validate: |quota| check_spec(quota.at("spec")),
    validate_status: |quota, _| {
        for list in ["hard", "used"] {
            check_amounts(quota.at("status").at(list));
        }
    },
    validate_update: |quota, _| check_update(quota),
    columns: QUOTAS,
    ..KindStrategy::DEFAULT
};

const QUOTA_RESOURCES: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const POD_RESOURCES: [&str; 7] =
    ["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const CLAIM_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
const POD_SCOPES: [&str; 6] =
    ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"];
/// Scopes that a selector can only ask for.
const EXISTS_SCOPES: [&str; 5] =
    ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];
const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const OTHER_RESOURCE: &str = "unsupported scope applied to resource";

fn check_spec(spec: Field<'_>) {
    check_amounts(spec.at("hard"));
    check_scopes(spec);
    check_scope_selector(spec);
}

fn check_amounts(amounts: Field<'_>) {
    for (name, amount) in amounts.entries() {
        amount.resource_name(name, ResourceScope::Any);
        if !name.contains('/') && !is_quota_resource(name) {
            amount.invalid_as(name, "must be a standard resource for quota");
        }
        amount.resource_amount(name);
    }
}

fn is_quota_resource(name: &str) -> bool {
    QUOTA_RESOURCES.contains(&name) || is_quota_huge_page(name)
}

/// True if a scope makes sense for a resource that quotas know.
fn applies_to(scope: &str, resource: &str) -> bool {
    match scope {
        _ if !is_quota_resource(resource) => true,
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => CLAIM_RESOURCES.contains(&resource),
        _ if POD_SCOPES.contains(&scope) => POD_RESOURCES.contains(&resource),
        _ => true,
    }
}

fn is_scope(scope: &str) -> bool {
    POD_SCOPES.contains(&scope) || scope == "VolumeAttributesClass"
}

fn check_scopes(spec: Field<'_>) {
    let scopes = spec.at("scopes");
    for scope in scopes.texts() {
        if !is_scope(scope) {
            scopes.invalid("unsupported scope");
        }
        for _ in spec.at("hard").entries().filter(|(resource, _)| !applies_to(scope, resource)) {
            scopes.invalid(OTHER_RESOURCE);
        }
    }
    if CONFLICTS.iter().any(|pair| pair.iter().all(|scope| scopes.texts().any(|one| one == *scope))) {
        scopes.invalid("conflicting scopes");
    }
}

/// A selector of scopes as Go prints it.
fn go_scope_selector(expressions: Field<'_>) -> String {
    let requirement = |term: Field<'_>| {
        go_object(&[
            ("ScopeName", term.at("scopeName").text().into()),
            ("Operator", term.at("operator").text().into()),
            ("Values", term.at("values").value().cloned().unwrap_or_default()),
        ])
    };
    format!("{{\"MatchExpressions\":[{}]}}", expressions.items().map(requirement).collect::<Vec<_>>().join(","))
}

fn check_scope_selector(spec: Field<'_>) {
    let expressions = spec.path("scopeSelector.matchExpressions");
    for requirement in expressions.items() {
        // Kubernetes' paths leave out the index.
        let shown = |name| requirement.at(name).reported_at(expressions.at(name));
        let (scope, operator, values) = (shown("scopeName"), shown("operator"), shown("values"));
        if !is_scope(scope.text()) {
            scope.invalid_text("unsupported scope");
        }
        for _ in spec.at("hard").entries().filter(|(resource, _)| !applies_to(scope.text(), resource)) {
            expressions.invalid_showing(go_scope_selector(expressions), OTHER_RESOURCE);
        }
        if EXISTS_SCOPES.contains(&scope.text()) && operator.text() != "Exists" {
            operator.invalid_text(
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator.text() {
            "In" | "NotIn" if values.len() == 0 => {
                values.required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector");
            }
            "Exists" | "DoesNotExist" if values.len() > 0 => {
                values.invalid("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => operator.invalid_text("not a valid selector operator"),
        }
    }
    let scopes = expressions.texts_of_items("scopeName");
    let has = |wanted: &str| scopes.contains(wanted);
    if CONFLICTS.iter().any(|pair| pair.iter().all(|scope| has(scope))) {
        expressions.invalid_as(spec.at("scopes").value().cloned().unwrap_or_default(), "conflicting scopes");
    }
}

/// The set of scopes is immutable; their order may change.
fn check_update(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.scopes";
    let scopes = |value: Option<&Value>| -> BTreeSet<String> {
        list_items(value).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if scopes(update.old_value(path)) == scopes(update.new_value(path)) {
        return Vec::new();
    }
    vec![FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE)]
}

const QUOTAS: &[Column] = &[
    NAME,
    string_column("Request", "What is used, of how much.", |quota, _| {
        quota_usage_cell(quota, |resource| !is_limit(resource))
    }),
    string_column("Limit", "What limits are used, of how much.", |quota, _| quota_usage_cell(quota, is_limit)),
    AGE,
];

fn is_limit(resource: &str) -> bool {
    resource.starts_with("limits.")
}

fn quota_usage_cell(quota: &JsonObject, is_shown: fn(&str) -> bool) -> Value {
    let hard = unstructured::nested_object(quota, &["status", "hard"]).into_iter().flatten();
    let shown: Vec<String> = hard
        .filter(|(resource, _)| is_shown(resource))
        .map(|(resource, hard)| {
            let used = string_cell_or(quota, &["status", "used", resource], "0");
            format!("{resource}: {}/{}", used.as_str().unwrap_or_default(), hard.as_str().unwrap_or("0"))
        })
        .collect();
    shown.join(", ").into()
}

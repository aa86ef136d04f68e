//! A reference RBAC evaluator: scans all objects for each query, slow but simple enough to verify by reading.

use access::rbac::RbacKind;
use access::{AccessTarget, Attributes, User};
use serde_json::Value;

use crate::rbac_notation;

pub(crate) type PolicyObjects = [(RbacKind, String, String, Value)];

/// Reports whether any binding grants the query.
pub(crate) fn policy_allows(objects: &PolicyObjects, attributes: &Attributes<'_>) -> bool {
    objects.iter().any(|(kind, namespace, _, binding)| {
        let is_in_scope = match kind {
            RbacKind::ClusterRoleBinding => true,
            RbacKind::RoleBinding => namespace == attributes.namespace(),
            RbacKind::Role | RbacKind::ClusterRole => false,
        };
        is_in_scope && binding_grants(objects, namespace, binding, attributes)
    })
}

/// Reports whether the binding's role allows the query, regardless of scope.
pub(crate) fn binding_grants(
    objects: &PolicyObjects,
    namespace: &str,
    binding: &Value,
    attributes: &Attributes<'_>,
) -> bool {
    as_list(&binding["subjects"]).iter().any(|subject| subject_matches(subject, attributes.user, namespace))
        && rules_of_role(objects, namespace, &binding["roleRef"]).iter().any(|rule| rule_allows(rule, attributes))
}

fn subject_matches(subject: &Value, user: &User, binding_namespace: &str) -> bool {
    let name = as_text(&subject["name"]);
    match as_text(&subject["kind"]) {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let namespace = match as_text(&subject["namespace"]) {
                "" => binding_namespace,
                namespace => namespace,
            };
            !namespace.is_empty() && user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn rules_of_role<'a>(objects: &'a PolicyObjects, binding_namespace: &str, role_ref: &Value) -> Vec<&'a Value> {
    let find = |kind: RbacKind, namespace: &str| {
        objects.iter().find(|(k, ns, name, _)| *k == kind && ns == namespace && name == as_text(&role_ref["name"]))
    };
    match as_text(&role_ref["kind"]) {
        "Role" => find(RbacKind::Role, binding_namespace)
            .map(|(_, _, _, role)| as_list(&role["rules"]).iter().collect())
            .unwrap_or_default(),
        "ClusterRole" => find(RbacKind::ClusterRole, "")
            .map(|(_, _, name, role)| rules_of_cluster_role(objects, name, role, &mut vec![name]))
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn rules_of_cluster_role<'a>(
    objects: &'a PolicyObjects,
    role_name: &str,
    role: &'a Value,
    seen: &mut Vec<&'a str>,
) -> Vec<&'a Value> {
    let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
    if !selectors.is_array() {
        return as_list(&role["rules"]).iter().collect();
    }
    let mut rules = Vec::new();
    for (kind, _, name, other) in objects {
        let is_selected = as_list(selectors).iter().any(|selector| {
            let match_labels = selector["matchLabels"].as_object();
            match_labels.is_none_or(|match_labels| {
                match_labels.iter().all(|(key, value)| other["metadata"]["labels"].get(key) == Some(value))
            })
        });
        if *kind == RbacKind::ClusterRole && name != role_name && is_selected && !seen.contains(&name.as_str()) {
            seen.push(name);
            rules.extend(rules_of_cluster_role(objects, name, other, seen));
        }
    }
    rules
}

fn rule_allows(rule: &Value, attributes: &Attributes<'_>) -> bool {
    let names = |field: &str, value: &str| as_list(&rule[field]).iter().any(|item| item == "*" || item == value);
    if !names("verbs", attributes.verb) {
        return false;
    }
    match attributes.access_target {
        AccessTarget::Path(path) => as_list(&rule["nonResourceURLs"]).iter().any(|pattern| match as_text(pattern) {
            exact if exact == path => true,
            pattern if pattern.ends_with('*') => path.starts_with(pattern.trim_end_matches('*')),
            _ => false,
        }),
        AccessTarget::Resource(resource) => {
            let combined = resource.combined_resource();
            let any = format!("*/{}", resource.subresource);
            let is_named = as_list(&rule["resources"]).iter().any(|item| {
                item == "*" || as_text(item) == combined || (!resource.subresource.is_empty() && as_text(item) == any)
            });
            let only = as_list(&rule["resourceNames"]);
            names("apiGroups", resource.group)
                && is_named
                && (only.is_empty() || only.iter().any(|name| name == resource.name))
        }
    }
}

fn as_list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn as_text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn reference_evaluator_allows_only_the_bound_user() {
    let objects = rbac_notation::parse_objects("clusterrole r: get core pods\nbind b to clusterrole r: user=alice");
    let (alice, bob) = (rbac_notation::parse_user("alice"), rbac_notation::parse_user("bob"));
    assert!(policy_allows(&objects, &rbac_notation::parse_attributes(&alice, "get pods p -n dev")));
    assert!(!policy_allows(&objects, &rbac_notation::parse_attributes(&bob, "get pods p -n dev")));
}

//! RBAC as its documentation describes it, read from the objects each time: slow, and short enough to be seen to be right.

use access::rbac::Kind;
use access::{Asked, Attributes, User};
use serde_json::Value;

use crate::world;

pub(crate) type Objects = [(Kind, String, String, Value)];

/// Whether any binding grants what is asked.
pub(crate) fn allows(objects: &Objects, asked: &Attributes<'_>) -> bool {
    objects.iter().any(|(kind, namespace, _, binding)| {
        let is_in_scope = match kind {
            Kind::ClusterRoleBinding => true,
            Kind::RoleBinding => namespace == asked.namespace(),
            Kind::Role | Kind::ClusterRole => false,
        };
        is_in_scope && grants(objects, namespace, binding, asked)
    })
}

/// Whether this binding grants what is asked, its scope aside.
pub(crate) fn grants(objects: &Objects, namespace: &str, binding: &Value, asked: &Attributes<'_>) -> bool {
    list(&binding["subjects"]).iter().any(|subject| is(subject, asked.user, namespace))
        && rules(objects, namespace, &binding["roleRef"]).iter().any(|rule| rule_allows(rule, asked))
}

fn is(subject: &Value, user: &User, binding_namespace: &str) -> bool {
    let name = text(&subject["name"]);
    match text(&subject["kind"]) {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let namespace = match text(&subject["namespace"]) {
                "" => binding_namespace,
                namespace => namespace,
            };
            !namespace.is_empty() && user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn rules<'a>(objects: &'a Objects, binding_namespace: &str, role_ref: &Value) -> Vec<&'a Value> {
    let find = |kind: Kind, namespace: &str| {
        objects.iter().find(|(k, ns, name, _)| *k == kind && ns == namespace && name == text(&role_ref["name"]))
    };
    match text(&role_ref["kind"]) {
        "Role" => find(Kind::Role, binding_namespace)
            .map(|(_, _, _, role)| list(&role["rules"]).iter().collect())
            .unwrap_or_default(),
        "ClusterRole" => find(Kind::ClusterRole, "")
            .map(|(_, _, name, role)| rules_of_cluster_role(objects, name, role, &mut vec![name]))
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn rules_of_cluster_role<'a>(
    objects: &'a Objects,
    own: &str,
    role: &'a Value,
    seen: &mut Vec<&'a str>,
) -> Vec<&'a Value> {
    let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
    if !selectors.is_array() {
        return list(&role["rules"]).iter().collect();
    }
    let mut rules = Vec::new();
    for (kind, _, name, other) in objects {
        let is_selected = list(selectors).iter().any(|selector| {
            let wanted = selector["matchLabels"].as_object();
            wanted.is_none_or(|wanted| {
                wanted.iter().all(|(key, value)| other["metadata"]["labels"].get(key) == Some(value))
            })
        });
        if *kind == Kind::ClusterRole && name != own && is_selected && !seen.contains(&name.as_str()) {
            seen.push(name);
            rules.extend(rules_of_cluster_role(objects, name, other, seen));
        }
    }
    rules
}

fn rule_allows(rule: &Value, asked: &Attributes<'_>) -> bool {
    let names = |field: &str, value: &str| list(&rule[field]).iter().any(|item| item == "*" || item == value);
    if !names("verbs", asked.verb) {
        return false;
    }
    match asked.object {
        Asked::Path(path) => list(&rule["nonResourceURLs"]).iter().any(|pattern| match text(pattern) {
            exact if exact == path => true,
            pattern if pattern.ends_with('*') => path.starts_with(pattern.trim_end_matches('*')),
            _ => false,
        }),
        Asked::Resource(resource) => {
            let combined = resource.combined();
            let any = format!("*/{}", resource.subresource);
            let is_named = list(&rule["resources"]).iter().any(|item| {
                item == "*" || text(item) == combined || (!resource.subresource.is_empty() && text(item) == any)
            });
            let only = list(&rule["resourceNames"]);
            names("apiGroups", resource.group)
                && is_named
                && (only.is_empty() || only.iter().any(|name| name == resource.name))
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn the_slow_evaluator_knows_a_yes_from_a_no() {
    let objects = world::objects("clusterrole r: get core pods\nbind b to clusterrole r: user=alice");
    let (alice, bob) = (world::user("alice"), world::user("bob"));
    assert!(allows(&objects, &world::attributes(&alice, "get pods p -n dev")));
    assert!(!allows(&objects, &world::attributes(&bob, "get pods p -n dev")));
}

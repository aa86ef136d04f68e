//! A compact notation for roles, bindings and authorization queries, so that a test case fits one line.
//!
//! ```text
//! clusterrole NAME [{label=value ...}] [< label=value ...]: RULE; RULE      `<` is an aggregation rule
//! role NAMESPACE/NAME: RULE; RULE
//! bind NAME to clusterrole ROLE: SUBJECT ...                                a ClusterRoleBinding
//! bind NAMESPACE/NAME to role|clusterrole ROLE: SUBJECT ...                 a RoleBinding
//! ```
//! A rule is `verbs groups resources [names]` or `verbs /paths`, each a comma-separated list, `core` being the group "".
//! A subject is `user=alice`, `group=dev` or `sa=namespace/name`.
//!
//! A query is `verb resource[.group][/subresource] [name] [-n namespace]`, or `verb /path`.

use access::rbac::{PolicyChange, RbacIndex, RbacKind, RbacPolicy};
use access::{AccessTarget, Attributes, ResourceAttributes, User};
use serde_json::{Value, json};

/// Parses a text into objects: kind, namespace, name and JSON.
pub(crate) fn parse_objects(text: &str) -> Vec<(RbacKind, String, String, Value)> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse_object).collect()
}

/// Builds the policy that a text describes.
pub(crate) fn parse_policy(text: &str) -> RbacPolicy {
    let mut policy = RbacPolicy::default();
    for (kind, namespace, name, json) in parse_objects(text) {
        let change = policy.put(kind, &namespace, &name, json.to_string().as_bytes()).unwrap();
        assert_eq!(change, PolicyChange::AffectsDecisions, "{name}");
    }
    policy
}

pub(crate) fn parse_index(text: &str) -> RbacIndex {
    parse_policy(text).build_index()
}

/// Parses `alice`, `alice+group+group`, or `sa:namespace/name`, a service account with its groups.
pub(crate) fn parse_user(text: &str) -> User {
    let mut parts = text.split('+');
    let name = parts.next().unwrap();
    let mut user = match name.strip_prefix("sa:").and_then(|account| account.split_once('/')) {
        Some((namespace, name)) => User::service_account(namespace, name, "uid"),
        None => User::named(name),
    };
    user.groups.extend(parts.map(str::to_owned));
    user
}

/// Parses one query.
pub(crate) fn parse_attributes<'a>(user: &'a User, request: &'a str) -> Attributes<'a> {
    let (verb, rest) = request.split_once(' ').unwrap();
    if rest.starts_with('/') {
        return Attributes { user, verb, access_target: AccessTarget::Path(rest) };
    }
    let (rest, namespace) = rest.split_once(" -n ").unwrap_or((rest, ""));
    let (resource, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let resource = ResourceAttributes { group, version: "v1", resource, subresource, namespace, name };
    Attributes { user, verb, access_target: AccessTarget::Resource(resource) }
}

fn parse_object(line: &str) -> (RbacKind, String, String, Value) {
    let (head, tail) = line.split_once(": ").unwrap_or_else(|| (line.strip_suffix(':').unwrap(), ""));
    let (word, rest) = head.split_once(' ').unwrap();
    let split_namespaced_name = |name: &str| match name.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (String::new(), name.to_owned()),
    };
    match word {
        "bind" => {
            let (name, role) = rest.split_once(" to ").unwrap();
            let (namespace, name) = split_namespaced_name(name);
            let kind = if namespace.is_empty() { RbacKind::ClusterRoleBinding } else { RbacKind::RoleBinding };
            let json = parse_binding(&namespace, &name, role, tail);
            (kind, namespace, name, json)
        }
        _ => {
            let (rest, aggregation) = rest.split_once('<').map_or((rest, None), |(rest, labels)| (rest, Some(labels)));
            let (name, labels) = rest.split_once('{').unwrap_or((rest, ""));
            let (namespace, name) = split_namespaced_name(name.trim());
            let kind = if word == "role" { RbacKind::Role } else { RbacKind::ClusterRole };
            let rules: Vec<Value> =
                tail.split(';').map(str::trim).filter(|rule| !rule.is_empty()).map(parse_rule).collect();
            let mut json = json!({
                "kind": kind.name(), "apiVersion": "rbac.authorization.k8s.io/v1", "rules": rules,
                "metadata": {"name": name, "namespace": namespace, "labels": parse_pairs(labels.trim().trim_end_matches('}'))},
            });
            if let Some(aggregation) = aggregation {
                let selectors: Vec<Value> =
                    aggregation.split_whitespace().map(|label| json!({"matchLabels": parse_pairs(label)})).collect();
                json["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
            }
            (kind, namespace, name, json)
        }
    }
}

fn parse_binding(namespace: &str, name: &str, role: &str, subjects: &str) -> Value {
    let (kind, role) = role.split_once(' ').unwrap();
    let kind = match kind {
        "role" => "Role",
        "clusterrole" => "ClusterRole",
        other => other,
    };
    let subjects: Vec<Value> = subjects
        .split_whitespace()
        .map(|subject| match subject.split_once('=').unwrap() {
            ("user", name) => json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}),
            ("group", name) => json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}),
            ("sa", account) => match account.split_once('/') {
                Some((namespace, name)) => json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}),
                None => json!({"kind": "ServiceAccount", "name": account}),
            },
            (kind, name) => json!({"kind": kind, "name": name}),
        })
        .collect();
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": subjects,
    })
}

fn parse_rule(text: &str) -> Value {
    let list = |text: &str| -> Vec<String> {
        text.split(',').map(|item| if item == "core" { "" } else { item }.to_owned()).collect()
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [verbs, paths] => json!({"verbs": list(verbs), "nonResourceURLs": list(paths)}),
        [verbs, groups, resources] => {
            json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)})
        }
        [verbs, groups, resources, names] => json!({
            "verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources), "resourceNames": list(names),
        }),
        _ => panic!("no rule: {text}"),
    }
}

fn parse_pairs(text: &str) -> Value {
    text.split_whitespace()
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

//! A small language for roles, bindings and questions, so that a case is one line.
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
//! A question is `verb resource[.group][/subresource] [name] [-n namespace]`, or `verb /path`.

use access::rbac::{Change, Index, Kind, Policy};
use access::{Asked, Attributes, Resource, User};
use serde_json::{Value, json};

/// The objects of a text, as their stored JSON.
pub(crate) fn objects(text: &str) -> Vec<(Kind, String, String, Value)> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(object).collect()
}

/// The policy that a text describes.
pub(crate) fn policy(text: &str) -> Policy {
    let mut policy = Policy::default();
    for (kind, namespace, name, json) in objects(text) {
        let change = policy.put(kind, &namespace, &name, json.to_string().as_bytes()).unwrap();
        assert_eq!(change, Change::Due, "{name}");
    }
    policy
}

pub(crate) fn index(text: &str) -> Index {
    policy(text).index()
}

/// `alice` or `alice+group+group`; `sa:namespace/name` is a service account with its groups.
pub(crate) fn user(text: &str) -> User {
    let mut parts = text.split('+');
    let name = parts.next().unwrap();
    let mut user = match name.strip_prefix("sa:").and_then(|account| account.split_once('/')) {
        Some((namespace, name)) => User::service_account(namespace, name, "uid"),
        None => User::named(name),
    };
    user.groups.extend(parts.map(str::to_owned));
    user
}

/// The question that a line asks.
pub(crate) fn attributes<'a>(user: &'a User, question: &'a str) -> Attributes<'a> {
    let (verb, rest) = question.split_once(' ').unwrap();
    if rest.starts_with('/') {
        return Attributes { user, verb, object: Asked::Path(rest) };
    }
    let (rest, namespace) = rest.split_once(" -n ").unwrap_or((rest, ""));
    let (resource, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let resource = Resource { group, version: "v1", resource, subresource, namespace, name };
    Attributes { user, verb, object: Asked::Resource(resource) }
}

fn object(line: &str) -> (Kind, String, String, Value) {
    let (head, tail) = line.split_once(": ").unwrap_or_else(|| (line.strip_suffix(':').unwrap(), ""));
    let (word, rest) = head.split_once(' ').unwrap();
    let place = |name: &str| match name.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (String::new(), name.to_owned()),
    };
    match word {
        "bind" => {
            let (name, role) = rest.split_once(" to ").unwrap();
            let (namespace, name) = place(name);
            let kind = if namespace.is_empty() { Kind::ClusterRoleBinding } else { Kind::RoleBinding };
            let json = binding(&namespace, &name, role, tail);
            (kind, namespace, name, json)
        }
        _ => {
            let (rest, aggregation) = rest.split_once('<').map_or((rest, None), |(rest, labels)| (rest, Some(labels)));
            let (name, labels) = rest.split_once('{').unwrap_or((rest, ""));
            let (namespace, name) = place(name.trim());
            let kind = if word == "role" { Kind::Role } else { Kind::ClusterRole };
            let rules: Vec<Value> = tail.split(';').map(str::trim).filter(|rule| !rule.is_empty()).map(rule).collect();
            let mut json = json!({
                "kind": kind.name(), "apiVersion": "rbac.authorization.k8s.io/v1", "rules": rules,
                "metadata": {"name": name, "namespace": namespace, "labels": pairs(labels.trim().trim_end_matches('}'))},
            });
            if let Some(aggregation) = aggregation {
                let selectors: Vec<Value> =
                    aggregation.split_whitespace().map(|label| json!({"matchLabels": pairs(label)})).collect();
                json["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
            }
            (kind, namespace, name, json)
        }
    }
}

fn binding(namespace: &str, name: &str, role: &str, subjects: &str) -> Value {
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

fn rule(text: &str) -> Value {
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

fn pairs(text: &str) -> Value {
    text.split_whitespace()
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

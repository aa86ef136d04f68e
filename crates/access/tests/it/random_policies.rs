//! Property test: the index and the reference evaluator agree on random policies and queries.

use access::rbac::{RbacKind, RbacPolicy};
use serde_json::{Value, json};

use crate::{rbac_notation, reference_evaluator};

/// Few enough values that queries hit rules, many enough that rule lists get a lookup table.
const NAMES: &[&str] = &["a", "b", "c", "d"];
const NAMESPACES: &[&str] = &["dev", "ops", "ci"];
const VERBS: &[&str] = &["get", "list", "create", "delete", "*"];
const GROUPS: &[&str] = &["", "apps", "example.com", "*"];
const RESOURCES: &[&str] = &[
    "pods",
    "pods/log",
    "pods/exec",
    "deployments",
    "deployments/scale",
    "*/scale",
    "*/log",
    "pods/*",
    "*",
    "secrets",
];
const PATHS: &[&str] = &["/healthz", "/healthz/*", "/metrics", "/*", "*", "/api/**", "/version"];
const USERS: &[&str] = &["alice", "bob", "carol", "sa:dev/a", "sa:ops/b", "system:anonymous"];

struct PolicyGenerator(fastrand::Rng);

impl PolicyGenerator {
    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.0.usize(..choices.len())]
    }

    fn pick_up_to(&mut self, choices: &[&str], max: usize) -> Vec<String> {
        (0..self.0.usize(..=max)).map(|_| self.pick(choices).to_owned()).collect()
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.0.u32(..chances) == 0
    }

    fn random_rule(&mut self) -> Value {
        if self.one_in(5) {
            return json!({"verbs": self.pick_up_to(VERBS, 2), "nonResourceURLs": self.pick_up_to(PATHS, 2)});
        }
        let most = if self.one_in(4) { 2 } else { 0 };
        json!({"verbs": self.pick_up_to(VERBS, 3), "apiGroups": self.pick_up_to(GROUPS, 2), "resources": self.pick_up_to(RESOURCES, 3), "resourceNames": self.pick_up_to(NAMES, most)})
    }

    fn random_role(&mut self, rules_max: usize) -> Value {
        let rules: Vec<Value> = (0..self.0.usize(..=rules_max)).map(|_| self.random_rule()).collect();
        let mut role = json!({"rules": rules, "metadata": {"labels": {}}});
        if self.one_in(3) {
            role["metadata"]["labels"] = json!({"to": self.pick(NAMES)});
        }
        if self.one_in(6) {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": self.pick(NAMES)}}]});
        }
        role
    }

    fn random_subject(&mut self) -> Value {
        match self.0.u32(..10) {
            0..4 => json!({"kind": "User", "name": self.pick(USERS)}),
            4..7 => json!({"kind": "Group", "name": self.pick(NAMES)}),
            7 => json!({"kind": "ServiceAccount", "name": self.pick(NAMES)}),
            8 => json!({"kind": "ServiceAccount", "name": self.pick(NAMES), "namespace": self.pick(NAMESPACES)}),
            _ => json!({"kind": "Robot", "name": self.pick(NAMES)}),
        }
    }

    fn random_binding(&mut self, roles: usize) -> Value {
        let subjects: Vec<Value> = (0..self.0.usize(..4)).map(|_| self.random_subject()).collect();
        let kind = self.pick(&["Role", "ClusterRole", "ClusterRole", "Policy"]);
        json!({"subjects": subjects, "roleRef": {"kind": kind, "name": format!("r{}", self.0.usize(..=roles))}})
    }

    fn random_objects(&mut self) -> Vec<(RbacKind, String, String, Value)> {
        // One policy in four has enough rules per role and subject to need lookup tables.
        let (roles, bindings, rules_max) = if self.one_in(4) { (24, 160, 20) } else { (6, 12, 4) };
        let mut objects = Vec::new();
        for number in 0..roles {
            objects.push((RbacKind::ClusterRole, String::new(), format!("r{number}"), self.random_role(rules_max)));
            let mut role = self.random_role(rules_max);
            role.as_object_mut().unwrap().remove("aggregationRule");
            objects.push((RbacKind::Role, self.pick(NAMESPACES).to_owned(), format!("r{number}"), role));
        }
        for number in 0..bindings {
            let name = format!("b{number}");
            if self.one_in(2) {
                objects.push((RbacKind::ClusterRoleBinding, String::new(), name, self.random_binding(roles)));
            } else {
                objects.push((
                    RbacKind::RoleBinding,
                    self.pick(NAMESPACES).to_owned(),
                    name,
                    self.random_binding(roles),
                ));
            }
        }
        objects
    }

    fn random_request(&mut self) -> String {
        let verb = self.pick(VERBS);
        if self.one_in(4) {
            let path = self.pick(&["/healthz", "/healthz/etcd", "/metrics", "/", "/api", "/api/v1", "/healthz*"]);
            return format!("{verb} {path}");
        }
        let (resource, subresource) =
            self.pick(RESOURCES).split_once('/').map_or_else(|| ("pods", ""), |(resource, sub)| (resource, sub));
        let resource = match self.pick(&["", ".apps", ".example.com", ".other"]) {
            group if subresource.is_empty() => {
                format!("{}{group}", self.pick(&["pods", "deployments", "secrets", "nodes"]))
            }
            group => format!("{resource}{group}/{subresource}"),
        };
        let name = if self.one_in(2) { format!(" {}", self.pick(NAMES)) } else { String::new() };
        let namespace = if self.one_in(4) { String::new() } else { format!(" -n {}", self.pick(NAMESPACES)) };
        format!("{verb} {resource}{name}{namespace}")
    }
}

#[test]
fn index_agrees_with_reference_evaluator_on_random_requests() {
    let mut generator = PolicyGenerator(fastrand::Rng::with_seed(6));
    let (mut request_count, mut allowed) = (0, 0);
    while request_count < 100_000 {
        let objects = generator.random_objects();
        let mut policy = RbacPolicy::default();
        for (kind, namespace, name, json) in &objects {
            let _ = policy.put(*kind, namespace, name, json.to_string().as_bytes()).unwrap();
        }
        let index = policy.build_index();
        for _ in 0..500 {
            let mut user = rbac_notation::parse_user(generator.pick(USERS));
            user.groups.extend(generator.pick_up_to(NAMES, 2));
            let request = generator.random_request();
            let attributes = rbac_notation::parse_attributes(&user, &request);
            let grant = index.decide(&attributes);
            assert_eq!(
                grant.is_some(),
                reference_evaluator::policy_allows(&objects, &attributes),
                "{} {:?}: {request}",
                user.name,
                user.groups
            );
            if let Some(grant) = grant {
                let (name, namespace) = (&grant.binding.metadata.name, &grant.binding.metadata.namespace);
                let (_, _, _, binding) = objects.iter().find(|(_, ns, n, _)| n == name && ns == namespace).unwrap();
                assert!(
                    reference_evaluator::binding_grants(&objects, namespace, binding, &attributes),
                    "{grant}: {request}"
                );
                allowed += 1;
            }
            request_count += 1;
        }
    }
    assert!((20_000..80_000).contains(&allowed), "the questions are too easy: {allowed} of {request_count} allowed");
}

#[test]
fn incrementally_built_index_agrees_with_reference_evaluator() {
    let mut generator = PolicyGenerator(fastrand::Rng::with_seed(7));
    for _ in 0..40 {
        let mut objects = generator.random_objects();
        let mut policy = RbacPolicy::default();
        for (kind, namespace, name, json) in &objects {
            let _ = policy.put(*kind, namespace, name, json.to_string().as_bytes()).unwrap();
        }
        for _ in 0..20 {
            for _ in 0..generator.0.usize(1..4) {
                change_random_object(&mut generator, &mut objects, &mut policy);
            }
            let index = policy.build_index();
            for _ in 0..20 {
                let mut user = rbac_notation::parse_user(generator.pick(USERS));
                user.groups.extend(generator.pick_up_to(NAMES, 2));
                let request = generator.random_request();
                let attributes = rbac_notation::parse_attributes(&user, &request);
                let expected = reference_evaluator::policy_allows(&objects, &attributes);
                assert_eq!(index.decide(&attributes).is_some(), expected, "{} {:?}: {request}", user.name, user.groups);
            }
        }
    }
}

/// Replaces, removes or adds one object in both representations.
fn change_random_object(
    generator: &mut PolicyGenerator,
    objects: &mut Vec<(RbacKind, String, String, Value)>,
    policy: &mut RbacPolicy,
) {
    let at = generator.0.usize(..objects.len());
    let (kind, namespace, name, _) = objects[at].clone();
    if generator.one_in(3) && objects.len() > 4 {
        objects.remove(at);
        let _ = policy.remove(kind, &namespace, &name);
        return;
    }
    let json = match kind {
        RbacKind::ClusterRole => generator.random_role(4),
        RbacKind::Role => {
            let mut role = generator.random_role(4);
            role.as_object_mut().unwrap().remove("aggregationRule");
            role
        }
        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => generator.random_binding(6),
    };
    let _ = policy.put(kind, &namespace, &name, json.to_string().as_bytes()).unwrap();
    if generator.one_in(3) {
        let added = format!("{name}-again");
        let _ = policy.put(kind, &namespace, &added, json.to_string().as_bytes()).unwrap();
        objects.retain(|(k, ns, n, _)| (*k, ns, n) != (kind, &namespace, &added));
        objects.push((kind, namespace.clone(), added, json.clone()));
    }
    objects.retain(|(k, ns, n, _)| (*k, ns, n) != (kind, &namespace, &name));
    objects.push((kind, namespace, name, json));
}

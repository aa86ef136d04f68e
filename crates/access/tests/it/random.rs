//! Random policies and questions: the index and the slow evaluator must agree on every one.

use access::rbac::{Kind, Policy};
use serde_json::{Value, json};

use crate::{slow, world};

/// Few enough of everything that questions hit rules, many enough that lists become tables.
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

struct Dice(fastrand::Rng);

impl Dice {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.0.usize(..from.len())]
    }

    fn some(&mut self, from: &[&str], most: usize) -> Vec<String> {
        (0..self.0.usize(..=most)).map(|_| self.pick(from).to_owned()).collect()
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.0.u32(..chances) == 0
    }

    fn rule(&mut self) -> Value {
        if self.one_in(5) {
            return json!({"verbs": self.some(VERBS, 2), "nonResourceURLs": self.some(PATHS, 2)});
        }
        let most = if self.one_in(4) { 2 } else { 0 };
        json!({"verbs": self.some(VERBS, 3), "apiGroups": self.some(GROUPS, 2), "resources": self.some(RESOURCES, 3), "resourceNames": self.some(NAMES, most)})
    }

    fn role(&mut self, rules_max: usize) -> Value {
        let rules: Vec<Value> = (0..self.0.usize(..=rules_max)).map(|_| self.rule()).collect();
        let mut role = json!({"rules": rules, "metadata": {"labels": {}}});
        if self.one_in(3) {
            role["metadata"]["labels"] = json!({"to": self.pick(NAMES)});
        }
        if self.one_in(6) {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": self.pick(NAMES)}}]});
        }
        role
    }

    fn subject(&mut self) -> Value {
        match self.0.u32(..10) {
            0..4 => json!({"kind": "User", "name": self.pick(USERS)}),
            4..7 => json!({"kind": "Group", "name": self.pick(NAMES)}),
            7 => json!({"kind": "ServiceAccount", "name": self.pick(NAMES)}),
            8 => json!({"kind": "ServiceAccount", "name": self.pick(NAMES), "namespace": self.pick(NAMESPACES)}),
            _ => json!({"kind": "Robot", "name": self.pick(NAMES)}),
        }
    }

    fn binding(&mut self, roles: usize) -> Value {
        let subjects: Vec<Value> = (0..self.0.usize(..4)).map(|_| self.subject()).collect();
        let kind = self.pick(&["Role", "ClusterRole", "ClusterRole", "Policy"]);
        json!({"subjects": subjects, "roleRef": {"kind": kind, "name": format!("r{}", self.0.usize(..=roles))}})
    }

    fn objects(&mut self) -> Vec<(Kind, String, String, Value)> {
        // One policy in four has roles and holders with so many rules that they are searched by table.
        let (roles, bindings, rules_max) = if self.one_in(4) { (24, 160, 20) } else { (6, 12, 4) };
        let mut objects = Vec::new();
        for number in 0..roles {
            objects.push((Kind::ClusterRole, String::new(), format!("r{number}"), self.role(rules_max)));
            let mut role = self.role(rules_max);
            role.as_object_mut().unwrap().remove("aggregationRule");
            objects.push((Kind::Role, self.pick(NAMESPACES).to_owned(), format!("r{number}"), role));
        }
        for number in 0..bindings {
            let name = format!("b{number}");
            if self.one_in(2) {
                objects.push((Kind::ClusterRoleBinding, String::new(), name, self.binding(roles)));
            } else {
                objects.push((Kind::RoleBinding, self.pick(NAMESPACES).to_owned(), name, self.binding(roles)));
            }
        }
        objects
    }

    fn question(&mut self) -> String {
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
fn a_hundred_thousand_random_questions_are_answered_as_by_the_slow_evaluator() {
    let mut dice = Dice(fastrand::Rng::with_seed(6));
    let (mut asked, mut allowed) = (0, 0);
    while asked < 100_000 {
        let objects = dice.objects();
        let mut policy = Policy::default();
        for (kind, namespace, name, json) in &objects {
            let _ = policy.put(*kind, namespace, name, json.to_string().as_bytes()).unwrap();
        }
        let index = policy.index();
        for _ in 0..500 {
            let mut user = world::user(dice.pick(USERS));
            user.groups.extend(dice.some(NAMES, 2));
            let question = dice.question();
            let attributes = world::attributes(&user, &question);
            let grant = index.decide(&attributes);
            assert_eq!(
                grant.is_some(),
                slow::allows(&objects, &attributes),
                "{} {:?}: {question}",
                user.name,
                user.groups
            );
            if let Some(grant) = grant {
                let (name, namespace) = (&grant.binding.metadata.name, &grant.binding.metadata.namespace);
                let (_, _, _, binding) = objects.iter().find(|(_, ns, n, _)| n == name && ns == namespace).unwrap();
                assert!(slow::grants(&objects, namespace, binding, &attributes), "{grant}: {question}");
                allowed += 1;
            }
            asked += 1;
        }
    }
    assert!((20_000..80_000).contains(&allowed), "the questions are too easy: {allowed} of {asked} allowed");
}

#[test]
fn an_index_made_of_changes_is_the_index_made_at_once() {
    let mut dice = Dice(fastrand::Rng::with_seed(7));
    for _ in 0..40 {
        let mut objects = dice.objects();
        let mut policy = Policy::default();
        for (kind, namespace, name, json) in &objects {
            let _ = policy.put(*kind, namespace, name, json.to_string().as_bytes()).unwrap();
        }
        for _ in 0..20 {
            for _ in 0..dice.0.usize(1..4) {
                change_something(&mut dice, &mut objects, &mut policy);
            }
            let index = policy.index();
            for _ in 0..20 {
                let mut user = world::user(dice.pick(USERS));
                user.groups.extend(dice.some(NAMES, 2));
                let question = dice.question();
                let attributes = world::attributes(&user, &question);
                let expected = slow::allows(&objects, &attributes);
                assert_eq!(
                    index.decide(&attributes).is_some(),
                    expected,
                    "{} {:?}: {question}",
                    user.name,
                    user.groups
                );
            }
        }
    }
}

/// Replaces, removes or adds one object, here and there.
fn change_something(dice: &mut Dice, objects: &mut Vec<(Kind, String, String, Value)>, policy: &mut Policy) {
    let at = dice.0.usize(..objects.len());
    let (kind, namespace, name, _) = objects[at].clone();
    if dice.one_in(3) && objects.len() > 4 {
        objects.remove(at);
        let _ = policy.remove(kind, &namespace, &name);
        return;
    }
    let json = match kind {
        Kind::ClusterRole => dice.role(4),
        Kind::Role => {
            let mut role = dice.role(4);
            role.as_object_mut().unwrap().remove("aggregationRule");
            role
        }
        Kind::RoleBinding | Kind::ClusterRoleBinding => dice.binding(6),
    };
    let _ = policy.put(kind, &namespace, &name, json.to_string().as_bytes()).unwrap();
    if dice.one_in(3) {
        let added = format!("{name}-again");
        let _ = policy.put(kind, &namespace, &added, json.to_string().as_bytes()).unwrap();
        objects.retain(|(k, ns, n, _)| (*k, ns, n) != (kind, &namespace, &added));
        objects.push((kind, namespace.clone(), added, json.clone()));
    }
    objects.retain(|(k, ns, n, _)| (*k, ns, n) != (kind, &namespace, &name));
    objects.push((kind, namespace, name, json));
}

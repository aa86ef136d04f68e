//! Cost of one authorization decision with 5,000 bindings.

use std::hint::black_box;
use std::time::Duration;

use access::rbac::{RbacIndex, RbacKind, RbacPolicy};
use access::{Attributes, Authorizer, ResourceAttributes, User};
use serde_json::json;

use crate::Effort;
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::median_time;

const BINDINGS: usize = 5_000;
const NAMESPACES: usize = 50;
const ROLES: usize = 100;
/// Goal for one decision.
const DECISION_MAX: Duration = Duration::from_micros(5);

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    let authorizer = Authorizer::parse("RBAC")?;
    let index = build_rbac_index()?;
    let user = |name: &str, groups: usize| User {
        groups: (0..groups).map(|group| format!("group-{group}")).collect(),
        ..User::named(name)
    };
    let rows = [
        ("a user with a direct binding", user("user-7", 0), "resource-7", true),
        ("a user in one group with a binding", user("stranger", 1), "resource-0", true),
        ("a user in 100 groups, the last one allowed", user("stranger", 100), "resource-99", true),
        ("a user in 100 groups, not allowed", user("stranger", 100), "nothing", false),
        ("a user without bindings", user("stranger", 0), "resource-7", false),
    ];
    for (name, user, resource, expected) in &rows {
        let resource = ResourceAttributes {
            version: "v1",
            resource,
            namespace: "namespace-7",
            name: "x",
            ..ResourceAttributes::default()
        };
        let asked = Attributes::for_resource(user, "get", resource);
        let decide = || authorizer.decide(black_box(&index), black_box(&asked)).is_allowed();
        anyhow::ensure!(decide() == *expected, "{name}: wrong decision");
        table.push(BenchRow::time(*name, median_time(effort, decide)).with_goal(Measurement::Time(DECISION_MAX)));
    }
    Ok(())
}

/// One role per resource, bound to a user and a group in every namespace.
fn build_rbac_index() -> anyhow::Result<RbacIndex> {
    let mut policy = RbacPolicy::default();
    for role in 0..ROLES {
        let rules: Vec<_> =
            (0..3).map(|part| json!({"apiGroups": [""], "resources": [format!("resource-{role}"), format!("part-{part}")], "verbs": ["get", "list"]})).collect();
        let json = json!({"metadata": {"name": format!("role-{role}")}, "rules": rules}).to_string();
        let _ = policy.put(RbacKind::ClusterRole, "", &format!("role-{role}"), json.as_bytes())?;
    }
    for at in 0..BINDINGS {
        let (namespace, role) = (format!("namespace-{}", at % NAMESPACES), at / NAMESPACES % ROLES);
        let subjects = json!([
            {"kind": "User", "name": format!("user-{role}"), "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "Group", "name": format!("group-{role}"), "apiGroup": "rbac.authorization.k8s.io"},
        ]);
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("role-{role}")});
        let json =
            json!({"metadata": {"name": format!("binding-{at}")}, "subjects": subjects, "roleRef": role}).to_string();
        let _ = policy.put(RbacKind::RoleBinding, &namespace, &format!("binding-{at}"), json.as_bytes())?;
    }
    Ok(policy.build_index())
}

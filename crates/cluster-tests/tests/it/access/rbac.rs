//! Roles and bindings: privilege escalation, validation, revocation and aggregation.

use super::*;

#[test]
fn rbac_prevents_privilege_escalation() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (admin, jane) = (server.admin(), server.client_with(issue_client_certificate(&server, "jane", None)));
    block_on(async {
        let rules = json!([
            {"verbs": ["create", "update", "patch", "get"], "apiGroups": ["rbac.authorization.k8s.io"],
             "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
        ]);
        grant_cluster_role(&admin, &jane, "jane", &rules).await;
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
        let role = |verb: &str| json!({"metadata": {"name": "r"}, "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["configmaps"]}]});
        let refused = jane.create(roles, &role("delete")).await;
        assert_eq!(
            refused.summary(),
            "403 roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) \
             is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}"
        );
        assert_eq!(jane.create(roles, &role("get")).await.status, 201, "a user may grant rights that they hold");
        let path = format!("{roles}/r");
        assert_eq!(jane.update(&path, &role("delete")).await.status, 403);
        let patch = r#"[{"op":"add","path":"/rules/0/verbs/-","value":"list"}]"#;
        assert_eq!(jane.send_body(Method::PATCH, &path, "application/json-patch+json", patch.into()).await.status, 403);
        let put = json!({"metadata": {"name": "r2"}, "rules": role("delete")["rules"]});
        assert_eq!(jane.update(&format!("{roles}/r2"), &put).await.status, 403, "a PUT that creates");

        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        let binding = |kind: &str, name: &str| json!({"metadata": {"name": "b"}, "roleRef": {"kind": kind, "name": name}, "subjects": [{"kind": "User", "name": "bob"}]});
        let bound = jane.create(bindings, &binding("ClusterRole", "cluster-admin")).await;
        assert!(bound.status == 403 && bound.summary().contains("not currently held"), "{}", bound.summary());
        assert_eq!(
            jane.create(bindings, &binding("Role", "none")).await.summary(),
            "404 role.rbac.authorization.k8s.io \"none\" not found"
        );
        assert_eq!(jane.create(bindings, &binding("Role", "r")).await.status, 201);
        let aggregated = json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
        let aggregated = jane.create(CLUSTER_ROLES, &aggregated).await;
        assert!(
            aggregated.summary().contains("must have cluster-admin privileges to use the aggregationRule"),
            "{aggregated:?}"
        );
    });
}

#[test]
fn escalate_and_bind_verbs_permit_escalation() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (admin, jane) = (server.admin(), server.client_with(issue_client_certificate(&server, "jane", None)));
    block_on(async {
        let rules = json!([
            {"verbs": ["create", "escalate", "bind"], "apiGroups": ["rbac.authorization.k8s.io"],
             "resources": ["roles", "rolebindings", "clusterroles"]},
        ]);
        grant_cluster_role(&admin, &jane, "jane", &rules).await;
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
        let role =
            json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
        assert_eq!(jane.create(roles, &role).await.status, 201);
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}});
        assert_eq!(jane.create(bindings, &binding).await.status, 201);
    });
}

#[test]
fn invalid_roles_and_changed_role_refs_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        let bad = admin.create(CLUSTER_ROLES, &json!({"metadata": {"name": "x"}, "rules": [{"verbs": ["get"]}]})).await;
        assert_eq!(bad.status, 422, "{bad:?}");
        let binding = |role: &str| json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": role}});
        let created = admin.create(CLUSTER_ROLE_BINDINGS, &binding("view")).await.json();
        assert_eq!(created["roleRef"]["apiGroup"], "rbac.authorization.k8s.io", "the group is filled in");
        let changed = admin.update(&format!("{CLUSTER_ROLE_BINDINGS}/b"), &binding("edit")).await;
        assert!(changed.summary().ends_with("\"Name\":\"edit\"}: field is immutable"), "{}", changed.summary());
    });
}

#[test]
fn revoked_binding_takes_effect_on_all_servers() {
    let folder = tempfile::tempdir().unwrap();
    let servers: Vec<RunningServer> = (0..3).map(|_| start_on_sqlite(folder.path(), &[])).collect();
    let identity = issue_client_certificate(&servers[0], "jane", None);
    let jane: Vec<Client> = servers.iter().map(|server| server.client_with(identity.clone())).collect();
    let admin = servers[0].admin();
    block_on(async {
        let binding = json!({
            "metadata": {"name": "jane"},
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "jane"}],
        });
        for _ in 0..10 {
            assert_eq!(admin.create(CLUSTER_ROLE_BINDINGS, &binding).await.status, 201);
            for jane in &jane {
                wait_until(async || jane.get(CONFIG_MAPS_PATH).await.status == 200).await;
            }
            admin.delete(&format!("{CLUSTER_ROLE_BINDINGS}/jane")).await;
            let mut slowest = Duration::ZERO;
            for jane in &jane {
                slowest = slowest.max(wait_until(async || jane.get(CONFIG_MAPS_PATH).await.status == 403).await);
            }
            println!("revoked on three servers after {slowest:?}");
        }
    });
}

#[test]
fn aggregated_role_shows_the_rules_of_matching_roles() {
    let folder = tempfile::tempdir().unwrap();
    let servers: Vec<RunningServer> = (0..2).map(|_| start_on_sqlite(folder.path(), &[])).collect();
    let [admin, other] = [0, 1].map(|at| servers[at].admin());
    block_on(async {
        let rules = async |client: &Client, name: &str| {
            client.get(&format!("{CLUSTER_ROLES}/{name}")).await.json()["rules"].clone()
        };
        let is_in = |rules: &Value, resource: &str| {
            let lists = rules.as_array().into_iter().flatten().map(|rule| rule["resources"].clone());
            lists.into_iter().any(|list| list.as_array().is_some_and(|list| list.contains(&json!(resource))))
        };
        wait_until(async || is_in(&rules(&admin, "view").await, "configmaps")).await;
        let role = json!({
            "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]}],
        });
        assert_eq!(admin.create(CLUSTER_ROLES, &role).await.status, 201);
        for name in ["view", "edit", "admin"] {
            wait_until(async || is_in(&rules(&other, name).await, "widgets")).await;
        }
        admin.delete(&format!("{CLUSTER_ROLES}/widgets")).await;
        for name in ["view", "edit", "admin"] {
            wait_until(async || !is_in(&rules(&other, name).await, "widgets")).await;
        }
    });
}

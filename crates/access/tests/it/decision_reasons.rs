//! Decision reasons, and the effect of policy changes on decisions.

use access::rbac::{PolicyChange, RbacKind};
use access::{Authorizer, Decision};
use expect_test::{Expect, expect};

use crate::decisions::{POLICY, is_allowed, rbac_authorizer};
use crate::rbac_notation;

#[track_caller]
fn check_reason(user_text: &str, request: &str, expected: &Expect) {
    let index = rbac_notation::parse_index(POLICY);
    let user = rbac_notation::parse_user(user_text);
    let attributes = rbac_notation::parse_attributes(&user, request);
    let text = match rbac_authorizer().decide(&index, &attributes) {
        Decision::Allowed(allowed) => format!("yes: {allowed}"),
        Decision::NotAllowed { reason } => {
            let denied = access::authorization::AccessDenied::new(&attributes, &reason);
            format!("no: {} {:?}: {denied}", denied.resource, denied.name)
        }
    };
    expected.assert_eq(&text);
}

#[test]
fn allowed_reason_names_binding_role_and_subject() {
    check_reason(
        "alice",
        "get pods p -n dev",
        &expect![[r#"yes: RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "pod-reader" to User "alice""#]],
    );
    check_reason(
        "zoe+readers",
        "get pods p -n dev",
        &expect![[
            r#"yes: RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "pod-reader" to Group "readers""#
        ]],
    );
    check_reason(
        "sa:dev/builder",
        "create deployments.apps -n dev",
        &expect![[
            r#"yes: RBAC: allowed by RoleBinding "deployers/dev" of Role "deployer" to ServiceAccount "builder/dev""#
        ]],
    );
    check_reason(
        "carol",
        "list pods -n dev",
        &expect![[r#"yes: RBAC: allowed by RoleBinding "readers/dev" of ClusterRole "pod-reader" to User "carol""#]],
    );
    check_reason("zoe+system:masters", "delete nodes n", &expect!["yes: "]);
}

#[test]
fn forbidden_message_names_request_and_missing_role() {
    check_reason(
        "alice",
        "delete pods p -n dev",
        &expect![[
            r#"no: pods "p": User "alice" cannot delete resource "pods" in API group "" in the namespace "dev""#
        ]],
    );
    check_reason(
        "alice",
        "list deployments.apps",
        &expect![[
            r#"no: deployments.apps "": User "alice" cannot list resource "deployments" in API group "apps" at the cluster scope"#
        ]],
    );
    check_reason(
        "scott",
        "patch deployments.apps/scale d -n dev",
        &expect![[
            r#"no: deployments.apps "d": User "scott" cannot patch resource "deployments/scale" in API group "apps" in the namespace "dev""#
        ]],
    );
    check_reason(
        "system:anonymous+system:unauthenticated",
        "get /api",
        &expect![[r#"no:  "": User "system:anonymous" cannot get path "/api""#]],
    );
    check_reason(
        "gina",
        "list pods",
        &expect![[
            r#"no: pods "": User "gina" cannot list resource "pods" in API group "" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "missing" not found"#
        ]],
    );
    check_reason(
        "gina",
        "list pods -n dev",
        &expect![[
            r#"no: pods "": User "gina" cannot list resource "pods" in API group "" in the namespace "dev": RBAC: [clusterrole.rbac.authorization.k8s.io "missing" not found, role.rbac.authorization.k8s.io "missing" not found]"#
        ]],
    );
    check_reason(
        "rolf",
        "list pods",
        &expect![[
            r#"no: pods "": User "rolf" cannot list resource "pods" in API group "" at the cluster scope: RBAC: role.rbac.authorization.k8s.io "deployer" not found"#
        ]],
    );
    check_reason(
        "polly",
        "list pods",
        &expect![[
            r#"no: pods "": User "polly" cannot list resource "pods" in API group "" at the cluster scope: RBAC: unsupported role reference kind: "Policy""#
        ]],
    );
}

#[test]
fn aggregated_role_follows_its_sources() {
    let mut policy = rbac_notation::parse_policy(POLICY);
    assert!(!is_allowed(&policy.build_index(), "eddy", "list widgets.example.com"));

    let (_, _, _, part) =
        rbac_notation::parse_objects("clusterrole crd {to-view=yes}: list example.com widgets").remove(0);
    assert_eq!(
        policy.put(RbacKind::ClusterRole, "", "crd", part.to_string().as_bytes()).unwrap(),
        PolicyChange::AffectsDecisions
    );
    let with_part = policy.build_index();
    assert!(is_allowed(&with_part, "vera", "list widgets.example.com"));
    assert!(is_allowed(&with_part, "eddy", "list widgets.example.com"));

    let (_, _, _, unlabelled) = rbac_notation::parse_objects("clusterrole crd: list example.com widgets").remove(0);
    assert_eq!(
        policy.put(RbacKind::ClusterRole, "", "crd", unlabelled.to_string().as_bytes()).unwrap(),
        PolicyChange::AffectsDecisions
    );
    assert!(!is_allowed(&policy.build_index(), "eddy", "list widgets.example.com"));
    assert!(is_allowed(&with_part, "eddy", "list widgets.example.com"), "an index is immutable");

    assert_eq!(policy.remove(RbacKind::ClusterRole, "", "part-a"), PolicyChange::AffectsDecisions);
    assert!(!is_allowed(&policy.build_index(), "eddy", "get configmaps c -n dev"));
}

#[test]
fn outdated_aggregates_are_ordered_by_selector_and_name() {
    let lines = |policy: &access::rbac::RbacPolicy| {
        let aggregates = policy.outdated_aggregates().into_iter().map(|(name, rules)| {
            let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
            format!("{name}: {}\n", rules.join(" "))
        });
        aggregates.collect::<String>()
    };
    let mut policy = rbac_notation::parse_policy(POLICY);
    expect![[r#"
        edit: {APIGroups:[""], Resources:["configmaps"], Verbs:["get"]} {APIGroups:[""], Resources:["secrets"], ResourceNames:["open"], Verbs:["get"]}
        view: {APIGroups:[""], Resources:["configmaps"], Verbs:["get"]} {APIGroups:[""], Resources:["secrets"], ResourceNames:["open"], Verbs:["get"]}
    "#]]
    .assert_eq(&lines(&policy));
    // Rules are ordered by selector, then by name, without duplicates.
    for (kind, namespace, name, json) in rbac_notation::parse_objects(
        "clusterrole all < x=2 to-view=yes x=1: delete core everything
         clusterrole z-first {x=2}: get core b
         clusterrole a-last {x=1}: get core a; get core configmaps",
    ) {
        let _ = policy.put(kind, &namespace, &name, json.to_string().as_bytes()).unwrap();
    }
    let all = lines(&policy);
    let all = all.lines().next().unwrap();
    expect![[r#"all: {APIGroups:[""], Resources:["b"], Verbs:["get"]} {APIGroups:[""], Resources:["configmaps"], Verbs:["get"]} {APIGroups:[""], Resources:["secrets"], ResourceNames:["open"], Verbs:["get"]} {APIGroups:[""], Resources:["a"], Verbs:["get"]}"#]].assert_eq(all);
}

#[test]
fn policy_change_has_no_effect_if_decisions_are_the_same() {
    let mut policy = rbac_notation::parse_policy(
        "clusterrole r: get core pods\nbind b to clusterrole r: user=alice\nbind dev/b to clusterrole r: user=bob\nrole dev/r: get core pods",
    );
    for (kind, namespace, name, mut json) in rbac_notation::parse_objects(
        "clusterrole r: get core pods\nbind b to clusterrole r: user=alice\nbind dev/b to clusterrole r: user=bob\nrole dev/r: get core pods",
    ) {
        json["metadata"]["annotations"] = serde_json::json!({"note": "new"});
        assert_eq!(
            policy.put(kind, &namespace, &name, json.to_string().as_bytes()).unwrap(),
            PolicyChange::NoEffect,
            "{kind}"
        );
        assert_eq!(policy.remove(kind, &namespace, &name), PolicyChange::AffectsDecisions);
        assert_eq!(policy.remove(kind, &namespace, &name), PolicyChange::NoEffect);
    }
}

#[test]
fn unreadable_rbac_object_grants_nothing() {
    let mut policy = rbac_notation::parse_policy("clusterrole r: get core pods\nbind b to clusterrole r: user=alice");
    assert!(is_allowed(&policy.build_index(), "alice", "get pods p"));
    let error = policy.put(RbacKind::ClusterRoleBinding, "", "b", br#"{"subjects":7}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ClusterRoleBinding b cannot be read and grants nothing: invalid type: integer `7`, expected a sequence at line 1 column 13"
    );
    assert!(!is_allowed(&policy.build_index(), "alice", "get pods p"));
    let error = policy.put(RbacKind::Role, "dev", "r", b"").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Role dev/r cannot be read and grants nothing: EOF while parsing a value at line 1 column 0"
    );
}

#[test]
fn authorization_modes_are_tried_in_order_after_masters() {
    let index = rbac_notation::parse_index(POLICY);
    let decide = |modes: &str, who: &str| {
        let user = rbac_notation::parse_user(who);
        let decision =
            Authorizer::parse(modes).unwrap().decide(&index, &rbac_notation::parse_attributes(&user, "delete nodes n"));
        format!("{} {:?}", decision.is_allowed(), decision.reason())
    };
    assert_eq!(decide("AlwaysAllow", "alice"), r#"true """#);
    assert_eq!(decide("AlwaysDeny", "alice"), r#"false "Everything is forbidden.""#);
    assert_eq!(decide("AlwaysDeny", "alice+system:masters"), r#"true """#);
    assert_eq!(
        decide("AlwaysDeny,RBAC", "alice+admins"),
        r#"true "RBAC: allowed by ClusterRoleBinding \"admins\" of ClusterRole \"cluster-admin\" to Group \"admins\"""#
    );
    assert_eq!(
        decide("AlwaysDeny,RBAC", "gina"),
        r#"false "Everything is forbidden.\nRBAC: clusterrole.rbac.authorization.k8s.io \"missing\" not found""#
    );
    assert_eq!(decide("Node", "alice"), r#"false """#);
}

#[test]
fn authorization_mode_flag_is_parsed_and_validated() {
    let error = |list: &str| Authorizer::parse(list).unwrap_err().to_string();
    expect!["--authorization-mode: at least one authorization-mode must be passed"].assert_eq(&error(""));
    expect![[r#"--authorization-mode: authorization-mode "rbac" is not a valid mode"#]].assert_eq(&error("rbac"));
    expect!["--authorization-mode: Webhook is not supported; use RBAC, or AlwaysAllow for tests"]
        .assert_eq(&error("RBAC,Webhook"));
    expect!["--authorization-mode: ABAC is not supported; use RBAC, or AlwaysAllow for tests"]
        .assert_eq(&error("ABAC"));
    expect![[r#"--authorization-mode: authorization-mode ["RBAC" "RBAC"] has mode specified more than once"#]]
        .assert_eq(&error("RBAC,RBAC"));
    let notice = Authorizer::parse("Node,RBAC").unwrap().startup_warning();
    expect!["--authorization-mode: Node is accepted and has no opinion; grant nodes what they need with RBAC"]
        .assert_eq(notice.unwrap());
    assert_eq!(Authorizer::parse("RBAC").unwrap().startup_warning(), None);
    assert!(Authorizer::parse("RBAC").unwrap().permits_anonymous());
    assert!(!Authorizer::parse("AlwaysAllow").unwrap().permits_anonymous());
}

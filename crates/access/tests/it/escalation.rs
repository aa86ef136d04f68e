//! Privilege escalation checks.

use access::Authorizer;
use access::rbac::RbacKind;
use access::rbac::escalation::{self, RbacWrite};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::rbac_notation;

const POLICY: &str = "
    clusterrole admin: get,list,create core pods,pods/log; get /healthz/*; get * */scale; * apps deployments,statefulsets
    clusterrole rbac: create,update rbac.authorization.k8s.io clusterroles,roles,clusterrolebindings,rolebindings
    clusterrole escalator: escalate rbac.authorization.k8s.io clusterroles,roles
    clusterrole escalate-one: escalate rbac.authorization.k8s.io clusterroles special
    clusterrole binder: bind rbac.authorization.k8s.io clusterroles big
    clusterrole everything: get,list,create * *; * * *; * *
    clusterrole big: * core nodes
    clusterrole small: get core pods
    clusterrole some-names: get core secrets a,b
    role dev/local: get core secrets
    bind a to clusterrole admin: user=alice user=eve user=ida
    bind b to clusterrole rbac: user=alice user=eve
    bind c to clusterrole escalator: user=eve
    bind d to clusterrole escalate-one: user=ida
    bind e to clusterrole binder: user=bob
    bind f to clusterrole everything: user=root
    bind g to clusterrole gone: user=gina
    bind h to clusterrole some-names: user=nina
    bind dev/i to role local: user=nina
    bind dev/j to clusterrole binder: user=dev-bob
    bind k to clusterrole gone-too: user=gina
";

fn parse_one_object(line: &str) -> (RbacKind, String, String, Value) {
    rbac_notation::parse_objects(line).remove(0)
}

fn describe_write_attempt(user_text: &str, line: &str, old: Option<&Value>, modes: &str) -> String {
    let (kind, namespace, name, new) = parse_one_object(line);
    let index = rbac_notation::parse_index(POLICY);
    let user = rbac_notation::parse_user(user_text);
    let (new, old) = (new.to_string(), old.map(ToString::to_string));
    let path_name = if old.is_some() { name.as_str() } else { "" };
    let old = old.as_deref().map(str::as_bytes);
    let write = RbacWrite { user: &user, kind, namespace: &namespace, name: path_name, new: new.as_bytes(), old };
    match escalation::check_escalation(&Authorizer::parse(modes).unwrap(), &index, &write) {
        Ok(()) => "ok".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(user_text: &str, line: &str, expected: &Expect) {
    expected.assert_eq(&describe_write_attempt(user_text, line, None, "RBAC"));
}

#[test]
fn role_within_held_permissions_may_be_written() {
    for line in [
        "clusterrole x: get core pods",
        "clusterrole x: get,list core pods,pods/log",
        "clusterrole x: get core pods one",
        "clusterrole x: get apps deployments/scale",
        "clusterrole x: get * */scale",
        "clusterrole x: frob apps deployments",
        "clusterrole x: * apps deployments",
        "clusterrole x: get /healthz/etcd,/healthz/*",
        "clusterrole x:",
        "role dev/x: get core pods",
    ] {
        assert_eq!(describe_write_attempt("alice", line, None, "RBAC"), "ok", "{line}");
    }
    assert_eq!(describe_write_attempt("nina", "role dev/x: get core secrets c", None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("nina", "clusterrole x: get core secrets a", None, "RBAC"), "ok");
}

#[test]
fn role_beyond_held_permissions_is_forbidden_with_missing_list() {
    check(
        "alice+dev+system:authenticated",
        "clusterrole x: get,delete,patch core pods,nodes; get core pods/exec; get /healthz,/metrics; * apps *",
        &expect![[r#"
            user "alice" (groups=["dev" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
            {APIGroups:[""], Resources:["nodes"], Verbs:["get" "delete" "patch"]}
            {APIGroups:[""], Resources:["pods"], Verbs:["delete" "patch"]}
            {APIGroups:[""], Resources:["pods/exec"], Verbs:["get"]}
            {APIGroups:["apps"], Resources:["*"], Verbs:["*"]}
            {NonResourceURLs:["/healthz"], Verbs:["get"]}
            {NonResourceURLs:["/metrics"], Verbs:["get"]}"#]],
    );
}

#[test]
fn permission_on_some_names_does_not_cover_all_names() {
    check(
        "nina",
        "clusterrole x: get core secrets",
        &expect![[r#"
            user "nina" (groups=[]) is attempting to grant RBAC permissions not currently held:
            {APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#]],
    );
    check(
        "nina",
        "clusterrole x: get core secrets a,c",
        &expect![[r#"
            user "nina" (groups=[]) is attempting to grant RBAC permissions not currently held:
            {APIGroups:[""], Resources:["secrets"], ResourceNames:["c"], Verbs:["get"]}"#]],
    );
}

#[test]
fn namespaced_permission_covers_only_its_namespace() {
    assert_eq!(describe_write_attempt("nina", "role dev/x: get core secrets", None, "RBAC"), "ok");
    check(
        "nina",
        "role ops/x: get core secrets",
        &expect![[r#"
            user "nina" (groups=[]) is attempting to grant RBAC permissions not currently held:
            {APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#]],
    );
}

#[test]
fn escalation_error_lists_unresolved_roles() {
    check(
        "gina",
        "clusterrole x: get core pods",
        &expect![[r#"
            user "gina" (groups=[]) is attempting to grant RBAC permissions not currently held:
            {APIGroups:[""], Resources:["pods"], Verbs:["get"]}; resolution errors: [[clusterrole.rbac.authorization.k8s.io "gone" not found, clusterrole.rbac.authorization.k8s.io "gone-too" not found]]"#]],
    );
}

#[test]
fn masters_escalate_verb_and_full_permissions_allow_any_role() {
    let role = "clusterrole x: * * *";
    assert_eq!(describe_write_attempt("zoe+system:masters", role, None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("zoe+system:masters", "bind x to Policy small: user=zoe", None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("eve", role, None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("root", role, None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("zoe", role, None, "AlwaysAllow"), "ok");
    assert!(describe_write_attempt("alice", role, None, "RBAC").starts_with("user "));
}

#[test]
fn escalate_on_one_name_allows_update_and_not_create() {
    let (_, _, _, old) = parse_one_object("clusterrole special: get core pods");
    assert_eq!(describe_write_attempt("ida", "clusterrole special: * * *", Some(&old), "RBAC"), "ok");
    assert!(describe_write_attempt("ida", "clusterrole special: * * *", None, "RBAC").starts_with("user "));
    assert!(describe_write_attempt("ida", "clusterrole other: * * *", Some(&old), "RBAC").starts_with("user "));
}

#[test]
fn aggregation_rule_requires_all_permissions() {
    let aggregated = "clusterrole x < to=x: get core pods";
    assert_eq!(describe_write_attempt("root", aggregated, None, "RBAC"), "ok");
    check("alice", aggregated, &expect!["must have cluster-admin privileges to use the aggregationRule"]);
    let (_, _, _, old) = parse_one_object(aggregated);
    expect!["must have cluster-admin privileges to use the aggregationRule"].assert_eq(&describe_write_attempt(
        "alice",
        "clusterrole x: get core pods",
        Some(&old),
        "RBAC",
    ));
}

#[test]
fn binding_requires_role_permissions_or_bind_verb() {
    assert_eq!(describe_write_attempt("alice", "bind x to clusterrole small: user=zoe", None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("bob", "bind x to clusterrole big: user=zoe", None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("bob", "bind dev/x to clusterrole big: user=zoe", None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("dev-bob", "bind dev/x to clusterrole big: user=zoe", None, "RBAC"), "ok");
    assert_eq!(describe_write_attempt("nina", "bind dev/x to role local: user=zoe", None, "RBAC"), "ok");
    assert_eq!(
        describe_write_attempt("zoe+system:masters", "bind x to clusterrole nowhere: user=zoe", None, "RBAC"),
        "ok"
    );
    check(
        "dev-bob",
        "bind x to clusterrole big: user=zoe",
        &expect![[r#"
            user "dev-bob" (groups=[]) is attempting to grant RBAC permissions not currently held:
            {APIGroups:[""], Resources:["nodes"], Verbs:["*"]}"#]],
    );
    check(
        "alice",
        "bind dev/x to clusterrole big: user=zoe",
        &expect![[r#"
            user "alice" (groups=[]) is attempting to grant RBAC permissions not currently held:
            {APIGroups:[""], Resources:["nodes"], Verbs:["*"]}"#]],
    );
    check(
        "alice",
        "bind x to clusterrole nowhere: user=zoe",
        &expect![[r#"clusterrole.rbac.authorization.k8s.io "nowhere" not found"#]],
    );
    check("alice", "bind x to Policy small: user=zoe", &expect![[r#"unsupported role reference kind: "Policy""#]]);
}

#[test]
fn garbage_collector_may_remove_finalizers_of_any_role() {
    let (_, _, _, mut old) = parse_one_object("clusterrole x: * * *");
    old["metadata"]["finalizers"] = json!(["f"]);
    old["metadata"]["ownerReferences"] = json!([{"uid": "u"}]);
    assert_eq!(describe_write_attempt("alice", "clusterrole x: * * *", Some(&old), "RBAC"), "ok");
    let (_, _, _, mut old) = parse_one_object("bind x to clusterrole big: user=zoe");
    old["metadata"]["finalizers"] = json!(["f"]);
    assert_eq!(describe_write_attempt("alice", "bind x to clusterrole big: user=zoe", Some(&old), "RBAC"), "ok");
    old["metadata"]["labels"] = json!({"a": "b"});
    assert!(
        describe_write_attempt("alice", "bind x to clusterrole big: user=zoe", Some(&old), "RBAC").starts_with("user ")
    );
}

#[test]
fn rules_with_too_many_permissions_are_forbidden() {
    let many = |prefix: &str| (0..100).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(",");
    let line = format!("clusterrole x: {} {} {} {}", many("v"), many("g"), many("r"), many("n"));
    expect!["the rules name more than 100000 combinations of group, resource, name and verb"]
        .assert_eq(&describe_write_attempt("alice", &line, None, "RBAC"));
}

#[test]
fn write_of_unreadable_role_is_bad_request() {
    let index = rbac_notation::parse_index(POLICY);
    let user = rbac_notation::parse_user("alice");
    let write = RbacWrite { user: &user, kind: RbacKind::Role, namespace: "dev", name: "x", new: b"[]", old: None };
    let error = escalation::check_escalation(&Authorizer::parse("RBAC").unwrap(), &index, &write).unwrap_err();
    assert!(matches!(error, escalation::EscalationError::InvalidObject(_)), "{error}");
}

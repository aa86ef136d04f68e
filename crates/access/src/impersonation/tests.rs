use expect_test::{Expect, expect};

use super::*;
use crate::rbac::{RbacKind, RbacPolicy};

const ROLES: &[(&str, &str)] = &[
    (
        "users",
        r#"{"rules":[{"verbs":["impersonate"],"apiGroups":[""],"resources":["users","groups","serviceaccounts"]}]}"#,
    ),
    (
        "one-group",
        r#"{"rules":[{"verbs":["impersonate"],"apiGroups":[""],"resources":["users"]},{"verbs":["impersonate"],"apiGroups":[""],"resources":["groups"],"resourceNames":["developers"]}]}"#,
    ),
    (
        "all",
        r#"{"rules":[{"verbs":["impersonate"],"apiGroups":["","authentication.k8s.io"],"resources":["users","groups","uids","userextras/scopes","userextras/example.com/key"]}]}"#,
    ),
];

fn test_index() -> RbacIndex {
    let mut policy = RbacPolicy::default();
    for (name, json) in ROLES {
        let _ = policy.put(RbacKind::ClusterRole, "", name, json.as_bytes()).unwrap();
        let binding = format!(
            r#"{{"subjects":[{{"kind":"User","name":"may-{name}"}}],"roleRef":{{"kind":"ClusterRole","name":"{name}"}}}}"#
        );
        let _ = policy.put(RbacKind::ClusterRoleBinding, "", name, binding.as_bytes()).unwrap();
    }
    policy.build_index()
}

fn describe_impersonation(requester: &str, headers: &[(&str, &str)]) -> String {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    let impersonated = match ImpersonatedUser::from_headers(&headers) {
        Ok(Some(impersonated)) => impersonated,
        Ok(None) => return "none".to_owned(),
        Err(error) => return error.to_string(),
    };
    let authorizer = Authorizer::parse("RBAC").unwrap();
    match impersonated.authorize(&authorizer, &test_index(), &User::named(requester)) {
        Ok(user) => format!("{} uid={} groups={} extra={:?}", user.name, user.uid, user.groups.join("+"), user.extra),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(requester: &str, headers: &[(&str, &str)], expected: &Expect) {
    expected.assert_eq(&describe_impersonation(requester, headers));
}

#[test]
fn request_without_impersonate_user_is_not_impersonated() {
    check("alice", &[("accept", "*/*"), ("x-impersonate-user", "bob")], &expect!["none"]);
    check("alice", &[("impersonate-user", "")], &expect!["none"]);
}

#[test]
fn impersonated_user_gets_authenticated_group() {
    check("may-users", &[("impersonate-user", "bob")], &expect!["bob uid= groups=system:authenticated extra={}"]);
    check(
        "may-users",
        &[("Impersonate-User", "bob"), ("impersonate-group", "a"), ("Impersonate-Group", "b")],
        &expect!["bob uid= groups=a+b+system:authenticated extra={}"],
    );
    check(
        "may-users",
        &[("impersonate-user", "bob"), ("impersonate-group", "system:unauthenticated")],
        &expect!["bob uid= groups=system:unauthenticated extra={}"],
    );
    check(
        "may-users",
        &[("impersonate-user", "bob"), ("impersonate-group", "system:authenticated"), ("impersonate-group", "a")],
        &expect!["bob uid= groups=system:authenticated+a extra={}"],
    );
    check(
        "may-users",
        &[("impersonate-user", "system:anonymous")],
        &expect!["system:anonymous uid= groups=system:unauthenticated extra={}"],
    );
    check(
        "may-users",
        &[("impersonate-user", "system:anonymous"), ("impersonate-group", "system:unauthenticated")],
        &expect!["system:anonymous uid= groups=system:unauthenticated extra={}"],
    );
}

#[test]
fn impersonated_service_account_gets_its_groups() {
    check(
        "may-users",
        &[("impersonate-user", "system:serviceaccount:dev:builder")],
        &expect![
            "system:serviceaccount:dev:builder uid= groups=system:serviceaccounts+system:serviceaccounts:dev+system:authenticated extra={}"
        ],
    );
    check(
        "may-users",
        &[("impersonate-user", "system:serviceaccount:dev:builder"), ("impersonate-group", "a")],
        &expect!["system:serviceaccount:dev:builder uid= groups=a+system:authenticated extra={}"],
    );
    check(
        "may-all",
        &[("impersonate-user", "system:serviceaccount:dev:builder")],
        &expect![[
            r#"User "may-all" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "dev""#
        ]],
    );
    check(
        "may-all",
        &[("impersonate-user", "system:serviceaccount:dev")],
        &expect!["system:serviceaccount:dev uid= groups=system:authenticated extra={}"],
    );
}

#[test]
fn impersonating_uid_and_extra_needs_permission_for_each() {
    check(
        "may-all",
        &[
            ("impersonate-user", "bob"),
            ("impersonate-uid", "u1"),
            ("impersonate-extra-scopes", "view"),
            ("Impersonate-Extra-Scopes", "edit"),
            ("impersonate-extra-example.com%2Fkey", "x"),
        ],
        &expect![[
            r#"bob uid=u1 groups=system:authenticated extra={"example.com/key": ["x"], "scopes": ["view", "edit"]}"#
        ]],
    );
    check(
        "may-all",
        &[("impersonate-user", "bob"), ("impersonate-extra-other", "x")],
        &expect![[
            r#"User "may-all" cannot impersonate resource "userextras/other" in API group "authentication.k8s.io" at the cluster scope"#
        ]],
    );
    check(
        "may-users",
        &[("impersonate-user", "bob"), ("impersonate-uid", "u1")],
        &expect![[
            r#"User "may-users" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope"#
        ]],
    );
}

#[test]
fn impersonating_masters_needs_permission_on_that_group() {
    let masters =
        [("impersonate-user", "bob"), ("impersonate-group", "developers"), ("impersonate-group", "system:masters")];
    check(
        "may-one-group",
        &masters,
        &expect![[r#"User "may-one-group" cannot impersonate resource "groups" in API group "" at the cluster scope"#]],
    );
    check("may-one-group", &masters[..2], &expect!["bob uid= groups=developers+system:authenticated extra={}"]);
    check("may-users", &masters, &expect!["bob uid= groups=developers+system:masters+system:authenticated extra={}"]);
    check(
        "unprivileged",
        &[("impersonate-user", "bob")],
        &expect![[r#"User "unprivileged" cannot impersonate resource "users" in API group "" at the cluster scope"#]],
    );
}

#[test]
fn impersonation_without_user_is_bad_request() {
    check(
        "may-all",
        &[("impersonate-group", "system:masters"), ("impersonate-uid", "u"), ("impersonate-extra-k", "v")],
        &expect![
            "requested [{Group  system:masters    } {UserExtra  v  authentication.k8s.io/v1  k} {UID  u  authentication.k8s.io/v1  }] without impersonating a user"
        ],
    );
}

#[test]
fn non_utf8_and_excessive_impersonation_headers_are_bad_requests() {
    let headers: [(&str, &[u8]); 1] = [("impersonate-user", b"\xff")];
    let error = ImpersonatedUser::from_headers(&headers.into_iter()).unwrap_err();
    assert_eq!(error.to_string(), "the header Impersonate-User is not UTF-8");
    let mut headers = vec![("impersonate-group", "g"); 1001];
    headers.push(("impersonate-user", "bob"));
    check("may-users", &headers, &expect!["more than 1000 groups and extra values are impersonated"]);
}

#[test]
fn impersonation_headers_match_case_insensitively() {
    for name in
        ["impersonate-user", "Impersonate-Group", "IMPERSONATE-UID", "impersonate-extra-", "Impersonate-Extra-Scopes"]
    {
        assert!(ImpersonatedUser::is_impersonation_header(name), "{name}");
    }
    for name in ["impersonate", "impersonate-users", "x-impersonate-user", "impersonate-extra"] {
        assert!(!ImpersonatedUser::is_impersonation_header(name), "{name}");
    }
}

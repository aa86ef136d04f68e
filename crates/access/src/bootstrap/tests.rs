use std::collections::HashSet;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::attributes::{Attributes, ResourceAttributes};
use crate::authorization::Authorizer;
use crate::rbac::{PolicyRule, RbacIndex, RbacPolicy};
use crate::user::User;

/// Those of the newest release with all gates on.
pub(crate) fn all_default_objects() -> Vec<DefaultRbacObject> {
    default_rbac_objects(&ServerFeatures { minor: 37, is_on: &|_| true })
}

fn default_index() -> RbacIndex {
    let mut policy = RbacPolicy::default();
    for desired in all_default_objects() {
        let ObjectMeta { name, namespace, .. } = desired.metadata();
        let _ = policy.put(desired.kind(), namespace, name, &desired.to_json()).unwrap();
    }
    policy.build_index()
}

#[test]
fn default_objects_match_kubernetes() {
    let of_kind = |kind: RbacKind| {
        let desired = all_default_objects();
        let lines = desired.iter().filter(|desired| desired.kind() == kind).map(|desired| {
            let count = match desired {
                DefaultRbacObject::Role(role) => role.rules.len(),
                DefaultRbacObject::Binding(binding) => binding.subjects.len(),
            };
            let ObjectMeta { name, namespace, .. } = desired.metadata();
            let name = name.strip_prefix(CONTROLLER_ROLE_PREFIX).map_or(name.clone(), |name| format!("..{name}"));
            if namespace.is_empty() { format!("{name} {count}") } else { format!("{namespace}/{name} {count}") }
        });
        lines.collect::<Vec<_>>().join(", ")
    };
    expect!["cluster-admin 2, system:aggregate-to-admin 2, system:aggregate-to-edit 15, system:aggregate-to-view 12, system:basic-user 2, system:discovery 1, system:monitoring 2, system:public-info-viewer 1, system:service-account-issuer-discovery 1, system:cluster-trust-bundle-discovery 1, system:auth-delegator 2, system:kubelet-api-admin 4, system:certificates.k8s.io:certificatesigningrequests:nodeclient 1, system:certificates.k8s.io:certificatesigningrequests:selfnodeclient 1, system:certificates.k8s.io:kube-apiserver-client-approver 1, system:certificates.k8s.io:kube-apiserver-client-kubelet-approver 1, system:certificates.k8s.io:kubelet-serving-approver 1, system:certificates.k8s.io:legacy-unknown-approver 1, system:heapster 2, system:kube-aggregator 1, system:kube-controller-manager 11, system:kube-dns 1, system:kube-scheduler 28, system:node 27, system:node-bootstrapper 1, system:node-problem-detector 3, system:node-proxier 5, system:persistent-volume-provisioner 5, system:volume-scheduler 3, unskew:viewer 1, admin 0, edit 0, view 0, ..cronjob-controller 6, ..daemon-set-controller 8, ..deployment-controller 6, ..device-taint-eviction-controller 8, ..disruption-controller 9, ..horizontal-pod-autoscaler 8, ..job-controller 5, ..pod-garbage-collector 3, ..podgroup-protection-controller 2, ..replicaset-controller 5, ..replication-controller 5, ..resource-claim-controller 7, ..resourcepoolstatusrequest-controller 6, ..statefulset-controller 10, ..ttl-after-finished-controller 2, ..endpoint-controller 4, ..endpointslice-controller 4, ..endpointslicemirroring-controller 5, ..route-controller 3, ..service-cidrs-controller 5, ..service-controller 4, ..attachdetach-controller 8, ..ephemeral-volume-controller 4, ..expand-controller 4, ..persistent-volume-binder 9, ..pv-protection-controller 2, ..pvc-protection-controller 4, ..selinux-warning-controller 5, ..volumeattributesclass-protection-controller 4, ..certificate-controller 6, ..clusterrole-aggregation-controller 1, ..generic-garbage-collector 2, ..kube-apiserver-serving-clustertrustbundle-publisher 3, ..legacy-service-account-token-cleaner 2, ..namespace-controller 3, ..node-controller 6, ..podcertificaterequestcleaner 1, ..resourcequota-controller 3, ..root-ca-cert-publisher 2, ..service-account-controller 2, ..storage-version-garbage-collector 3, ..storage-version-migrator-controller 4, ..ttl-controller 2, ..validatingadmissionpolicy-status-controller 3"].assert_eq(&of_kind(RbacKind::ClusterRole));
    expect!["kube-public/..bootstrap-signer 3, kube-system/extension-apiserver-authentication-reader 1, kube-system/system::leader-locking-kube-controller-manager 2, kube-system/system::leader-locking-kube-scheduler 2, kube-system/..bootstrap-signer 1, kube-system/..cloud-provider 1, kube-system/..token-cleaner 2"].assert_eq(&of_kind(RbacKind::Role));
    expect!["kube-public/..bootstrap-signer 1, kube-system/system::extension-apiserver-authentication-reader 2, kube-system/system::leader-locking-kube-controller-manager 3, kube-system/system::leader-locking-kube-scheduler 2, kube-system/..bootstrap-signer 1, kube-system/..cloud-provider 1, kube-system/..token-cleaner 1"].assert_eq(&of_kind(RbacKind::RoleBinding));
    let bindings = of_kind(RbacKind::ClusterRoleBinding);
    assert!(bindings.starts_with("cluster-admin 1, system:monitoring 1, system:discovery 1, system:basic-user 1, system:public-info-viewer 2, "), "{bindings}");
    assert!(bindings.contains(", system:node 0, "), "{bindings}");
}

#[test]
fn default_object_names_are_unique_and_bound_roles_exist() {
    let desired = all_default_objects();
    let key = |kind: RbacKind, namespace: &str, name: &str| format!("{kind} {namespace}/{name}");
    let names: HashSet<String> = desired
        .iter()
        .map(|desired| key(desired.kind(), &desired.metadata().namespace, &desired.metadata().name))
        .collect();
    assert_eq!(names.len(), desired.len());
    for desired in &desired {
        let DefaultRbacObject::Binding(RoleBinding { metadata, role_ref, .. }) = desired else { continue };
        let role = match role_ref.kind.as_str() {
            "ClusterRole" => key(RbacKind::ClusterRole, "", &role_ref.name),
            _ => key(RbacKind::Role, &metadata.namespace, &role_ref.name),
        };
        assert!(names.contains(&role), "{role}");
    }
}

#[test]
fn default_objects_serialize_as_in_kubernetes() {
    let find = |name: &str, kind: RbacKind| {
        let found = all_default_objects()
            .into_iter()
            .find(|desired| desired.metadata().name == name && desired.kind() == kind)
            .unwrap();
        String::from_utf8(found.to_json()).unwrap()
    };
    expect![[r#"{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"edit","labels":{"kubernetes.io/bootstrapping":"rbac-defaults","rbac.authorization.k8s.io/aggregate-to-admin":"true"},"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}},"rules":[],"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"rbac.authorization.k8s.io/aggregate-to-edit":"true"}}]}}"#]].assert_eq(&find("edit", RbacKind::ClusterRole));
    expect![[r#"{"kind":"RoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"system::leader-locking-kube-scheduler","namespace":"kube-system","labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"system:kube-scheduler"},{"kind":"ServiceAccount","name":"kube-scheduler","namespace":"kube-system"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"system::leader-locking-kube-scheduler"}}"#]].assert_eq(&find("system::leader-locking-kube-scheduler", RbacKind::RoleBinding));
    expect![[r#"{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"unskew:viewer","labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}},"rules":[{"verbs":["get"],"nonResourceURLs":["/debug/peers","/debug/peers/*","/metrics"]}]}"#]].assert_eq(&find(VIEWER_ROLE, RbacKind::ClusterRole));
}

#[test]
fn default_policy_grants_each_user_only_its_own_work() {
    let index = default_index();
    let authorizer = Authorizer::parse("RBAC").unwrap();
    let resource = |user: &User, verb: &str, resource: ResourceAttributes<'_>| {
        authorizer.decide(&index, &Attributes::for_resource(user, verb, resource)).is_allowed()
    };
    let path =
        |user: &User, path: &str| authorizer.decide(&index, &Attributes::for_path(user, "get", path)).is_allowed();

    let anonymous = User::anonymous();
    assert!(path(&anonymous, "/healthz") && path(&anonymous, "/version") && path(&anonymous, "/readyz"));
    assert!(!path(&anonymous, "/api") && !path(&anonymous, "/metrics") && !path(&anonymous, "/readyz/etcd"));

    let alice = User::named("alice").with_authenticated_group();
    assert!(path(&alice, "/apis/apps/v1") && path(&alice, "/openapi/v3") && path(&alice, "/version/"));
    assert!(!path(&alice, "/metrics") && !path(&alice, "/debug/peers"));
    let review = ResourceAttributes {
        group: "authorization.k8s.io",
        resource: "selfsubjectaccessreviews",
        ..ResourceAttributes::default()
    };
    assert!(resource(&alice, "create", review));
    let pods = ResourceAttributes { resource: "pods", namespace: "dev", ..ResourceAttributes::default() };
    assert!(!resource(&alice, "list", pods));

    let scheduler = User::named(user::KUBE_SCHEDULER).with_authenticated_group();
    assert!(resource(&scheduler, "create", ResourceAttributes { subresource: "binding", name: "p", ..pods }));
    assert!(resource(&scheduler, "list", pods) && !resource(&scheduler, "create", pods));
    let lease = ResourceAttributes {
        group: "coordination.k8s.io",
        resource: "leases",
        namespace: "kube-system",
        name: "any",
        ..pods
    };
    assert!(
        resource(&scheduler, "update", lease)
            && !resource(&scheduler, "update", ResourceAttributes { namespace: "dev", ..lease })
    );

    let deployments = User::service_account("kube-system", "deployment-controller", "u").with_authenticated_group();
    assert!(resource(&deployments, "create", ResourceAttributes { group: "apps", resource: "replicasets", ..pods }));
    assert!(!resource(&deployments, "create", pods));
    let elsewhere = User::service_account("dev", "deployment-controller", "u").with_authenticated_group();
    assert!(!resource(&elsewhere, "create", ResourceAttributes { group: "apps", resource: "replicasets", ..pods }));
    assert!(path(&elsewhere, "/openid/v1/jwks"));
}

#[test]
fn aggregated_edit_includes_view_and_admin_includes_edit() {
    let index = default_index();
    let rules = |name: &str| -> Vec<PolicyRule> {
        let role = RoleRef { kind: "ClusterRole".to_owned(), name: name.to_owned(), ..RoleRef::default() };
        index.rules_of_role(&role, "").unwrap().cloned().collect()
    };
    let (view, edit, admin) = (rules("view"), rules("edit"), rules("admin"));
    assert_eq!((view.len(), edit.len(), admin.len()), (12, 27, 29));
    for (less, more) in [(&view, &edit), (&edit, &admin)] {
        assert!(crate::rbac::missing_rules(more, less).is_empty());
        assert!(!crate::rbac::missing_rules(less, more).is_empty());
    }
}

fn desired_role(rules: &Value) -> DefaultRbacObject {
    let rules: Vec<PolicyRule> = serde_json::from_value(rules.clone()).unwrap();
    DefaultRbacObject::Role(Role { metadata: metadata("r"), rules, aggregation_rule: None })
}

#[track_caller]
fn check(existing: &Value, desired: &DefaultRbacObject, expected: &Expect) {
    let text = match reconcile(Some(existing.to_string().as_bytes()), desired).unwrap() {
        ReconcileAction::Update(json) => {
            assert_eq!(
                reconcile(Some(&json), desired).unwrap(),
                ReconcileAction::UpToDate,
                "a second reconcile changes nothing"
            );
            String::from_utf8(json).unwrap()
        }
        other @ (ReconcileAction::UpToDate | ReconcileAction::Create(_) | ReconcileAction::Skip(_)) => {
            format!("{other:?}")
        }
    };
    expected.assert_eq(&text);
}

fn existing_role(rules: &Value) -> Value {
    let DefaultRbacObject::Role(role) = desired_role(rules) else { panic!() };
    let mut object: Value = serde_json::to_value(role).unwrap();
    object["metadata"]["uid"] = "u".into();
    object
}

#[test]
fn reconcile_creates_missing_and_keeps_complete_objects() {
    let desired = desired_role(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    assert_eq!(reconcile(None, &desired).unwrap(), ReconcileAction::Create(desired.to_json()));
    for complete in [
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]),
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
        json!([{"verbs": ["list"], "apiGroups": ["x"], "resources": ["y"]}, {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["nodes", "pods"]}]),
    ] {
        check(&existing_role(&complete), &desired, &expect!["UpToDate"]);
    }
}

#[test]
fn reconcile_adds_rules_and_removes_none() {
    let desired = desired_role(
        &json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "nodes"]}, {"verbs": ["get"], "nonResourceURLs": ["/a", "/b"]}]),
    );
    let there = existing_role(
        &json!([{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods"]}, {"verbs": ["get"], "nonResourceURLs": ["/b*"]}]),
    );
    check(
        &there,
        &desired,
        &expect![[
            r#"{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"},"labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"name":"r","uid":"u"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","delete"]},{"nonResourceURLs":["/b*"],"verbs":["get"]},{"apiGroups":[""],"resources":["pods"],"verbs":["list"]},{"apiGroups":[""],"resources":["nodes"],"verbs":["get","list"]},{"nonResourceURLs":["/a"],"verbs":["get"]}]}"#
        ]],
    );
}

#[test]
fn reconcile_adds_metadata_and_keeps_unknown_fields() {
    let desired = desired_role(&json!([]));
    check(
        &json!({"metadata": {"name": "r", "labels": {"mine": "1", "kubernetes.io/bootstrapping": "changed"}, "annotations": null}, "rules": null, "newField": [1]}),
        &desired,
        &expect![[
            r#"{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"},"labels":{"kubernetes.io/bootstrapping":"changed","mine":"1"},"name":"r"},"newField":[1],"rules":null}"#
        ]],
    );
}

#[test]
fn reconcile_skips_objects_with_autoupdate_false() {
    let desired = desired_role(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    let mut there = existing_role(&json!([]));
    there["metadata"]["annotations"][AUTOUPDATE_ANNOTATION] = "false".into();
    check(&there, &desired, &expect!["Skip(AutoupdateDisabled)"]);
    let mut complete = existing_role(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    complete["metadata"]["annotations"][AUTOUPDATE_ANNOTATION] = "false".into();
    check(&complete, &desired, &expect!["UpToDate"]);
}

#[test]
fn reconcile_adds_selectors_and_skips_unexpected_aggregation() {
    let mut there = existing_role(&json!([]));
    there["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"mine": "yes"}}]});
    let edit = DefaultRbacObject::Role(build_aggregated_role("r", None));
    check(
        &there,
        &edit,
        &expect![[
            r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"mine":"yes"}},{"matchLabels":{"rbac.authorization.k8s.io/aggregate-to-r":"true"}}]},"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"},"labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"name":"r","uid":"u"},"rules":[]}"#
        ]],
    );
    let plain = desired_role(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    check(&there, &plain, &expect!["Skip(UnexpectedAggregation)"]);
}

#[test]
fn reconcile_adds_subjects_and_skips_other_role() {
    let desired = all_default_objects()
        .into_iter()
        .find(|desired| {
            desired.metadata().name == "system:public-info-viewer" && desired.kind() == RbacKind::ClusterRoleBinding
        })
        .unwrap();
    let mut there: Value = serde_json::from_slice(&desired.to_json()).unwrap();
    check(&there, &desired, &expect!["UpToDate"]);
    there["subjects"] = json!([{"kind": "User", "apiGroup": RBAC_GROUP, "name": "guest"}, {"kind": "Group", "apiGroup": RBAC_GROUP, "name": "system:unauthenticated"}]);
    check(
        &there,
        &desired,
        &expect![[
            r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"},"labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"name":"system:public-info-viewer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:public-info-viewer"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"guest"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:unauthenticated"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}"#
        ]],
    );
    there["roleRef"]["name"] = "system:discovery".into();
    check(&there, &desired, &expect!["Skip(BindsOtherRole)"]);
}

#[test]
fn skip_reason_describes_object_and_cause() {
    let text: Vec<String> =
        [SkipReason::AutoupdateDisabled, SkipReason::UnexpectedAggregation, SkipReason::BindsOtherRole]
            .map(|skipped| skipped.describe(RbacKind::ClusterRole, "r"))
            .into();
    expect![[r#"
        ClusterRole r lacks defaults of this release and is left unchanged: it is annotated rbac.authorization.kubernetes.io/autoupdate=false
        ClusterRole r lacks defaults of this release and is left unchanged: it aggregates other roles
        ClusterRole r lacks defaults of this release and is left unchanged: it binds another role"#]].assert_eq(&text.join("\n"));
}

#[test]
fn reconcile_rejects_unreadable_objects() {
    let desired = desired_role(&json!([]));
    for bad in ["", "[]", r#"{"rules":{}}"#, r#"{"metadata":{"labels":[]}}"#, r#"{"metadata":null}"#] {
        let error = reconcile(Some(bad.as_bytes()), &desired).unwrap_err();
        assert!(error.to_string().starts_with("ClusterRole r cannot be read and grants nothing: "), "{error}");
    }
}

fn arbitrary_rules() -> impl Strategy<Value = Vec<PolicyRule>> {
    let words = |from: &'static [&'static str]| proptest::collection::vec(proptest::sample::select(from), 1..3);
    let rule = (words(&["get", "list", "*"]), words(&["", "apps"]), words(&["pods", "nodes", "*"])).prop_map(
        |(verbs, groups, resources)| {
            let own = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
            PolicyRule {
                verbs: own(verbs),
                api_groups: own(groups),
                resources: own(resources),
                ..PolicyRule::default()
            }
        },
    );
    proptest::collection::vec(rule, 0..4)
}

proptest! {
    #[test]
    fn reconcile_result_is_independent_of_release_order(older in arbitrary_rules(), newer in arbitrary_rules(), there in arbitrary_rules()) {
        let desired = |rules: &[PolicyRule]| DefaultRbacObject::Role(Role { metadata: metadata("r"), rules: rules.to_vec(), aggregation_rule: None });
        let apply = |json: Vec<u8>, rules: &[PolicyRule]| match reconcile(Some(&json), &desired(rules)).unwrap() {
            ReconcileAction::Update(json) => json,
            ReconcileAction::UpToDate | ReconcileAction::Create(_) | ReconcileAction::Skip(_) => json,
        };
        let start = desired(&there).to_json();
        let one = apply(apply(start.clone(), &older), &newer);
        let other = apply(apply(start, &newer), &older);
        let rules_of = |json: &[u8]| serde_json::from_slice::<Role>(json).unwrap().rules;
        let (one, other) = (rules_of(&one), rules_of(&other));
        for all in [&one, &other] {
            for part in [&older, &newer, &there] {
                prop_assert!(crate::rbac::missing_rules(all, part).is_empty(), "{all:?} lacks {part:?}");
            }
        }
        prop_assert!(crate::rbac::missing_rules(&one, &other).is_empty() && crate::rbac::missing_rules(&other, &one).is_empty());
    }
}

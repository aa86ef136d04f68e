use std::collections::HashSet;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::attributes::{Attributes, Resource};
use crate::authorize::Authorizer;
use crate::rbac::{Index, Policy, PolicyRule};
use crate::user::User;

fn index() -> Index {
    let mut policy = Policy::default();
    for wanted in wanted() {
        let ObjectMeta { name, namespace, .. } = wanted.metadata();
        let _ = policy.put(wanted.kind(), namespace, name, &wanted.to_json()).unwrap();
    }
    policy.index()
}

#[test]
fn every_object_of_kubernetes_is_there() {
    let of_kind = |kind: Kind| {
        let wanted = wanted();
        let lines = wanted.iter().filter(|wanted| wanted.kind() == kind).map(|wanted| {
            let count = match wanted {
                Wanted::Role(role) => role.rules.len(),
                Wanted::Binding(binding) => binding.subjects.len(),
            };
            let ObjectMeta { name, namespace, .. } = wanted.metadata();
            let name = name.strip_prefix(CONTROLLER).map_or(name.clone(), |name| format!("..{name}"));
            if namespace.is_empty() { format!("{name} {count}") } else { format!("{namespace}/{name} {count}") }
        });
        lines.collect::<Vec<_>>().join(", ")
    };
    expect!["cluster-admin 2, system:aggregate-to-admin 2, system:aggregate-to-edit 15, system:aggregate-to-view 12, system:basic-user 2, system:discovery 1, system:monitoring 2, system:public-info-viewer 1, system:service-account-issuer-discovery 1, system:cluster-trust-bundle-discovery 1, system:auth-delegator 2, system:kubelet-api-admin 4, system:certificates.k8s.io:certificatesigningrequests:nodeclient 1, system:certificates.k8s.io:certificatesigningrequests:selfnodeclient 1, system:certificates.k8s.io:kube-apiserver-client-approver 1, system:certificates.k8s.io:kube-apiserver-client-kubelet-approver 1, system:certificates.k8s.io:kubelet-serving-approver 1, system:certificates.k8s.io:legacy-unknown-approver 1, system:heapster 2, system:kube-aggregator 1, system:kube-controller-manager 11, system:kube-dns 1, system:kube-scheduler 28, system:node 27, system:node-bootstrapper 1, system:node-problem-detector 3, system:node-proxier 5, system:persistent-volume-provisioner 5, system:volume-scheduler 3, unskew:viewer 1, admin 0, edit 0, view 0, ..cronjob-controller 6, ..daemon-set-controller 8, ..deployment-controller 6, ..device-taint-eviction-controller 8, ..disruption-controller 9, ..horizontal-pod-autoscaler 8, ..job-controller 5, ..pod-garbage-collector 3, ..podgroup-protection-controller 2, ..replicaset-controller 5, ..replication-controller 5, ..resource-claim-controller 7, ..resourcepoolstatusrequest-controller 6, ..statefulset-controller 10, ..ttl-after-finished-controller 2, ..endpoint-controller 4, ..endpointslice-controller 4, ..endpointslicemirroring-controller 5, ..route-controller 3, ..service-cidrs-controller 5, ..service-controller 4, ..attachdetach-controller 8, ..ephemeral-volume-controller 4, ..expand-controller 4, ..persistent-volume-binder 9, ..pv-protection-controller 2, ..pvc-protection-controller 4, ..selinux-warning-controller 5, ..volumeattributesclass-protection-controller 4, ..certificate-controller 6, ..clusterrole-aggregation-controller 1, ..generic-garbage-collector 2, ..kube-apiserver-serving-clustertrustbundle-publisher 3, ..legacy-service-account-token-cleaner 2, ..namespace-controller 3, ..node-controller 6, ..podcertificaterequestcleaner 1, ..resourcequota-controller 3, ..root-ca-cert-publisher 2, ..service-account-controller 2, ..storage-version-garbage-collector 3, ..storage-version-migrator-controller 4, ..ttl-controller 2, ..validatingadmissionpolicy-status-controller 3"].assert_eq(&of_kind(Kind::ClusterRole));
    expect!["kube-public/..bootstrap-signer 3, kube-system/extension-apiserver-authentication-reader 1, kube-system/system::leader-locking-kube-controller-manager 2, kube-system/system::leader-locking-kube-scheduler 2, kube-system/..bootstrap-signer 1, kube-system/..cloud-provider 1, kube-system/..token-cleaner 2"].assert_eq(&of_kind(Kind::Role));
    expect!["kube-public/..bootstrap-signer 1, kube-system/system::extension-apiserver-authentication-reader 2, kube-system/system::leader-locking-kube-controller-manager 3, kube-system/system::leader-locking-kube-scheduler 2, kube-system/..bootstrap-signer 1, kube-system/..cloud-provider 1, kube-system/..token-cleaner 1"].assert_eq(&of_kind(Kind::RoleBinding));
    let bindings = of_kind(Kind::ClusterRoleBinding);
    assert!(bindings.starts_with("cluster-admin 1, system:monitoring 1, system:discovery 1, system:basic-user 1, system:public-info-viewer 2, "), "{bindings}");
    assert!(bindings.contains(", system:node 0, "), "{bindings}");
}

#[test]
fn names_are_unique_and_every_binding_has_its_role() {
    let wanted = wanted();
    let key = |kind: Kind, namespace: &str, name: &str| format!("{kind} {namespace}/{name}");
    let names: HashSet<String> =
        wanted.iter().map(|wanted| key(wanted.kind(), &wanted.metadata().namespace, &wanted.metadata().name)).collect();
    assert_eq!(names.len(), wanted.len());
    for wanted in &wanted {
        let Wanted::Binding(Binding { metadata, role_ref, .. }) = wanted else { continue };
        let role = match role_ref.kind.as_str() {
            "ClusterRole" => key(Kind::ClusterRole, "", &role_ref.name),
            _ => key(Kind::Role, &metadata.namespace, &role_ref.name),
        };
        assert!(names.contains(&role), "{role}");
    }
}

#[test]
fn objects_are_written_as_kubernetes_writes_them() {
    let find = |name: &str, kind: Kind| {
        let found =
            wanted().into_iter().find(|wanted| wanted.metadata().name == name && wanted.kind() == kind).unwrap();
        String::from_utf8(found.to_json()).unwrap()
    };
    expect![[r#"{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"edit","labels":{"kubernetes.io/bootstrapping":"rbac-defaults","rbac.authorization.k8s.io/aggregate-to-admin":"true"},"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}},"rules":[],"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"rbac.authorization.k8s.io/aggregate-to-edit":"true"}}]}}"#]].assert_eq(&find("edit", Kind::ClusterRole));
    expect![[r#"{"kind":"RoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"system::leader-locking-kube-scheduler","namespace":"kube-system","labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"system:kube-scheduler"},{"kind":"ServiceAccount","name":"kube-scheduler","namespace":"kube-system"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"system::leader-locking-kube-scheduler"}}"#]].assert_eq(&find("system::leader-locking-kube-scheduler", Kind::RoleBinding));
    expect![[r#"{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"unskew:viewer","labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}},"rules":[{"verbs":["get"],"nonResourceURLs":["/debug/peers","/debug/peers/*","/metrics"]}]}"#]].assert_eq(&find(VIEWER, Kind::ClusterRole));
}

#[test]
fn a_new_cluster_lets_everybody_do_their_work_and_no_more() {
    let index = index();
    let authorizer = Authorizer::parse("RBAC").unwrap();
    let resource = |user: &User, verb: &str, resource: Resource<'_>| {
        authorizer.decide(&index, &Attributes::resource(user, verb, resource)).is_allowed()
    };
    let path = |user: &User, path: &str| authorizer.decide(&index, &Attributes::path(user, "get", path)).is_allowed();

    let anonymous = User::anonymous();
    assert!(path(&anonymous, "/healthz") && path(&anonymous, "/version") && path(&anonymous, "/readyz"));
    assert!(!path(&anonymous, "/api") && !path(&anonymous, "/metrics") && !path(&anonymous, "/readyz/etcd"));

    let alice = User::named("alice").authenticated();
    assert!(path(&alice, "/apis/apps/v1") && path(&alice, "/openapi/v3") && path(&alice, "/version/"));
    assert!(!path(&alice, "/metrics") && !path(&alice, "/debug/peers"));
    let review =
        Resource { group: "authorization.k8s.io", resource: "selfsubjectaccessreviews", ..Resource::default() };
    assert!(resource(&alice, "create", review));
    let pods = Resource { resource: "pods", namespace: "dev", ..Resource::default() };
    assert!(!resource(&alice, "list", pods));

    let scheduler = User::named(user::KUBE_SCHEDULER).authenticated();
    assert!(resource(&scheduler, "create", Resource { subresource: "binding", name: "p", ..pods }));
    assert!(resource(&scheduler, "list", pods) && !resource(&scheduler, "create", pods));
    let lease =
        Resource { group: "coordination.k8s.io", resource: "leases", namespace: "kube-system", name: "any", ..pods };
    assert!(
        resource(&scheduler, "update", lease)
            && !resource(&scheduler, "update", Resource { namespace: "dev", ..lease })
    );

    let deployments = User::service_account("kube-system", "deployment-controller", "u").authenticated();
    assert!(resource(&deployments, "create", Resource { group: "apps", resource: "replicasets", ..pods }));
    assert!(!resource(&deployments, "create", pods));
    let elsewhere = User::service_account("dev", "deployment-controller", "u").authenticated();
    assert!(!resource(&elsewhere, "create", Resource { group: "apps", resource: "replicasets", ..pods }));
    assert!(path(&elsewhere, "/openid/v1/jwks"));
}

#[test]
fn edit_is_view_and_more_and_admin_is_edit_and_more() {
    let index = index();
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

fn role(rules: &Value) -> Wanted {
    let rules: Vec<PolicyRule> = serde_json::from_value(rules.clone()).unwrap();
    Wanted::Role(Role { metadata: metadata("r"), rules, aggregation_rule: None })
}

#[track_caller]
fn check(existing: &Value, wanted: &Wanted, expected: &Expect) {
    let text = match reconcile(Some(existing.to_string().as_bytes()), wanted).unwrap() {
        Change::Update(json) => {
            assert_eq!(reconcile(Some(&json), wanted).unwrap(), Change::None, "once is enough");
            String::from_utf8(json).unwrap()
        }
        other @ (Change::None | Change::Create(_) | Change::Skip(_)) => format!("{other:?}"),
    };
    expected.assert_eq(&text);
}

fn existing(rules: &Value) -> Value {
    let Wanted::Role(role) = role(rules) else { panic!() };
    let mut object: Value = serde_json::to_value(role).unwrap();
    object["metadata"]["uid"] = "u".into();
    object
}

#[test]
fn what_is_missing_is_created_and_what_is_complete_is_left() {
    let wanted = role(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    assert_eq!(reconcile(None, &wanted).unwrap(), Change::Create(wanted.to_json()));
    for complete in [
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]),
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
        json!([{"verbs": ["list"], "apiGroups": ["x"], "resources": ["y"]}, {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["nodes", "pods"]}]),
    ] {
        check(&existing(&complete), &wanted, &expect!["None"]);
    }
}

#[test]
fn rules_are_added_and_none_is_removed() {
    let wanted = role(
        &json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "nodes"]}, {"verbs": ["get"], "nonResourceURLs": ["/a", "/b"]}]),
    );
    let there = existing(
        &json!([{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods"]}, {"verbs": ["get"], "nonResourceURLs": ["/b*"]}]),
    );
    check(
        &there,
        &wanted,
        &expect![[
            r#"{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"},"labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"name":"r","uid":"u"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","delete"]},{"nonResourceURLs":["/b*"],"verbs":["get"]},{"apiGroups":[""],"resources":["pods"],"verbs":["list"]},{"apiGroups":[""],"resources":["nodes"],"verbs":["get","list"]},{"nonResourceURLs":["/a"],"verbs":["get"]}]}"#
        ]],
    );
}

#[test]
fn labels_and_annotations_are_added_and_unknown_fields_kept() {
    let wanted = role(&json!([]));
    check(
        &json!({"metadata": {"name": "r", "labels": {"mine": "1", "kubernetes.io/bootstrapping": "changed"}, "annotations": null}, "rules": null, "newField": [1]}),
        &wanted,
        &expect![[
            r#"{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"},"labels":{"kubernetes.io/bootstrapping":"changed","mine":"1"},"name":"r"},"newField":[1],"rules":null}"#
        ]],
    );
}

#[test]
fn who_asks_to_be_left_alone_is() {
    let wanted = role(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    let mut there = existing(&json!([]));
    there["metadata"]["annotations"][AUTOUPDATE] = "false".into();
    check(&there, &wanted, &expect!["Skip(Protected)"]);
    let mut complete = existing(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    complete["metadata"]["annotations"][AUTOUPDATE] = "false".into();
    check(&complete, &wanted, &expect!["None"]);
}

#[test]
fn selectors_are_added_and_an_unexpected_aggregation_is_left() {
    let mut there = existing(&json!([]));
    there["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"mine": "yes"}}]});
    let edit = Wanted::Role(aggregate("r", None));
    check(
        &there,
        &edit,
        &expect![[
            r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"mine":"yes"}},{"matchLabels":{"rbac.authorization.k8s.io/aggregate-to-r":"true"}}]},"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"},"labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"name":"r","uid":"u"},"rules":[]}"#
        ]],
    );
    let plain = role(&json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    check(&there, &plain, &expect!["Skip(Aggregates)"]);
}

#[test]
fn subjects_are_added_and_another_role_is_left() {
    let wanted = wanted()
        .into_iter()
        .find(|wanted| {
            wanted.metadata().name == "system:public-info-viewer" && wanted.kind() == Kind::ClusterRoleBinding
        })
        .unwrap();
    let mut there: Value = serde_json::from_slice(&wanted.to_json()).unwrap();
    check(&there, &wanted, &expect!["None"]);
    there["subjects"] = json!([{"kind": "User", "apiGroup": GROUP, "name": "guest"}, {"kind": "Group", "apiGroup": GROUP, "name": "system:unauthenticated"}]);
    check(
        &there,
        &wanted,
        &expect![[
            r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"},"labels":{"kubernetes.io/bootstrapping":"rbac-defaults"},"name":"system:public-info-viewer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:public-info-viewer"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"guest"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:unauthenticated"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}"#
        ]],
    );
    there["roleRef"]["name"] = "system:discovery".into();
    check(&there, &wanted, &expect!["Skip(OtherRole)"]);
}

#[test]
fn what_is_skipped_is_told() {
    let text: Vec<String> = [Skipped::Protected, Skipped::Aggregates, Skipped::OtherRole]
        .map(|skipped| skipped.describe(Kind::ClusterRole, "r"))
        .into();
    expect![[r#"
        ClusterRole r lacks something that this release gives it, and is left alone: it is annotated rbac.authorization.kubernetes.io/autoupdate=false
        ClusterRole r lacks something that this release gives it, and is left alone: it aggregates other roles
        ClusterRole r lacks something that this release gives it, and is left alone: it binds another role"#]].assert_eq(&text.join("\n"));
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let wanted = role(&json!([]));
    for bad in ["", "[]", r#"{"rules":{}}"#, r#"{"metadata":{"labels":[]}}"#, r#"{"metadata":null}"#] {
        let error = reconcile(Some(bad.as_bytes()), &wanted).unwrap_err();
        assert!(error.to_string().starts_with("ClusterRole r cannot be read and grants nothing: "), "{error}");
    }
}

fn rules() -> impl Strategy<Value = Vec<PolicyRule>> {
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
    fn releases_may_start_in_any_order(older in rules(), newer in rules(), there in rules()) {
        let wanted = |rules: &[PolicyRule]| Wanted::Role(Role { metadata: metadata("r"), rules: rules.to_vec(), aggregation_rule: None });
        let apply = |json: Vec<u8>, rules: &[PolicyRule]| match reconcile(Some(&json), &wanted(rules)).unwrap() {
            Change::Update(json) => json,
            Change::None | Change::Create(_) | Change::Skip(_) => json,
        };
        let start = wanted(&there).to_json();
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

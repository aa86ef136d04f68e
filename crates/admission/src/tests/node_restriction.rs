//! What kubelets may change.

use access::User;
use serde_json::{Value, json};

use super::{Case, Fixture, Objects};
use crate::Operation;

fn kubelet() -> User {
    User { groups: vec!["system:nodes".to_owned()], ..User::named("system:node:one") }
}

fn fixture() -> Fixture {
    let pod = |name: &str, node: &str| json!({"metadata": {"name": name, "namespace": "n", "uid": format!("{name}-uid")}, "spec": {"nodeName": node}});
    let objects = Objects::default()
        .with("nodes", json!({"metadata": {"name": "one", "uid": "node-uid"}}))
        .with("pods", pod("own", "one"))
        .with("pods", pod("foreign", "two"));
    Fixture { objects, ..Fixture::with_plugins(&["NodeRestriction"]) }
}

/// The refusal without its beginning; empty if the write is admitted.
#[track_caller]
fn check(case: Case, expected: &str) {
    let refused = fixture().admit(&Case { user: kubelet(), ..case }).err().unwrap_or_default();
    let shown = refused.split_once(" is forbidden: ").map_or(&*refused, |(_, text)| text);
    assert_eq!(shown, expected);
}

fn create(group: &'static str, resource: &'static str, kind: &'static str, object: Value) -> Case {
    Case { object: Some(object), ..Case::new(Operation::Create, group, resource, kind) }
}

fn update(resource: &'static str, kind: &'static str, old: Value, new: Value) -> Case {
    Case { object: Some(new), old_object: Some(old), ..Case::new(Operation::Update, "", resource, kind) }
}

#[test]
fn kubelet_changes_its_own_node_only() {
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "spec": {}});
    check(create("", "nodes", "Node", node("one", json!({"kubernetes.io/os": "linux", "mine": "x"}))), "");
    check(create("", "nodes", "Node", node("two", json!({}))), "node \"one\" is not allowed to modify node \"two\"");
    check(
        create("", "nodes", "Node", node("one", json!({"a.node-restriction.kubernetes.io/x": "", "k8s.io/y": ""}))),
        "node \"one\" is not allowed to set the following labels: a.node-restriction.kubernetes.io/x, k8s.io/y",
    );
    check(
        update("nodes", "Node", node("one", json!({"k8s.io/y": "1"})), node("one", json!({}))),
        "is not allowed to modify labels: k8s.io/y",
    );
    let mut tainted = node("one", json!({}));
    tainted["spec"]["taints"] = json!([{"key": "a"}]);
    check(update("nodes", "Node", tainted, node("one", json!({}))), "node \"one\" is not allowed to modify taints");
    let other = Case { user: User::named("system:node:one"), ..create("", "nodes", "Node", node("two", json!({}))) };
    assert!(fixture().admit(&other).is_ok(), "not in the group of nodes");
}

#[test]
fn kubelet_creates_mirror_pods_of_its_node_only() {
    let mirror = |node: &str, spec: Value| {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "one", "uid": "node-uid", "controller": true});
        let mut pod = json!({"metadata": {"name": "m", "namespace": "n",
            "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}, "spec": spec});
        pod["spec"]["nodeName"] = node.into();
        pod
    };
    check(Case::create_pod(mirror("one", json!({}))), "");
    let mut plain = mirror("one", json!({}));
    plain["metadata"]["annotations"] = json!({});
    check(
        Case::create_pod(plain),
        "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"one\" can only create mirror pods",
    );
    check(
        Case::create_pod(mirror("two", json!({}))),
        "node \"one\" can only create pods with spec.nodeName set to itself",
    );
    let mut orphan = mirror("one", json!({}));
    orphan["metadata"]["ownerReferences"] = json!([]);
    check(Case::create_pod(orphan), "node \"one\" can only create pods with an owner reference set to itself");
    for (spec, reference) in [
        (json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}), "secrets"),
        (json!({"containers": [{"envFrom": [{"configMapRef": {"name": "c"}}]}]}), "configmaps"),
        (json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}), "persistentvolumeclaims"),
        (json!({"serviceAccountName": "s"}), "serviceaccounts"),
    ] {
        check(
            Case::create_pod(mirror("one", spec)),
            &format!("node \"one\" can not create pods that reference {reference}"),
        );
    }
    let pod = |node: &str| json!({"metadata": {"name": "own", "namespace": "n"}, "spec": {"nodeName": node}});
    let status = |node: &str| Case { subresource: "status", ..update("pods", "Pod", pod(node), pod(node)) };
    check(status("one"), "");
    check(status("two"), "node \"one\" can only update pod status for pods with spec.nodeName set to itself");
    let eviction = |name: &str| Case {
        subresource: "eviction",
        ..create("", "pods", "Eviction", json!({"metadata": {"name": name, "namespace": "n"}}))
    };
    check(eviction("own"), "");
    check(eviction("foreign"), "node one can only evict pods with spec.nodeName set to itself");
    check(eviction("missing"), "404 pods \"missing\" not found");
}

#[test]
fn kubelet_requests_tokens_for_pods_of_its_node_only() {
    let token = |reference: Value, audiences: Value| Case {
        subresource: "token",
        ..create(
            "",
            "serviceaccounts",
            "TokenRequest",
            json!({"metadata": {"name": "default", "namespace": "n"},
                "spec": {"boundObjectRef": reference, "audiences": audiences}}),
        )
    };
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": format!("{name}-uid")});
    check(token(Value::Null, json!([])), "node requested token not bound to a pod");
    check(token(pod("foreign"), json!([])), "node requested token bound to a pod scheduled on a different node");
    check(token(pod("own"), json!(["a", "b"])), "node may only request 0 or 1 audiences");
    check(
        token(pod("own"), json!(["a"])),
        "audience \"a\" not found in pod spec volume, system:node:one is not authorized to request tokens for this audience",
    );
    let lease = |name: &str, namespace: &str| {
        create("coordination.k8s.io", "leases", "Lease", json!({"metadata": {"name": name, "namespace": namespace}}))
    };
    check(lease("one", "kube-node-lease"), "");
    check(lease("two", "kube-node-lease"), "can only access node lease with the same name as the requesting node");
    check(lease("one", "n"), "can only access leases in the \"kube-node-lease\" system namespace");
}

#[test]
fn resize_must_fit_into_the_node_and_its_features() {
    let node = json!({"metadata": {"name": "one", "labels": {"kubernetes.io/os": "linux"}},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi"}}});
    let plugins = &["NodeDeclaredFeatureValidator", "PodResizeValidator"];
    let fixture = Fixture { objects: Objects::default().with("nodes", node), ..Fixture::with_plugins(plugins) };
    let pod = |generation: u64, node: &str, cpu: &str, of_pod: Value| {
        json!({"metadata": {"name": "p", "namespace": "n", "generation": generation}, "spec": {"nodeName": node,
            "resources": of_pod, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1"}}}]}})
    };
    let resize = |new: Value| {
        let old = pod(1, "one", "1", json!({}));
        fixture.admit(&Case { subresource: "resize", ..update("pods", "Pod", old, new) }).map(drop)
    };
    assert_eq!(resize(pod(2, "one", "1", json!({}))), Ok(()));
    assert_eq!(resize(pod(1, "one", "5", json!({}))), Ok(()), "the spec is unchanged");
    let forbidden = |text: &str| Err(format!("403 pods \"p\" is forbidden: {text}"));
    assert_eq!(
        resize(pod(2, "one", "2", json!({}))),
        forbidden("node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1000")
    );
    assert_eq!(resize(pod(2, "two", "1", json!({}))), forbidden("node \"two\" not found"));
    assert_eq!(
        resize(pod(2, "one", "1", json!({"requests": {"cpu": "1"}}))),
        forbidden(
            "pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node \"one\""
        )
    );
}

//! Everyday kubectl commands, compared with responses of a real kube-apiserver.

use std::path::Path;

use cluster_tests::tools::{is_skipped, kubectl};

use crate::*;

fn write_object_file(kubeconfig: &Path, name: &str, object: &Value) -> String {
    let file = kubeconfig.with_file_name(name);
    std::fs::write(&file, object.to_string()).unwrap();
    file.display().to_string()
}

fn node() -> Value {
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
    let status = json!({"capacity": {"cpu": "4", "pods": "110"}, "conditions": [ready]});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status})
}

fn pod(name: &str) -> Value {
    let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]});
    let metadata = json!({"name": name, "labels": {"app": "web"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

#[test]
fn kubectl_drain_respects_pod_disruption_budgets() {
    if is_skipped("kubectl") {
        return;
    }
    for_each_store(|server| {
        let kubeconfig = server.kubeconfig();
        let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
        run(&["create", "-f", &write_object_file(&kubeconfig, "node.json", &node())]);
        assert!(run(&["get", "nodes"]).contains("n1     Ready"));
        assert_eq!(run(&["get", "node", "n1", "-o", "jsonpath={.status.allocatable.cpu}"]), "4");
        for name in ["a", "b"] {
            let mut pod = pod(name);
            pod["spec"].as_object_mut().unwrap().remove("nodeName");
            run(&["create", "-f", &write_object_file(&kubeconfig, "pod.json", &pod)]);
            // Binds the pod as a scheduler does.
            let binding =
                json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": "n1"}});
            let file = write_object_file(&kubeconfig, "binding.json", &binding);
            let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
            run(&["create", "--raw", &path, "-f", &file]);
            let refused = kubectl(&kubeconfig, &["create", "--raw", &path, "-f", &file]).expect_failure();
            assert!(refused.contains("is already assigned to node \"n1\""), "{refused}");
        }
        run(&["create", "pdb", "web", "--selector=app=web", "--min-available=1"]);
        let status = |object: &str, status: &Value| {
            let patch = json!({"status": status}).to_string();
            run(&["patch", object, "--subresource=status", "--type=merge", "-p", &patch])
        };
        let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        status("pod/a", &running);
        status("pod/b", &running);
        // The status that a disruption controller would write: one of two pods may be evicted.
        status(
            "pdb/web",
            &json!({
                "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
            }),
        );
        let drain = ["drain", "n1", "--force", "--grace-period=0", "--timeout=2s"];
        let refused = kubectl(&kubeconfig, &drain).expect_failure();
        assert!(refused.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{refused}");
        assert_eq!(run(&["get", "pods", "-o", "name"]).lines().count(), 1);
        assert_eq!(run(&["get", "pdb", "web", "-o", "jsonpath={.status.disruptionsAllowed}"]), "0");
        run(&["delete", "pdb", "web"]);
        assert!(run(&drain).contains("node/n1 drained"));
        assert_eq!(run(&["get", "pods", "-o", "name"]), "");
    });
}

#[test]
fn new_objects_have_defaulted_status_and_fields() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &[]);
    let kubeconfig = server.kubeconfig();
    let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
    let at = |object: &str, path: &str| run(&["get", object, "-o", &format!("jsonpath={{{path}}}")]);
    run(&["create", "deployment", "web", "--image=i"]);
    assert_eq!(at("deployment/web", ".status"), "{}");
    assert_eq!(at("deployment/web", ".spec.template.spec.containers[0].resources"), "{}");
    run(&["expose", "deployment", "web", "--port=80"]);
    assert_eq!(at("service/web", ".status"), r#"{"loadBalancer":{}}"#);
    run(&["create", "job", "j", "--image=i"]);
    assert_eq!(at("job/j", ".metadata.labels.job-name"), "j");
    // A client that appends to the status finds it present.
    let condition = r#"[{"op":"add","path":"/status/conditions","value":[{"type":"A","status":"True"}]}]"#;
    run(&["patch", "deployment", "web", "--subresource=status", "--type=json", "-p", condition]);
    assert_eq!(at("deployment/web", ".status.conditions[0].type"), "A");
    // Unknown fields are dropped.
    run(&["patch", "deployment", "web", "--type=merge", "-p", r#"{"spec":{"bogus":1}}"#]);
    assert_eq!(at("deployment/web", ".spec.bogus") + &at("deployment/web", ".metadata.generation"), "1");
    let refused = kubectl(&kubeconfig, &["patch", "deployment", "web", "-p", r#"{"spec":{"replicas":"many"}}"#]);
    let refused = refused.expect_failure();
    assert!(refused.contains("The request is invalid: patch: Invalid value"), "{refused}");
}

#[test]
fn kubectl_errors_name_the_cause() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &[]);
    let kubeconfig = server.kubeconfig();
    let check = |args: &[&str], expected: &str| {
        let said = kubectl(&kubeconfig, args).expect_failure();
        assert!(said.contains(expected), "{args:?}: {said}");
    };
    let unknown = json!({"apiVersion": "v1", "kind": "Unknown", "metadata": {"name": "a"}});
    let file = write_object_file(&kubeconfig, "unknown.json", &unknown);
    check(&["create", "-f", &file], "no matches for kind \"Unknown\" in version \"v1\"");
    let schedule = ["create", "cronjob", "c", "--image=i", "--schedule=nonsense"];
    check(&schedule, "spec.schedule: Invalid value: \"nonsense\": expected exactly 5 fields, found 1: [nonsense]");
    check(&["create", "priorityclass", "system-x", "--value=1"], "system-x is not a known system priority class");
    kubectl(&kubeconfig, &["create", "service", "clusterip", "s", "--tcp=80"]).expect_success();
    check(&["patch", "service", "s", "-p", r#"{"spec":{"type":"Bogus"}}"#], "spec.type: Unsupported value: \"Bogus\"");
    kubectl(&kubeconfig, &["create", "-f", &write_object_file(&kubeconfig, "pod.json", &pod("a"))]).expect_success();
    check(&["exec", "a", "--", "ls"], "create of pods/exec is not built in this server, and no other server has it");
    check(&["logs", "a"], "get of pods/log is not built in this server, and no other server has it");
    let warned = kubectl(&kubeconfig, &["get", "endpoints"]).stderr;
    assert!(warned.contains("Warning: v1 Endpoints is deprecated in v1.33+"), "{warned}");
    assert!(kubectl(&kubeconfig, &["get", "--raw", "/"]).expect_success().contains("\"/apis/apps/v1\""));
}

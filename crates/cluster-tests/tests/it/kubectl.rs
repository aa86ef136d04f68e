//! Tests with a current kubectl.

mod create;
mod everyday;

use cluster_tests::tools::{is_skipped, kubectl};

use super::*;

#[test]
fn kubectl_writes_objects_of_both_scopes() {
    if is_skipped("kubectl") {
        return;
    }
    for_each_store(|server| {
        let kubeconfig = server.kubeconfig();
        let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
        let file = kubeconfig.with_file_name("objects.json");
        let objects = json!({"kind": "List", "apiVersion": "v1", "items": [
            {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}},
            {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "shop"}, "data": {"x": "1"}},
        ]});
        std::fs::write(&file, objects.to_string()).unwrap();
        let file = file.display().to_string();
        assert_eq!(run(&["create", "--validate=false", "-f", &file]), "namespace/shop created\nconfigmap/a created\n");
        assert!(run(&["get", "configmaps", "--namespace=shop"]).starts_with("NAME   DATA   AGE\na      1"));
        run(&["label", "namespace", "shop", "tier=front"]);
        assert!(run(&["get", "namespaces", "-l", "tier=front", "-o", "name"]).contains("namespace/shop"));
        run(&["-n", "shop", "patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"y":"2"}}"#]);
        run(&["-n", "shop", "patch", "configmap", "a", "--type=json", "-p", r#"[{"op":"remove","path":"/data/x"}]"#]);
        assert_eq!(run(&["-n", "shop", "get", "configmap", "a", "-o", "jsonpath={.data}"]), r#"{"y":"2"}"#);
        run(&["-n", "shop", "delete", "configmap", "a"]);
        let missing = kubectl(&kubeconfig, &["-n", "shop", "get", "configmap", "a"]).expect_failure();
        assert!(missing.contains(r#"configmaps "a" not found"#), "{missing}");
        assert!(run(&["api-resources"]).contains("deployments"));
        assert!(run(&["version"]).contains("unskew"));
    });
}

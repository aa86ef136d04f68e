//! kubectl works with custom resources as with built-in ones.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster_tests::RunningServer;
use cluster_tests::process::run_command;
use cluster_tests::tools::{is_skipped, kubectl, required_path};

use super::*;
use crate::{block_on, for_each_store, start_on_sqlite};

fn write_file(kubeconfig: &Path, object: &Value) -> String {
    let file = kubeconfig.with_file_name("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    file.display().to_string()
}

/// `kubectl edit` with an editor that replaces text.
#[track_caller]
pub(super) fn edit(kubeconfig: &Path, target: &str, name: &str, replacement: &str) -> String {
    let mut command = Command::new(required_path("UNSKEW_KUBECTL"));
    command.arg("--kubeconfig").arg(kubeconfig).args(["edit", target, name]);
    command.env("KUBECACHEDIR", kubeconfig.with_extension("cache"));
    command.env("KUBE_EDITOR", format!("sed -i {replacement}"));
    run_command(command, Duration::from_secs(60)).expect_success()
}

#[test]
fn kubectl_creates_reads_changes_and_deletes_custom_objects() {
    if !is_skipped("kubectl") {
        for_each_store(check_kubectl);
    }
}

fn check_kubectl(server: &RunningServer) {
    let kubeconfig = server.kubeconfig();
    let run = |args: &str| kubectl(&kubeconfig, &args.split(' ').collect::<Vec<_>>()).expect_success();
    run(&format!("create -f {}", write_file(&kubeconfig, &orders_crd())));
    run("wait --for=condition=Established crd/orders.shop.example.com --timeout=30s");
    let listed = run("api-resources --api-group=shop.example.com --no-headers -o wide");
    let words: Vec<&str> = listed.split_whitespace().collect();
    let expected =
        "orders ord shop.example.com/v2 true Order delete,deletecollection,get,list,patch,create,update,watch";
    assert_eq!(words[..6].join(" "), expected, "{listed}");
    assert_eq!(words[6..], ["shopping"], "{listed}");

    run(&format!("create -f {}", write_file(&kubeconfig, &order("a"))));
    assert_eq!(run("get ord"), "NAME   SIZE    REPLICAS\na      small   1\n");
    assert_eq!(run("get shopping -o wide"), "NAME   SIZE    REPLICAS   ITEM\na      small   1          tea\n");
    assert_eq!(run("get order a -o jsonpath={.apiVersion}"), "shop.example.com/v2");
    assert_eq!(run("scale order a --replicas=3"), "order.shop.example.com/a scaled\n");
    let status = r#"{"status":{"phase":"Sent","replicas":2}}"#;
    run(&format!("patch order a --subresource=status --type=merge -p {status}"));
    assert_eq!(run("get order a --subresource=scale -o jsonpath={.spec.replicas}{.status.replicas}"), "32");
    edit(&kubeconfig, "orders.v2.shop.example.com", "a", "s/small/large/");
    let read = "get orders.v1.shop.example.com a -o jsonpath={.apiVersion},{.spec},{.status.phase}";
    assert_eq!(run(read), r#"shop.example.com/v1,{"item":"tea","replicas":3,"size":"large"},Sent"#);
    let mut applied = order("b");
    for item in ["coffee", "milk"] {
        applied["spec"]["item"] = item.into();
        run(&format!("apply -f {}", write_file(&kubeconfig, &applied)));
        assert_eq!(run("get order b -o jsonpath={.spec.item}"), item);
    }
    run("label order b kind=milk");
    assert_eq!(run("get orders -l kind=milk -o name"), "order.shop.example.com/b\n");
    assert_eq!(run("delete order a"), "order.shop.example.com \"a\" deleted from default namespace\n");
    run("delete crd orders.shop.example.com --timeout=60s");
    let gone = kubectl(&kubeconfig, &["get", "orders"]).expect_failure();
    assert!(gone.contains("the server could not find the requested resource"), "{gone}");
}

#[test]
fn kubectl_shows_the_reason_of_a_refused_custom_object() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let kubeconfig = server.kubeconfig();
    block_on(define(&server.admin(), &orders_crd()));
    for (spec, expected) in [
        (
            json!({"item": "tea", "size": "huge"}),
            r#"The Order "a" is invalid: 
* spec.size: Unsupported value: "huge": supported values: "small", "medium", "large"
* <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"#,
        ),
        (
            json!({"size": "small"}),
            r#"The Order "a" is invalid: 
* spec.item: Required value
* <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"#,
        ),
        (
            json!({"item": "tea", "replicas": 11}),
            r#"The Order "a" is invalid: spec: Invalid value: only large orders exceed ten"#,
        ),
        (
            json!({"item": 5}),
            r#"The Order "a" is invalid: 
* spec.item: Invalid value: "integer": spec.item in body must be of type string: "integer"
* <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"#,
        ),
        (
            json!({"item": "tea", "color": "green"}),
            r#"Error from server (BadRequest): error when creating "<file>": Order in version "v1" cannot be handled as a Order: strict decoding error: unknown field "spec.color""#,
        ),
    ] {
        let mut broken = order("a");
        broken["spec"] = spec;
        let file = write_file(&kubeconfig, &broken);
        let refused = kubectl(&kubeconfig, &["create", "-f", &file]).expect_failure();
        assert_eq!(refused.replace(&file, "<file>").trim_end(), expected);
    }
}

//! Apply by real clients: kubectl, kube-rs and Python's dynamic client.

use cluster_tests::tools::{is_skipped, kubectl, python};
use cluster_tests::wait::eventually;
use cluster_tests::{ControlPlane, TestStore};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::core::gvk::GroupVersionKind;

use super::create_widgets;
use crate::clients::kube_rs::connect;
use crate::*;

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec:
  replicas: 2
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers:
      - {name: c, image: i, ports: [{containerPort: 80}]}
";
const WIDGET: &str = r"
apiVersion: apply.example.com/v1
kind: Widget
metadata: {name: w, labels: {tier: front}}
spec: {tags: [x], size: {count: 2}, parts: [{name: a, weight: 1}]}
";

#[test]
fn kubectl_applies_server_side() {
    if is_skipped("kubectl") {
        return;
    }
    for_each_store(|server| {
        let kubeconfig = server.kubeconfig();
        block_on(create_widgets(&server.admin()));
        let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
        let file = kubeconfig.with_file_name("apply.yaml").display().to_string();
        for (manifest, what, resource, changed) in [
            (DEPLOYMENT, "deployment.apps/web", "deployment", ("replicas: 2", "replicas: 3")),
            (WIDGET, "widget.apply.example.com/w", "widget", ("count: 2", "count: 3")),
        ] {
            std::fs::write(&file, manifest).unwrap();
            let name = what.rsplit('/').next().unwrap();
            let version = || run(&["get", resource, name, "-o", "jsonpath={.metadata.resourceVersion}"]);
            assert_eq!(run(&["apply", "--server-side", "-f", &file]), format!("{what} serverside-applied\n"));
            let before = version();
            assert_eq!(run(&["apply", "--server-side", "-f", &file]), format!("{what} serverside-applied\n"));
            assert_eq!(version(), before, "an apply that changes nothing is no write");
            std::fs::write(&file, manifest.replace(changed.0, changed.1)).unwrap();
            let other = ["apply", "--server-side", "--field-manager=other", "-f", &file];
            let refused = kubectl(&kubeconfig, &other).expect_failure();
            assert!(refused.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .spec."), "{refused}");
            let dry = run(&["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &file]);
            assert_eq!(dry, format!("{what} serverside-applied (server dry run)\n"));
            assert_eq!(version(), before);
            // The exit code of a difference is 1.
            let difference = kubectl(&kubeconfig, &["diff", "--server-side", "--force-conflicts", "-f", &file]).stdout;
            assert!(difference.contains(changed.1), "{difference}");
            run(&[&other[..], &["--force-conflicts"]].concat());
            assert_ne!(version(), before);
        }
    });
}

#[test]
fn kubectl_moves_from_client_side_to_server_side_and_back() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let kubeconfig = server.kubeconfig();
    block_on(create_widgets(&server.admin()));
    let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
    let file = kubeconfig.with_file_name("apply.yaml").display().to_string();
    for (manifest, what, number, path) in [
        (DEPLOYMENT, ["deployment", "web"], "replicas: 2", ".spec.replicas"),
        (WIDGET, ["widget", "w"], "count: 2", ".spec.size.count"),
    ] {
        let with_number = |new: &str| manifest.replace(number, &number.replace('2', new));
        let get = |output: &str| run(&["get", what[0], what[1], "--show-managed-fields", "-o", output]);
        std::fs::write(&file, manifest).unwrap();
        run(&["apply", "-f", &file]);
        // Fields of the last client-side apply are no conflict, and one that is applied no more goes.
        std::fs::write(&file, with_number("4").replace(", labels: {tier: front}", "")).unwrap();
        run(&["apply", "--server-side", "-f", &file]);
        assert_eq!(get(&format!("jsonpath={{{path}}} {{.metadata.labels}}")), "4 ");
        let managers = get(r#"jsonpath={range .metadata.managedFields[*]}{.manager} {.operation}{","}{end}"#);
        assert!(managers.split(',').any(|one| one == "kubectl Apply"), "{managers}");
        std::fs::write(&file, with_number("5")).unwrap();
        run(&["apply", "-f", &file]);
        assert_eq!(get(&format!("jsonpath={{{path}}}")), "5");
    }
}

#[test]
fn kubectl_applies_through_a_peer_and_an_older_release() {
    if is_skipped("kubectl") {
        return;
    }
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("new", &["--emulated-version=1.36"]);
    let kubeconfig = plane.server("new").kubeconfig();
    plane.start("old", &["--emulated-version=1.33"]);
    block_on(create_widgets(&plane.admin("old")));
    let file = kubeconfig.with_file_name("apply.yaml").display().to_string();
    let apply = |server: &str, manifest: &str, manager: &str| {
        std::fs::write(&file, manifest).unwrap();
        let server = format!("--server=https://{}", plane.address(server));
        let manager = format!("--field-manager={manager}");
        kubectl(&kubeconfig, &["apply", "--server-side", "-f", &file, &server, &manager])
    };
    // Only the new release serves this version.
    let class = "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: c}\ndriverName: d.example.com\nparameters: {a: b}\n";
    block_on(eventually("the old server forwards", async || {
        let applied = apply("old", class, "m");
        if applied.code == Some(0) { Ok(()) } else { Err(applied.stderr) }
    }));
    apply("old", WIDGET, "m").expect_success();
    // 1.33 does not know the rules of a container.
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  restartPolicy: Never\n  containers:\n  - name: c\n    image: i\n    restartPolicy: Never\n    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]\n";
    apply("new", pod, "new").expect_success();
    let labels = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: b}}\nspec:\n  containers:\n  - {name: c, image: i}\n";
    apply("old", labels, "old").expect_success();
    let shown = kubectl(
        &kubeconfig,
        &["get", "pod", "p", "-o", "jsonpath={.metadata.labels.a} {.spec.containers[0].restartPolicyRules[0].action}"],
    );
    assert_eq!(shown.expect_success(), "b Restart");
}

#[test]
fn kube_rs_applies_built_in_and_custom_objects() {
    for_each_store(|server| {
        block_on(async {
            create_widgets(&server.admin()).await;
            let client = connect(server).await;
            let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
            let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": value}});
            maps.patch("m", &PatchParams::apply("one"), &Patch::Apply(config("1"))).await.unwrap();
            let refused = maps.patch("m", &PatchParams::apply("two"), &Patch::Apply(config("2"))).await.unwrap_err();
            let kube::Error::Api(status) = &refused else { panic!("{refused:?}") };
            assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"), "{status:?}");
            let causes = &status.details.as_ref().unwrap().causes;
            assert_eq!((causes[0].field.as_str(), causes[0].reason.as_str()), (".data.a", "FieldManagerConflict"));
            let forced = PatchParams::apply("two").force();
            let applied = maps.patch("m", &forced, &Patch::Apply(config("2"))).await.unwrap();
            let managers: Vec<_> =
                applied.metadata.managed_fields.unwrap().into_iter().map(|one| one.manager).collect();
            assert_eq!(managers, [Some("two".to_owned())], "the first owns nothing more");

            let kind = GroupVersionKind::gvk("apply.example.com", "v1", "Widget");
            let widgets: Api<DynamicObject> =
                Api::default_namespaced_with(client, &kube::core::ApiResource::from_gvk(&kind));
            let config = |tag: &str| json!({"apiVersion": "apply.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"tags": [tag]}});
            widgets.patch("w", &PatchParams::apply("one"), &Patch::Apply(config("x"))).await.unwrap();
            let both = widgets.patch("w", &PatchParams::apply("two"), &Patch::Apply(config("y"))).await.unwrap();
            assert_eq!(both.data["spec"], json!({"color": "red", "tags": ["x", "y"]}));
        });
    });
}

const PYTHON_PROGRAM: &str = r#"
import sys
from kubernetes import config, dynamic
from kubernetes.client import api_client
config.load_kube_config(sys.argv[1])
client = dynamic.DynamicClient(api_client.ApiClient())
for api_version, kind, spec in [("v1", "ConfigMap", {"data": {"a": "1"}}), ("apply.example.com/v1", "Widget", {"spec": {"tags": ["x"]}})]:
    resource = client.resources.get(api_version=api_version, kind=kind)
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "py"}, **spec}
    applied = client.server_side_apply(resource, body=body, name="py", namespace="default", field_manager="python")
    entries = applied.to_dict()["metadata"]["managedFields"]
    assert [(e["manager"], e["operation"]) for e in entries] == [("python", "Apply")], entries
    again = client.server_side_apply(resource, body=body, name="py", namespace="default", field_manager="python")
    assert again.metadata.resourceVersion == applied.metadata.resourceVersion
print("done")
"#;

#[test]
fn python_dynamic_client_applies() {
    if is_skipped("python") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    block_on(create_widgets(&server.admin()));
    let kubeconfig = server.kubeconfig().display().to_string();
    assert_eq!(python(PYTHON_PROGRAM, &[&kubeconfig]).expect_success(), "done\n");
}
